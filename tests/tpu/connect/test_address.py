"""What --tpu and the environment say, with the traps of TPUClusterResolver put right."""

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
def test_the_flag_comes_first_and_then_the_environment(tpu, environ, text):
    assert address.find(tpu, environ).text == text


def test_nothing_is_found_where_there_is_nothing():
    assert address.find("", {}) is None


def test_a_machine_s_own_tpu_is_found_without_a_name(monkeypatch):
    monkeypatch.setattr(address, "local_devices", lambda: ["/dev/accel0"])
    assert address.find("", {}) == address.Address("local", "/dev/accel0")


@pytest.mark.parametrize("tpu", ["grpc://", "grpc://10.0.0.2:tpu", "grpc://a b:1"])
def test_what_is_no_endpoint_is_refused(tpu):
    with pytest.raises(ValueError, match=r"invalid endpoint .* Use grpc://HOST:8470"):
        address.find(tpu, {})


def test_a_config_that_is_no_json_is_refused():
    with pytest.raises(ValueError, match="TPU_CONFIG is not valid JSON"):
        address.find("", {"TPU_CONFIG": "{mine"})
    with pytest.raises(ValueError, match=r"TPU_CONFIG is not a JSON object: \[\]"):
        address.find("", {"TPU_CONFIG": "[]"})


def test_endpoints_have_hosts_and_ports():
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
def test_a_remote_tpu_does_not_see_the_files_of_this_machine(tpu, is_named, is_remote):
    found = address.find(tpu, {})
    assert (found.is_named, found.is_remote) == (is_named, is_remote)
