"""The life of a training on a fake cloud: up, push, run, preemptions, done, down."""

import pathlib
import subprocess
import sys
import threading
import time
import unittest.mock

import pytest

from tests.marks import slow
from tests.tpu.vm.fake_cloud import CAPACITY, QUOTA


def preempt_at(cloud, path, steps):
    """Preempts my-tpu each time the number in a file reaches one of `steps`."""

    def watch():
        for step in steps:
            while not path.exists() or int(path.read_text()) < step:
                time.sleep(0.01)
            cloud.preempt("my-tpu")

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


@pytest.mark.slow
def test_training_that_is_preempted_twice_ends_as_if_undisturbed(tpu_vm, cloud, tmp_path):
    path = tmp_path / "steps"
    assert tpu_vm("up", "--name=my-tpu", "--spot", "--price_per_hour=3600")[0] == 0
    assert tpu_vm("push")[0] == 0
    cloud.plan("create", QUOTA, CAPACITY)
    thread = preempt_at(cloud, path, (20, 60))
    status, out, _ = tpu_vm("run", "--", sys.executable, "program.py", str(path), "100")
    thread.join()
    assert status == 0
    assert path.read_text() == "100"
    assert out.count(". Resuming, ") == 2
    assert "Quota limit 'TPUV3sPerProjectPerZoneForTPUAPI' has been exceeded" in out
    assert "There is no more capacity in the zone" in out
    starts = [line for line in out.splitlines() if line.startswith("resuming from step")]
    assert starts[0] == "resuming from step 0 local"
    assert int(starts[-1].split()[3]) >= 60
    assert "my-tpu: the program ended with status 0" in out
    status, out, _ = tpu_vm("down", "--yes")
    assert status == 0
    assert "deleted; READY for 0.00 h, about " in out
    with cloud.state() as state:
        assert not state["nodes"]
    assert not list(pathlib.Path(".tpu_vm").glob("my-tpu*"))


def test_every_new_vm_gets_the_code_that_was_pushed(ready, cloud, project, tmp_path):
    path = tmp_path / "steps"
    (project / "program.py").write_text("raise SystemExit('a later version')")
    preempt_at(cloud, path, (5,))
    assert ready("run", "--", sys.executable, "program.py", str(path), "20")[0] == 0
    assert path.read_text() == "20"


def test_run_survives_the_connection_and_watch_follows_it_again(ready, tmp_path):
    path = tmp_path / "steps"
    status, out, _ = ready("run", "--detach", "--", sys.executable, "program.py", str(path), "20")
    assert (status, out) == (0, "my-tpu: started; it survives the connection\n")
    status, out, _ = ready("watch")
    assert status == 0
    assert out.splitlines() == [
        "resuming from step 0 local",
        "done",
        "my-tpu: the program ended with status 0",
    ]


def test_failing_program_is_restarted_on_the_vm(ready, tmp_path):
    script = f"echo run >> {tmp_path}/runs; exit 1"
    status, out, _ = ready("run", "--max_restarts=1", "--", "sh", "-c", script)
    assert status == 1
    assert (tmp_path / "runs").read_text() == "run\nrun\n"
    assert "tpu_vm: the program ended with status 1; restarts left: 0" in out


@pytest.mark.parametrize("number", [slow(0), 2, slow(143)])
def test_final_status_is_not_restarted(ready, tmp_path, number):
    status, _, _ = ready("run", "--", "sh", "-c", f"echo run >> {tmp_path}/runs; exit {number}")
    assert status == number
    assert (tmp_path / "runs").read_text() == "run\n"


def test_stop_sends_sigterm_and_waits(ready, tmp_path):
    script = f"trap 'sleep 0.3; echo saved > {tmp_path}/saved; exit 143' TERM; sleep 60 & wait"
    ready("run", "--detach", "--", "sh", "-c", script)
    status, out, _ = ready("stop")
    assert status == 143
    assert (tmp_path / "saved").read_text() == "saved\n"
    assert out.splitlines()[-1] == "my-tpu: ended with status 143"


def test_down_stops_the_program_first(ready, cloud, tmp_path):
    script = f"trap 'echo saved > {tmp_path}/saved; exit 143' TERM; sleep 60 & wait"
    ready("run", "--detach", "--", "sh", "-c", script)
    assert ready("down", "--yes")[0] == 0
    assert (tmp_path / "saved").exists()
    with cloud.state() as state:
        assert not state["nodes"]


def test_reboot_of_the_vm_starts_the_program_again(ready, cloud, tmp_path):
    path = tmp_path / "steps"
    ready("run", "--detach", "--", sys.executable, "program.py", str(path), "30")
    while not path.exists():
        time.sleep(0.01)
    cloud.kill("my-tpu")
    status, out, _ = ready("watch")
    assert status == 0
    assert "the program ended without a status, as after a restart of the VM" in out
    assert path.read_text() == "30"


def test_limit_of_recreations(ready, cloud):
    ready("run", "--detach", "--max_recreations=0", "--", "sleep", "60")
    cloud.preempt("my-tpu")
    status, _, err = ready("watch")
    assert status == 2
    assert err == (
        "tpu_vm watch: my-tpu: the VM is PREEMPTED. Not resumed: limit of --max_recreations=0. "
        "Resume it: tpu_vm watch\n"
    )


def test_queued_resource_waits_for_capacity(tpu_vm, cloud):
    cloud.plan("queue", "ACCEPTED", "PROVISIONING")
    cloud.plan("boot", "CREATING")
    status, out, _ = tpu_vm("up", "--name=my-tpu", "--queued", "--spot")
    assert status == 0
    assert out.splitlines() == [
        "my-tpu: queued: ACCEPTED",
        "my-tpu: queued: PROVISIONING",
        "my-tpu: queued: ACTIVE",
        "my-tpu: CREATING",
        "my-tpu: READY: v3-8 in us-central1-a",
    ]


def test_suspended_queued_resource_is_requested_again(tpu_vm, cloud, tmp_path):
    path = tmp_path / "steps"
    tpu_vm("up", "--name=my-tpu", "--queued", "--spot")
    tpu_vm("push")
    cloud.plan("queue", "SUSPENDED")  # of the second one, before it has a node
    preempt_at(cloud, path, (5,))
    status, out, _ = tpu_vm("run", "--", sys.executable, "program.py", str(path), "20")
    assert status == 0
    assert "queued resource my-tpu is SUSPENDED" in out
    assert path.read_text() == "20"
    tpu_vm("down", "--yes")
    with cloud.state() as state:
        assert not state["nodes"]
        assert not state["queue"]


def test_slow_ssh_after_ready_is_tried_again(ready, cloud):
    cloud.plan("ssh", *["ssh: connect to host 127.0.0.1 port 22: Connection refused"] * 2)
    status, out, _ = ready("push")
    assert status == 0
    assert "Connection refused. Check that the firewall of the network allows tcp:22" in out


def test_up_is_idempotent(ready, cloud):
    status, out, _ = ready("up")
    assert (status, out) == (0, "my-tpu: READY: v3-8 in us-central1-a\n")
    assert not [call for call in cloud.calls if "create" in call]


def test_up_replaces_a_preempted_vm(ready, cloud):
    cloud.preempt("my-tpu")
    assert ready("up")[0] == 0
    with cloud.state() as state:
        assert state["nodes"]["my-tpu"]["state"] == "READY"


def test_status_prints_cost_and_program(ready, cloud):
    ready("run", "--", "true")
    status, out, _ = ready("status", "--price_per_hour=8")
    assert status == 0
    lines = out.splitlines()
    assert lines[0] == "my-tpu: READY HEALTHY, v3-8 in us-central1-a"
    assert lines[1].startswith("my-tpu: READY for 0.00 h, about 0.0")
    assert lines[1].endswith(" at 8 per hour")
    assert lines[2].startswith("my-tpu: code: commit ")
    assert lines[3].endswith(": ended with status 0: true")


def test_logs_prints_the_end(ready, capsys, tmp_path):
    ready("run", "--", "sh", "-c", "seq 9")
    with open(tmp_path / "out", "w+") as out, unittest.mock.patch("subprocess.call") as call:
        ready("logs", "--lines=2")
        subprocess.run(*call.call_args.args, stdout=out, check=True)
        out.seek(0)
        assert out.read() == "8\n9\n"


def test_gcloud_is_a_process(processes, tpu_vm, cloud):
    assert tpu_vm("up", "--name=my-tpu")[0] == 0
    assert tpu_vm("down", "--yes")[0] == 0
    verbs = [call[3] for call in cloud.calls if call[:2] == ["compute", "tpus"]]
    assert [verb for verb in verbs if verb in ("create", "delete")] == ["create", "delete"]
