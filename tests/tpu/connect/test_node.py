"""Nodes of the Cloud TPU API: what each state, health and field of an answer means."""

import datetime
import importlib.util
import json
import pathlib

import pytest

from tests.tpu.fake_cloud import READY
from tpu.connect import node, topology
from tpu.connect.request import TPUError

PLACE = node.Place("--tpu=mine", "mine", "us-central1-b", "my-project")
FLAGS = "mine --zone=us-central1-b --project=my-project"


def problem(**fields):
    """Returns the message for a node with these fields."""
    with pytest.raises(node.NotReadyError) as error:
        node.check_ready(PLACE, {**READY, **fields})
    return str(error.value)


@pytest.fixture(scope="module")
def public_api():
    """The schemas of the Cloud TPU API v1, from Google's library."""
    library = importlib.util.find_spec("googleapiclient").submodule_search_locations[0]
    path = pathlib.Path(library, "discovery_cache", "documents", "tpu.v1.json")
    return json.loads(path.read_text())["schemas"]


def test_every_state_of_the_api_has_a_meaning(public_api):
    states = public_api["Node"]["properties"]["state"]["enum"]
    assert {*node._STATES, node.READY} == set(states)


def test_every_symptom_of_a_lack_of_memory_is_in_the_api(public_api):
    symptoms = public_api["Symptom"]["properties"]["symptomType"]["enum"]
    assert {*node._OUT_OF_MEMORY} < set(symptoms)


def test_every_health_of_the_api_has_a_meaning(public_api):
    values = {*public_api["Node"]["properties"]["health"]["enum"], ""}
    assert values == {*node._HEALTHY, *node._HEALTH}


def test_the_page_lists_each_state_and_health():
    commands = {verb: verb.upper() for verb in ("start", "stop", "delete", "describe")}
    page = (pathlib.Path(__file__).parents[3] / "docs" / "cloud_tpu_vm.md").read_text()
    for name, (meaning, advice) in {**node._STATES, **node._HEALTH}.items():
        assert f"| `{name}` | {meaning} | {advice.format(**commands)} |" in page


@pytest.mark.parametrize("health", ["HEALTHY", "HEALTH_UNSPECIFIED", "", None])
def test_a_ready_and_healthy_node_is_no_problem(health):
    node.check_ready(PLACE, {**READY, "health": health})


@pytest.mark.parametrize(
    ("state", "line"),
    [
        ("CREATING", "it is being created. Wait until it is READY, such as with --tpu_wait_min"),
        ("STARTING", "it is being started. Wait until it is READY"),
        ("RESTARTING", "it is restarting. Wait until it is READY"),
        ("REIMAGING", "its software is being replaced. Wait until it is READY"),
        ("REPAIRING", "it is being repaired. Wait until it is READY"),
        ("UNHIDING", "it is being unhidden. Wait until it is READY"),
        ("STOPPED", f"has been stopped. Start it: gcloud compute tpus tpu-vm start {FLAGS}"),
        ("STOPPING", f"being stopped. Start it: gcloud compute tpus tpu-vm start {FLAGS}"),
        ("PREEMPTED", "has reclaimed it. Delete it and create it again: gcloud compute tpus tpu"),
        ("TERMINATED", "has ended it. Delete it and create it again: gcloud compute tpus tpu-vm"),
        ("DELETING", "it is being deleted. Create it again"),
        ("HIDING", f"it is being hidden. See gcloud compute tpus tpu-vm describe {FLAGS}"),
        ("HIDDEN", f"it is hidden. See gcloud compute tpus tpu-vm describe {FLAGS}"),
        ("UNKNOWN", "a repair has failed. Delete it and create it again"),
        ("STATE_UNSPECIFIED", "its state is unknown. See gcloud"),
        ("MELTED", "a state that is not in the API v1. See gcloud"),
    ],
)
def test_each_state_says_what_to_do(state, line):
    message = problem(state=state)
    assert message.startswith(f"--tpu=mine: the TPU is {state}: ")
    assert line in message


def test_a_missing_state_is_unspecified():
    assert "the TPU is STATE_UNSPECIFIED" in problem(state=None)


@pytest.mark.parametrize(
    ("health", "line"),
    [
        ("TIMEOUT", f"it does not respond. Restart it: gcloud compute tpus tpu-vm stop {FLAGS}"),
        ("UNHEALTHY_TENSORFLOW", "its TensorFlow runtime is unhealthy. End other programs"),
        ("UNHEALTHY_MAINTENANCE", "it is under maintenance. Wait until it is READY"),
        ("DEPRECATED_UNHEALTHY", "it is unhealthy. See gcloud"),
        ("SAD", "a health that is not in the API v1. See gcloud"),
    ],
)
def test_each_health_says_what_to_do(health, line):
    message = problem(health=health)
    assert message.startswith(f"--tpu=mine: the TPU is READY, but its health is {health}: ")
    assert line in message


def test_the_api_explains_an_unhealthy_node():
    symptom = {"symptomType": "LOW_MEMORY", "createTime": "2026-11-23T10:00:00Z", "workerId": "3"}
    message = problem(
        state="REPAIRING",
        healthDescription="Disk is full.",
        symptoms=[{**symptom, "details": "1 MB free"}],
    )
    assert (
        "repaired; Disk is full; symptom LOW_MEMORY on worker 3 at 2026-11-23T10:00:00Z (1 MB "
        "free). Wait" in message
    )


def test_commands_for_a_tpu_node_are_not_those_for_a_tpu_vm():
    assert f"gcloud compute tpus start {FLAGS}" in problem(state="STOPPED", apiVersion="V1")


def test_text_of_the_api_is_one_short_line_without_control_characters():
    message = problem(state="A\x1b[31m\nB", healthDescription="x" * 10_000)
    assert "the TPU is A\\x1b[31m B" in message
    assert message.isprintable()
    assert len(message) < 1000


@pytest.mark.parametrize("symptoms", [None, "none", [], [None, 5, "x"], [{}], {"a": 1}])
def test_invalid_symptoms_are_ignored(symptoms):
    assert problem(state="CREATING", symptoms=symptoms).startswith("--tpu=mine: the TPU is CREATI")
    assert node.with_valid_symptoms({"symptoms": symptoms}) == {"symptoms": []}


@pytest.mark.parametrize("kind", ["OUT_OF_MEMORY", "HBM_OUT_OF_MEMORY"])
@pytest.mark.parametrize(("age", "is_recent"), [(0, True), (80, True), (100, False)])
def test_a_recent_lack_of_memory_is_a_problem(kind, age, is_recent):
    now = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=age)
    symptom = {"symptomType": kind, "createTime": now.strftime("%Y-%m-%dT%H:%M:%SZ")}
    assert node.ran_out_of_memory({"symptoms": [symptom]}) == is_recent
    if is_recent:
        assert "Start again after 90 seconds, with a smaller batch" in problem(symptoms=[symptom])


def test_symptoms_get_times_that_tensorflow_reads():
    times = ["2026-11-23T10:00:00Z", "2026-11-23T10:00:00.25Z", "yesterday", None]
    symptoms = [{"symptomType": "LOW_MEMORY", "createTime": time} for time in times]
    valid = node.with_valid_symptoms({"state": "READY", "symptoms": symptoms})["symptoms"]
    assert [symptom["createTime"] for symptom in valid] == [
        "2026-11-23T10:00:00.0Z",
        "2026-11-23T10:00:00.25Z",
    ]


def test_endpoints_of_all_workers():
    found = [{"ipAddress": f"10.0.0.{i}", "port": 8470} for i in range(4)]
    expected = [(f"10.0.0.{i}", 8470) for i in range(4)]
    assert node.endpoints(PLACE, {"networkEndpoints": found}) == expected


def test_endpoint_in_the_older_fields():
    assert node.endpoints(PLACE, {"ipAddress": "10.0.0.2", "port": "8470"}) == [("10.0.0.2", 8470)]


@pytest.mark.parametrize("found", [None, []])
def test_missing_endpoints_may_come_later(found):
    with pytest.raises(node.NotReadyError, match=r"gives no network endpoint\. Wait .* describe"):
        node.endpoints(PLACE, {"networkEndpoints": found})


@pytest.mark.parametrize(
    "found",
    [
        [{"ipAddress": "10.0.0.2"}],
        [{"ipAddress": "10.0.0.2", "port": 0}],
        [{"ipAddress": "10.0.0.2", "port": 65536}],
        [{"ipAddress": "evil.example/x", "port": 8470}],
        [{"port": 8470}],
        ["10.0.0.2:8470"],
        {"ipAddress": "10.0.0.2", "port": 8470},
        7,
    ],
)
def test_invalid_endpoints_raise(found):
    with pytest.raises(TPUError, match=r"gives an invalid network endpoint: .*describe"):
        node.endpoints(PLACE, {"networkEndpoints": found})


def findings(wanted="", **fields):
    expected = topology.find(wanted) if wanted else None
    return node.check_hardware(PLACE, fields, expected)


@pytest.mark.parametrize("kind", ["v5litepod-8", "v5p-8", "v6e-4", "v5lite-podslice-16", "v10-8"])
def test_later_generations_need_pjrt_whatever_their_image(kind):
    (finding,) = findings(acceleratorType=kind, tensorflowVersion="v2-alpha-tpuv5-lite")
    assert finding == f"--tpu=mine is a {kind}: {topology.ONLY_PJRT}"


@pytest.mark.parametrize(
    ("kind", "wanted", "is_same"),
    [
        ("v3-8", "v3-8", True),
        ("v3-8", "v2-8", False),
        ("v3-32", "v3-8", False),
        ("v3-8", "1x8", True),  # compared with the workers later
        ("v4-24", "v3-8", False),  # a slice that only the API knows
        ("", "v3-8", True),
        ("v3-8", "", True),
    ],
)
def test_tpu_topology_must_be_that_of_the_node(kind, wanted, is_same):
    found = findings(wanted, acceleratorType=kind)
    expected = (
        f"--tpu_topology={wanted}, but --tpu=mine is a {kind}. Set the slice of the TPU, or remove "
        "it"
    )
    assert found == ([] if is_same else [expected])


@pytest.mark.parametrize(
    "runtime", ["2.15.1", "2.15.0", "tpu-vm-tf-2.15.1-se", "tpu-vm-tf-2.15.0-pod-se", ""]
)
def test_runtimes_of_tensorflow_2_15(runtime):
    assert not findings(tensorflowVersion=runtime)


@pytest.mark.parametrize(
    ("runtime", "reason"),
    [
        ("tpu-vm-tf-2.15.1-pjrt", "is a PJRT runtime"),
        ("tpu-vm-tf-2.15.1-pod-pjrt", "is a PJRT runtime"),
        ("tpu-vm-tf-2.13.1", "is not that of TensorFlow 2.15"),
        ("tpu-vm-tf-2.16.1-se", "is not that of TensorFlow 2.15"),
        ("1.15.5", "is not that of TensorFlow 2.15"),
        ("nightly", "is not that of TensorFlow 2.15"),
        ("tpu-ubuntu2204-base", "is not that of TensorFlow 2.15"),
        ("v2-alpha-tpuv5-lite", "is not that of TensorFlow 2.15"),
    ],
)
def test_other_runtimes_cannot_run_tpuestimator(runtime, reason):
    (finding,) = findings(tensorflowVersion=runtime)
    assert finding.startswith(f"the runtime {runtime} of --tpu=mine {reason}")
    assert "--version=tpu-vm-tf-2.15.1-se" in finding
