"""NodeClient looks up a TPU in a fake Cloud TPU API: places, credentials, failures, polling."""

import socket
import time

import pytest
from absl import flags
from google.auth import _exponential_backoff
from google.auth.compute_engine import _metadata

from tests.tpu.fake_cloud import NAME, PROJECT, READY, ZONE
from tpu.connect import address, cloud_api
from tpu.connect.node import NotReadyError
from tpu.connect.request import TPUError


@pytest.fixture
def client(cloud, monkeypatch):
    """Makes a client of a TPU: `client(zone=..., project=...)`."""
    monkeypatch.setattr(cloud_api, "_RETRIES", 0)

    def make(name=NAME, zone="", project=""):
        return cloud_api.NodeClient(address.find(name, {}), zone, project)

    return make


def failure(client, **arguments):
    """Returns the error of a lookup."""
    with pytest.raises(TPUError) as error:
        client(**arguments).get()
    return error.value


def test_zone_and_project_come_from_the_metadata_server(client):
    found = client()
    assert (found.place.zone, found.place.project) == (ZONE, PROJECT)
    assert found.get()["name"] == READY["name"]


def test_flags_replace_the_metadata_server(client, cloud):
    cloud.set(metadata_status=404)
    assert client(zone=ZONE, project=PROJECT).get()["state"] == "READY"


@pytest.mark.parametrize(
    ("flags", "missing"),
    [
        ({}, "--tpu_zone and --gcp_project"),
        ({"zone": ZONE}, "--gcp_project"),
        ({"project": PROJECT}, "--tpu_zone"),
    ],
)
def test_without_metadata_server_the_flags_are_needed(client, monkeypatch, flags, missing):
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:1")
    message = str(failure(client, **flags))
    assert "--tpu=mine: the GCE metadata server does not give the place of the TPU: " in message
    assert message.endswith(f". Set {missing}")


def test_a_metadata_server_that_hangs_is_given_up(client, monkeypatch):
    monkeypatch.setattr(cloud_api, "_TIMEOUT_SECONDS", 0.2)
    start = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("GCE_METADATA_HOST", f"127.0.0.1:{silent.getsockname()[1]}")
        assert "timed out. Set --tpu_zone and --gcp_project" in str(failure(client))
    assert time.monotonic() - start < 10
    assert socket.getdefaulttimeout() is None


@pytest.mark.parametrize("flags", [{"zone": "a/b"}, {"zone": "a b"}, {"project": "p\x1b[31m"}])
def test_a_place_that_is_not_a_name_is_not_looked_up(client, cloud, flags):
    requests = cloud.count("v1/projects")
    message = str(failure(client, **flags))
    assert "Set --tpu_zone and --gcp_project" in message
    assert message.isprintable()
    assert cloud.count("v1/projects") == requests


def test_an_unknown_name_may_be_created_later(client):
    error = failure(client, name="other")
    assert isinstance(error, NotReadyError)
    assert str(error) == (
        "--tpu=other: there is no TPU other in zone us-central1-b of project my-project. See "
        "gcloud compute tpus tpu-vm list --zone=us-central1-b --project=my-project, and set "
        "--tpu, --tpu_zone and --gcp_project"
    )


@pytest.mark.parametrize(
    ("status", "message", "line"),
    [
        (
            403,
            "Permission 'tpu.nodes.get' denied on 'projects/my-project/locations/z/nodes/mine'",
            "permission denied (Permission 'tpu.nodes.get' denied on 'projects/my-project/location",
        ),
        (403, "Request had insufficient authentication scopes.", "a VM also needs the scope clou"),
        (
            403,
            "Location us-x is not found or access is unauthorized.",
            "zone us-central1-b is unknown or has no TPUs for project my-project (Location us-x",
        ),
        (
            403,
            "Permission denied on 'locations/us-x' (or it may not exist).",
            "zone us-central1-b is unknown or has no TPUs for project my-project",
        ),
        (
            403,
            "Permission denied on resource project my-project.",
            "project my-project is unknown, or the Google account has no access (Permission",
        ),
        (
            403,
            "Project 'my-project' not found or permission denied.",
            "project my-project is unknown, or the Google account has no access",
        ),
        (
            403,
            "Cloud TPU API has not been used in project 7 before or it is disabled. Enable it",
            "the Cloud TPU API is disabled in project my-project (Cloud TPU API has not been",
        ),
        (401, "Request had invalid authentication credentials.", "rejects the Google credentials"),
        (400, "Malformed name.", "answered with HTTP status 400: Malformed name. Check --tpu"),
    ],
)
def test_a_refusal_is_one_line(client, cloud, status, message, line):
    cloud.set(status=status, error={"error": {"code": status, "message": message}})
    error = failure(client)
    assert not isinstance(error, NotReadyError)
    assert f"--tpu=mine: {line}" in str(error) or line in str(error)
    assert "\n" not in str(error)


def test_a_disabled_api_is_known_by_its_code(client, cloud):
    details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "SERVICE_DISABLED"}]
    cloud.set(status=403, error={"error": {"message": "No.", "details": details}})
    line = "Run gcloud services enable tpu.googleapis.com --project=my-project"
    assert line in str(failure(client))


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_an_unavailable_api_may_come_back(client, cloud, status):
    cloud.set(status=status, error="<html>\n<b>busy</b>")
    error = failure(client)
    assert isinstance(error, NotReadyError)
    assert f"the Cloud TPU API is unavailable (HTTP status {status}: " in str(error)


def test_googles_client_retries_an_unavailable_api(client, cloud, monkeypatch):
    monkeypatch.setattr(cloud_api, "_RETRIES", 1)
    found = client()
    cloud.set(status=503, error="busy", times=1)
    before = cloud.count("v1/projects")
    assert found.get()["state"] == "READY"
    assert cloud.count("v1/projects") == before + 2


def test_an_api_that_hangs_is_given_up(client, cloud, monkeypatch):
    found = client()
    monkeypatch.setattr(cloud_api, "_TIMEOUT_SECONDS", 0.2)
    cloud.set(hang_seconds=20)
    start = time.monotonic()
    with pytest.raises(NotReadyError, match=r"API is unavailable \(timed out\)"):
        found.get()
    assert time.monotonic() - start < 10


@pytest.mark.parametrize("answer", ["<html>hotspot</html>", "[1, 2]", "7", '"READY"'])
def test_an_answer_that_is_not_a_node(client, cloud, answer):
    cloud.set(text=answer)
    assert "the Cloud TPU API answered '" in str(failure(client))


def test_an_error_without_a_message(client, cloud):
    cloud.set(status=403, error={"error": {"message": 5}})
    assert "--tpu=mine cannot be looked up in the Cloud TPU API" in str(failure(client))


def test_a_vm_uses_its_service_account(client, cloud, monkeypatch, tmp_path):
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))  # no gcloud login
    monkeypatch.setattr(_metadata, "_GCE_METADATA_HOST", f"127.0.0.1:{cloud.port}")
    monkeypatch.setattr(_metadata, "_NO_GCE_CHECK", False)
    assert client().get()["state"] == "READY"
    assert cloud.count("service-accounts/default/token")


def test_missing_credentials(client, monkeypatch):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/no/such/key.json")
    message = str(failure(client))
    assert "--tpu=mine: no Google credentials: File /no/such/key.json was not found. Run" in message
    assert "gcloud auth application-default login" in message


def test_no_credentials_at_all(client, monkeypatch, tmp_path):
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))  # no gcloud login
    monkeypatch.setattr(_metadata, "_NO_GCE_CHECK", True)
    monkeypatch.setattr(_metadata, "detect_gce_residency_linux", lambda: False)
    message = str(failure(client))
    assert "--tpu=mine: no Google credentials: Your default credentials were not found" in message
    assert message.endswith("to the key file of a service account")


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", b'{"type": "service_account"}'])
def test_an_invalid_key_file(client, monkeypatch, tmp_path, content):
    (tmp_path / "key.json").write_bytes(content)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
    assert "--tpu=mine: no Google credentials: " in str(failure(client))


def test_expired_credentials(client, cloud):
    cloud.set(token_status=400)
    message = str(failure(client))
    assert (
        "the Google credentials are invalid: invalid_grant: Invalid JWT Signature. Run" in message
    )


def test_an_unavailable_token_server_may_come_back(client, cloud, monkeypatch):
    monkeypatch.setattr(_exponential_backoff.time, "sleep", lambda seconds: None)
    cloud.set(token_status=503)
    assert isinstance(failure(client), NotReadyError)


def test_a_wrong_discovery_url(client, cloud, monkeypatch):
    monkeypatch.setenv("TPU_API_DISCOVERY_URL", f"http://127.0.0.1:{cloud.port}/nothing")
    message = str(failure(client))
    assert message.startswith("TPU_API_DISCOVERY_URL=http://127.0.0.1:")
    assert message.endswith("Unset it")


def test_without_a_discovery_url_the_library_describes_the_public_api(client, monkeypatch):
    monkeypatch.delenv("TPU_API_DISCOVERY_URL")
    request = client()._service.projects().locations().nodes().get(name=READY["name"])
    assert request.uri == f"https://tpu.googleapis.com/v1/{READY['name']}?alt=json"


def test_wait_prints_each_change_of_status(capsys, monkeypatch):
    monkeypatch.setattr(cloud_api, "_POLL_SECONDS", 0)
    steps = iter(["CREATING", "CREATING", "REPAIRING", "CREATING", "READY"])

    def attempt():
        state = next(steps)
        if state != "READY":
            raise NotReadyError(f"the TPU is {state}", "")
        return state

    assert cloud_api.wait(attempt, 2, "TPU_NAME") == "READY"
    assert capsys.readouterr().out.splitlines() == [
        f"TPU_NAME: the TPU is {state}; waiting, 2 minutes left"
        for state in ("CREATING", "REPAIRING", "CREATING")
    ]


def test_wait_ends_after_its_minutes(monkeypatch):
    monkeypatch.setattr(cloud_api, "_POLL_SECONDS", 0.01)

    def attempt():
        raise NotReadyError("the TPU is PREEMPTED", "PREEMPTED. Create it again")

    with pytest.raises(TPUError, match=r"Create it again\. Waited 0.001 minutes \(--tpu_wait_min"):
        cloud_api.wait(attempt, 0.001, "--tpu=mine")
    with pytest.raises(TPUError, match=r"Create it again$"):
        cloud_api.wait(attempt, 0, "--tpu=mine")


def test_wait_does_not_repeat_other_errors():
    calls = []

    def attempt():
        calls.append(1)
        raise TPUError("permission denied")

    with pytest.raises(TPUError, match="permission denied"):
        cloud_api.wait(attempt, 1, "--tpu=mine")
    assert len(calls) == 1


@pytest.fixture
def poll(client, cloud, capsys):
    """Returns what TensorFlow's client finds after an answer, and the lines that are printed.

    `poll(node=...)` returns (recoverable, lines); it begins with a READY node.
    """
    flags.FLAGS.mark_as_parsed()  # TensorFlow's client reads flags
    found = client()
    found.follow(found.get())

    def poll_after(**answers):
        cloud.set(**answers)
        recoverable = found.resolver._cloud_tpu_client.recoverable()
        return recoverable, capsys.readouterr().out.splitlines()

    return poll_after


@pytest.mark.parametrize("state", ["PREEMPTED", "TERMINATED"])
def test_the_poller_ends_the_program_of_a_lost_node(poll, state):
    line = (
        f"--tpu=mine: the TPU is {state}. This program ends; run the same command again to resume"
    )
    assert poll(node={}) == (True, [])
    assert poll(node={"state": state}) == (False, [line])


@pytest.mark.parametrize("state", ["REPAIRING", "RESTARTING", "STOPPED"])
def test_the_poller_waits_for_other_states(poll, state):
    assert poll(node={"state": state}) == (True, [f"--tpu=mine: the TPU is {state}"])
    assert poll(node={"state": state}) == (True, [])
    assert poll(node={}) == (True, ["--tpu=mine: the TPU is READY"])


def test_the_poller_ends_the_program_of_a_deleted_node(poll):
    recoverable, (line,) = poll(status=404, error={"error": {"message": "Not found"}})
    assert not recoverable
    assert line.startswith("--tpu=mine: the TPU was deleted. This program ends")


def test_the_poller_ends_the_program_of_a_node_that_was_created_again(poll):
    recoverable, (line,) = poll(node={"createTime": "2026-11-23T11:00:00Z"})
    assert not recoverable
    assert line.startswith("--tpu=mine: the TPU was created again. This program ends")


def test_the_poller_ends_the_program_of_a_node_with_new_addresses(poll):
    endpoints = [{"ipAddress": "10.0.0.9", "port": 8470}]
    assert poll(node={"state": "REPAIRING", "networkEndpoints": endpoints})[0]
    recoverable, (line,) = poll(node={"networkEndpoints": endpoints})
    assert not recoverable
    assert line.startswith("--tpu=mine: the TPU has new addresses. This program ends")


@pytest.mark.parametrize(
    "answers",
    [
        {"status": 503, "error": "busy"},
        {"status": 403, "error": {"error": {"message": "denied"}}},
        {"text": "<html>"},
    ],
)
def test_the_poller_survives_an_unavailable_api(poll, answers):
    recoverable, (line,) = poll(**answers)
    assert recoverable
    assert line.startswith("--tpu=mine: its state is unknown (--tpu=mine: ")
    assert poll(**answers) == (True, [])
    assert not poll(node={"state": "PREEMPTED"})[0]


def test_the_poller_ends_the_program_after_a_lack_of_memory(poll):
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    symptom = {"symptomType": "HBM_OUT_OF_MEMORY", "createTime": now}
    recoverable, lines = poll(node={"symptoms": [symptom]})
    assert not recoverable
    assert lines[0].startswith("--tpu=mine: the TPU ran out of memory. This program ends")
