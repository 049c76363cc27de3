"""tools/local_pods.py: the pods of a manifest as processes, restarted like pods."""

import json
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

from tools import job_manifest, local_pods
from tools.manifests import program, request
from tools.manifests.flags import FLAGS

ROOT = pathlib.Path(__file__).parents[2]
IMAGE = "us-docker.pkg.dev/project/images/models:1"


def make(kind, *options, arguments):
    """Returns the documents of a manifest."""
    FLAGS.unparse_flags()
    FLAGS(["job_manifest.py", f"--kind={kind}", "--name=x", f"--image={IMAGE}", *options])
    wanted = request.from_flags(FLAGS, arguments, program.ProgramFlags())
    return job_manifest.documents(wanted)


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A) and $(A)", "1 and 1"),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$A $ (A)", "$A $ (A)"),
        ("$(A", "$(A"),
    ],
)
def test_references_are_expanded_as_in_kubernetes(text, expanded):
    assert local_pods.expand(text, {"A": "1"}) == expanded


def test_a_variable_refers_to_earlier_ones_only():
    variables = [
        {"name": "EARLY", "value": "$(LATE)"},
        {"name": "LATE", "value": "2"},
        {"name": "SUM", "value": "$(EARLY)+$(LATE)"},
    ]
    assert local_pods.expand_env(variables, 0)["SUM"] == "$(LATE)+2"


@pytest.fixture
def run_script(tmp_path):
    """Runs the pods of a cluster whose program is a script; returns the status and the pods."""

    def run(kind, script, *options):
        (tmp_path / "program.py").write_text(script)
        documents = make(
            kind, "--workers=1", f"--program={tmp_path}/program.py", *options, arguments=[]
        )
        pods = local_pods.LocalPods(documents, tmp_path / "logs", {})
        return pods.run(poll_seconds=0.01), pods

    return run


# Fails in the worker's first runs, and waits a little in the others.
FAIL = """
import json, os, pathlib, sys, time
task = json.loads(os.environ["TF_CONFIG"])["task"]["type"]
path = pathlib.Path(__file__).with_name(task)
runs = len(path.read_text()) if path.exists() else 0
path.write_text("." * (runs + 1))
time.sleep(0.1)
sys.exit(STATUS if task == "worker" and runs < TIMES else 0)
"""


@pytest.mark.parametrize(
    ("status", "times", "options", "end", "runs"),
    [
        (1, 2, ["--ps=1", "--max_restarts=2"], 0, 3),
        (1, 2, ["--ps=1", "--max_restarts=1"], 1, 2),
        (2, 1, ["--ps=1", "--max_restarts=2"], 2, 1),  # invalid flags
        (143, 3, ["--ps=1", "--max_restarts=0"], 0, 4),  # preemption
        (143, 2, ["--max_restarts=1"], 143, 2),  # a synchronous cluster counts preemptions, too
    ],
)
def test_restarts_of_a_job_set(run_script, tmp_path, status, times, options, end, runs):
    script = FAIL.replace("STATUS", str(status)).replace("TIMES", str(times))
    assert run_script("jobset", script, *options)[0] == end
    assert len((tmp_path / "worker").read_text()) == runs


def test_a_synchronous_cluster_restarts_all_pods(run_script, tmp_path):
    script = FAIL.replace("STATUS", "1").replace("TIMES", "1")
    assert run_script("jobset", script)[0] == 0
    assert len((tmp_path / "chief").read_text()) == 2


def test_a_tfjob_restarts_pods_with_a_status_from_128_on(run_script, tmp_path):
    script = FAIL.replace("STATUS", "143").replace("TIMES", "1")
    assert run_script("tfjob", script, "--ps=1")[0] == 0
    (tmp_path / "worker").unlink()
    script = FAIL.replace("STATUS", "1").replace("TIMES", "1")
    assert run_script("tfjob", script, "--ps=1")[0] == 1


def test_a_host_name_without_a_pod_is_an_error(tmp_path):
    service, *jobs = make("indexed_jobs", "--workers=1", "--ps=1", arguments=[])
    with pytest.raises(ValueError, match=r"no pod of the manifest has the host name x-ps-0\.x"):
        local_pods.LocalPods([service, *jobs[:2]], tmp_path, {})


@pytest.fixture
def documents(tiny_flags):
    """Builds the manifest of a cluster: `documents("jobset", num_ps=1, arguments=[...])`."""
    steps = ["--train_steps=2000", "--save_checkpoints_steps=500", "--eval_timeout_secs=600"]

    def build(kind, num_ps, arguments=()):
        options = ["--workers=1", f"--ps={num_ps}", "--volume=claim:/runs"]
        arguments = [*tiny_flags, "--model_dir=/runs/model", *steps, *arguments]
        return make(kind, *options, arguments=arguments)

    return build


@pytest.fixture
def require_trained(tmp_path, variables, result):
    """Requires that the cluster has trained to the end and that the evaluator saw it."""

    def require():
        step = int(variables(tmp_path / "model")["global_step"])
        assert step >= 2000
        evaluated = result(tmp_path / "model", step)["eval"]
        assert evaluated["examples"] == 41
        assert evaluated["accuracy"] > 0.9

    return require


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "num_ps", "arguments"),
    [
        ("indexed_jobs", 1, []),
        ("jobset", 1, []),
        ("tfjob", 1, []),
        ("jobset", 0, ["--strategy=multi_worker_mirrored", "--train_batch_size=14"]),
    ],
)
def test_a_cluster_trains_to_the_end_after_its_worker_is_killed(
    documents, require_trained, kind, num_ps, arguments, tmp_path
):
    manifest = documents(kind, num_ps, arguments)
    pods = local_pods.LocalPods(manifest, tmp_path / "logs", {"/runs": tmp_path})
    (worker,) = (name for name in pods.names if "worker" in name)
    killed = []

    def kill_in_training():
        while not list((tmp_path / "model").glob("model.ckpt-*.index")):
            time.sleep(0.05)
        killed.append(pods.processes[worker])
        killed[0].send_signal(signal.SIGKILL)

    threading.Thread(target=kill_in_training, daemon=True).start()
    assert pods.run() == 0
    assert killed[0].returncode == -signal.SIGKILL
    assert pods.processes[worker].returncode == 0
    require_trained()


@pytest.mark.slow
def test_pods_find_each_other_by_name_when_addresses_change(documents, require_trained, tmp_path):
    in_namespaces = ["unshare", "--net", "--mount"]
    if shutil.which("ip") is None or subprocess.run([*in_namespaces, "true"]).returncode:
        pytest.skip("needs Linux, iproute2 and root for network namespaces")
    (tmp_path / "manifest.json").write_text(json.dumps(documents("jobset", num_ps=1)))
    command = [sys.executable, "-m", "tests.pod_network", str(tmp_path / "manifest.json")]
    ended = subprocess.run(
        [*in_namespaces, *command, str(tmp_path)], capture_output=True, text=True, cwd=ROOT
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("exited with status 137: restarting it") == 1
    require_trained()
