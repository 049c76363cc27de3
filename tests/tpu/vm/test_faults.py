"""Faults: commands in two terminals, lost connections, odd logs, arguments and clocks."""

import sys
import time

import pytest

from tests.tpu.vm.fake_cloud import CAPACITY
from tpu.vm import command_line, nodes, settings


def during(monkeypatch, action):
    """Calls a function, as of another terminal, in the first sleep."""
    sleep, actions = time.sleep, [action]

    def act(seconds):
        if actions:
            actions.pop()()
        sleep(seconds)

    monkeypatch.setattr("time.sleep", act)


def names(cloud):
    """Returns the names of the nodes that exist."""
    with cloud.state() as state:
        return list(state["nodes"])


@pytest.fixture
def preempted(ready, cloud):
    """`ready` after a preemption of a program that runs."""
    ready("run", "--detach", "--", "sleep", "60")
    cloud.preempt("my-tpu")
    return ready


def test_down_in_another_terminal_ends_watch_without_a_new_vm(ready, cloud, monkeypatch):
    ready("run", "--detach", "--", "sleep", "60")
    during(monkeypatch, lambda: command_line.main(["down", "--yes", "--now"]))
    status, _, err = ready("watch")
    assert status == 2
    assert "was deleted by another command, and is not created again" in err
    assert not names(cloud)
    assert settings.load("my-tpu") is None


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda vm: setattr(vm, "deleting", True), "was deleted by tpu_vm down"),
        (lambda vm: setattr(vm.job, "stopped", True), "the program was stopped"),
        (lambda vm: setattr(vm.job, "id", "other"), "another program was started"),
    ],
)
def test_other_terminal_while_a_vm_is_created_again(
    preempted, cloud, monkeypatch, change, expected
):
    cloud.plan("create", CAPACITY)

    def between_two_attempts():
        vm = settings.load("my-tpu")
        change(vm)
        settings.save(vm)

    during(monkeypatch, between_two_attempts)
    status, _, err = preempted("watch")
    assert status == 2
    assert expected in err
    assert not names(cloud)


def test_vm_that_was_created_while_down_ran_is_deleted(preempted, cloud, monkeypatch):
    create = nodes.Nodes.create

    def create_while_down_runs(self):
        create(self)
        settings.remove(self.vm)

    monkeypatch.setattr("tpu.vm.nodes.Nodes.create", create_while_down_runs)
    assert "was deleted by tpu_vm down" in preempted("watch")[2]
    assert not names(cloud)


def test_vm_that_someone_deleted_is_not_created_again(preempted, cloud):
    cloud.delete("my-tpu")
    assert "was deleted by another command" in preempted("watch")[2]
    assert not names(cloud)


def test_only_one_watch_creates_the_vm_again(preempted, cloud, monkeypatch):
    with settings.lock("my-tpu"):
        monkeypatch.setattr("time.sleep", lambda seconds: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            preempted("watch")
    assert "create" not in [call[3] for call in cloud.calls]


def test_watch_keeps_what_other_commands_recorded(ready, monkeypatch):
    ready("run", "--detach", "--", "sleep", "0.3")

    def push():
        vm = settings.load("my-tpu")
        vm.push.commit = "another"
        settings.save(vm)

    during(monkeypatch, push)
    ready("watch", "--price_per_hour=8")
    vm = settings.load("my-tpu")
    assert (vm.push.commit, vm.price_per_hour) == ("another", 8)


def test_preempted_while_it_is_repaired(ready, cloud, tmp_path):
    path = tmp_path / "steps"
    ready("run", "--detach", "--", sys.executable, "program.py", str(path), "20")
    cloud.preempt("my-tpu")
    cloud.set_state("my-tpu", "REPAIRING")
    cloud.plan("boot", "REPAIRING", "PREEMPTED")
    assert ready("watch")[0] == 0
    assert path.read_text() == "20"


def test_setup_that_fails_on_a_new_vm_is_given_up(preempted):
    vm = settings.load("my-tpu")
    vm.push.setup = "echo no wheel; exit 1"
    settings.save(vm)
    status, out, err = preempted("watch", "--poll_seconds=0.01")
    assert status == 2
    assert out.count("my-tpu: no wheel. Next attempt") == 4
    assert err.endswith(": my-tpu: no wheel. Not resumed. The VM costs money until: tpu_vm down\n")


def test_up_waits_for_a_queued_resource_that_exists(tpu_vm, cloud):
    cloud.create_queued("my-tpu", {"acceleratorType": "v3-8"})
    assert tpu_vm("up", "--name=my-tpu", "--queued")[0] == 0
    assert "create" not in [call[3] for call in cloud.calls]


def test_down_of_a_queued_resource_of_another_machine(tpu_vm, cloud):
    cloud.create_queued("my-tpu", {"acceleratorType": "v3-8"})
    assert tpu_vm("down", "--name=my-tpu", "--yes")[0] == 0
    with cloud.state() as state:
        assert not state["queue"]


def test_up_finds_a_vm_of_another_type(tpu_vm, cloud):
    cloud.create("my-tpu", {"acceleratorType": "v2-8"})
    assert (
        "my-tpu exists with another type: 'v2-8', not --type=v3-8"
        in (tpu_vm("up", "--name=my-tpu")[2])
    )
    assert settings.load("my-tpu") is None


def test_up_with_other_flags_after_an_error_of_quota(tpu_vm, cloud):
    cloud.plan("create", CAPACITY)
    assert tpu_vm("up", "--name=my-tpu")[0] == 2
    assert tpu_vm("up", "--name=my-tpu", "--spot")[0] == 0


def test_ctrl_c_in_up_leaves_a_record_for_down(tpu_vm, cloud, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    cloud.plan("boot", "CREATING", "CREATING")
    with monkeypatch.context() as patch:
        patch.setattr("time.sleep", interrupt)
        status, _, err = tpu_vm("up", "--name=my-tpu")
    assert (status, err) == (
        130,
        "\ninterrupted. A VM that was requested costs money until: tpu_vm down\n",
    )
    assert tpu_vm("down", "--yes")[0] == 0
    assert not names(cloud)


def test_network_that_fails_while_up_waits(tpu_vm, cloud):
    cloud.plan("boot", "CREATING")
    cloud.plan("describe", None, (503, "UNAVAILABLE", "The service is unavailable"))
    status, out, _ = tpu_vm("up", "--name=my-tpu")
    assert status == 0
    assert "The service is unavailable. Check the network of this machine" in out


def test_log_is_printed_byte_by_byte_as_it_was_written(ready, tmp_path, monkeypatch):
    monkeypatch.setattr("tpu.vm.remote._MAX_LOG_BYTES", 25)
    text = "ä€\r100 %\n\ntpu_vm exit status 1\ntpu_vm begin\nno newline"
    (tmp_path / "text").write_text(text, newline="")
    status, out, _ = ready("run", "--", "cat", str(tmp_path / "text"))
    assert status == 0
    expected = f"{text}\nmy-tpu: the program ended with status 0\n"
    assert out.partition("connection\n")[2] == expected


def test_program_gets_its_arguments_unchanged(ready, tmp_path):
    arguments = ["", "a b", "it's", '"', "$HOME", "*", "--name=x", "line\nline", "€", "  ", ";"]
    script = f"import sys; open(r'{tmp_path}/args', 'w').write(repr(sys.argv[1:]))"
    assert ready("run", "--", sys.executable, "-c", script, *arguments)[0] == 0
    assert (tmp_path / "args").read_text() == repr(arguments)


def test_script_that_gcloud_runs_again_after_a_lost_connection(ready, cloud, tmp_path):
    cloud.plan("again", "ssh: connection lost")
    status, _, _ = ready("run", "--", "sh", "-c", f"echo run >> {tmp_path}/runs")
    assert status == 0
    assert (tmp_path / "runs").read_text() == "run\n"


def test_output_of_a_lost_connection_does_not_count(ready, cloud):
    ready("run", "--detach", "--", "echo", "once")
    cloud.plan("again", "ssh: connection lost")
    assert ready("watch")[1].count("once") == 1


def test_process_that_a_program_leaves_behind_does_not_block_the_next_one(ready):
    leave = "setsid sleep 60 > /dev/null 2>&1 & exit 0"
    assert ready("run", "--", "sh", "-c", leave)[0] == 0
    assert ready("run", "--", "true")[0] == 0


def test_stop_between_two_restarts(ready, cloud, tmp_path):
    script = f"echo run >> {tmp_path}/runs; exit 1"
    ready("run", "--detach", "--max_restarts=9", "--", "sh", "-c", script)
    log = cloud.home("my-tpu") / "tpu_job/log"
    while "restarts left" not in log.read_text():
        time.sleep(0.01)
    assert ready("stop")[0] == 1
    assert (tmp_path / "runs").read_text() == "run\n"


def test_down_deletes_a_vm_whose_program_cannot_be_stopped(ready, cloud):
    ready("run", "--detach", "--", "sleep", "60")
    (cloud.home("my-tpu") / "tpu_job/pid").write_text("none")
    status, out, _ = ready("down", "--yes")
    assert status == 0
    assert "Deleting it without waiting for the program" in out
    assert not names(cloud)


def test_cost_counts_from_the_creation_of_the_vm(ready, cloud):
    created = time.strftime("%Y-%m-%dT%H:%M:%S.123456789Z", time.gmtime(time.time() - 7200))
    cloud.set_state("my-tpu", "READY", createTime=created)
    vm = settings.load("my-tpu")
    vm.ready_times = []
    settings.save(vm)
    assert "READY for 2.00 h" in ready("status")[1]


def test_clock_that_goes_backwards_costs_nothing():
    vm = settings.Vm("a", "b", "c", "v3-8", "d", ready_times=[[100.0, 50.0], [200.0, None]])
    assert vm.hours(now=150.0) == 0
