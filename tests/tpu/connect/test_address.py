"""The TPU address from --tpu and the environment."""

import json

import pytest

from tpu.connect import address


@pytest.fixture(autouse=True)
def no_devices(monkeypatch):
    monkeypatch.setattr(address, "local_devices", list)


@pytest.mark.parametrize(
    ("tpu", "environ", "text"),
    [
        ("local", {}, "local"),
        ("emulator", {"TPU_NAME": "mine"}, "emulator"),
        ("mine", {}, "mine"),
        ("projects/p/locations/z/nodes/mine", {}, "projects/p/locations/z/nodes/mine"),
        ("grpc://10.0.0.2:8470", {}, "grpc://10.0.0.2:8470"),
        ("grpc://10.0.0.2", {}, "grpc://10.0.0.2:8470"),
        ("10.0.0.2:8470", {}, "grpc://10.0.0.2:8470"),
        ("10.0.0.2", {}, "grpc://10.0.0.2:8470"),
        ("worker:9000", {}, "grpc://worker:9000"),
        (
            "grpc://10.0.0.2:8470, 10.0.0.3:8470",
            {},
            "grpc://10.0.0.2:8470,grpc://10.0.0.3:8470",
        ),
        ("", {"TPU_NAME": "local"}, "local"),
        ("", {"TPU_NAME": "mine"}, "mine"),
        ("", {"TPU_CONFIG": '{"tpu_node_name": "mine"}'}, "mine"),
        (
            "",
            {"KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS": "grpc://10.0.0.2:8470", "TPU_NAME": "mine"},
            "grpc://10.0.0.2:8470",
        ),
    ],
)
def test_flag_takes_precedence_over_environment(tpu, environ, text):
    assert address.find(tpu, environ).text == text


def test_no_address_returns_none():
    assert address.find("", {}) is None


def test_local_device_is_found_without_flag(monkeypatch):
    monkeypatch.setattr(address, "local_devices", lambda: ["/dev/accel0"])
    assert address.find("", {}) == address.Address("local", "/dev/accel0")


@pytest.mark.parametrize("tpu", ["grpc://", "grpc://10.0.0.2:tpu", "grpc://a b:1"])
def test_invalid_endpoint_raises(tpu):
    with pytest.raises(ValueError, match=r"invalid endpoint .* Use grpc://HOST:8470"):
        address.find(tpu, {})


def test_invalid_tpu_config_raises():
    with pytest.raises(ValueError, match="TPU_CONFIG is not valid JSON"):
        address.find("", {"TPU_CONFIG": "{mine"})
    with pytest.raises(ValueError, match=r"TPU_CONFIG is not a JSON object: \[\]"):
        address.find("", {"TPU_CONFIG": "[]"})


def test_tpu_config_gives_the_zone_and_project_of_its_name():
    config = {"tpu_node_name": "mine", "zone": "us-central1-b", "project": "my-project"}
    found = address.find("", {"TPU_CONFIG": json.dumps(config)})
    assert (found.text, found.zone, found.project) == ("mine", "us-central1-b", "my-project")
    found = address.find("other", {"TPU_CONFIG": json.dumps(config)})
    assert (found.text, found.zone, found.project) == ("other", "", "")


@pytest.mark.parametrize("name", ["tpu_node_name", "zone", "project"])
def test_tpu_config_with_a_number_raises(name):
    with pytest.raises(ValueError, match=f"TPU_CONFIG: {name} is not a string: 7"):
        address.find("", {"TPU_CONFIG": json.dumps({name: 7})})


def test_endpoints_are_host_and_port():
    found = address.find("10.0.0.2,worker:9000", {})
    assert found.endpoints == [("10.0.0.2", 8470), ("worker", 9000)]


@pytest.mark.parametrize(
    ("tpu", "is_named", "is_remote"),
    [
        ("local", False, False),
        ("emulator", False, False),
        ("mine", True, True),
        ("grpc://10.0.0.2:8470", False, True),
        ("grpc://127.0.0.1:8470", False, False),
        ("grpc://localhost:8470", False, False),
    ],
)
def test_is_named_and_is_remote(tpu, is_named, is_remote):
    found = address.find(tpu, {})
    assert (found.is_named, found.is_remote) == (is_named, is_remote)


@pytest.mark.parametrize("tpu", ["local", ""])
def test_a_local_tpu_of_v5_or_later_has_only_pjrt(tpu):
    found = address.find(tpu, {"TPU_ACCELERATOR_TYPE": "v5litepod-8"})
    assert found.text == "pjrt"
    assert not found.has_infeed
    assert found.source == ("--tpu=local" if tpu else "this machine")


def test_finds_the_kind_of_a_tpu_on_the_pci_bus(monkeypatch, tmp_path):
    for folder, vendor, device in (("a", "0x8086", "0x0063"), ("b", "0x1ae0", "0x006f")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "vendor").write_text(f"{vendor}\n")
        (tmp_path / folder / "device").write_text(f"{device}\n")
    paths = sorted(map(str, tmp_path.glob("*/vendor")))
    monkeypatch.setattr(address.glob, "glob", lambda pattern: paths)
    assert address.later_tpu({}) == "v6e"
