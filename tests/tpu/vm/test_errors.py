"""Errors of gcloud, git, flags and states, each as one line with what to do."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

from tests.marks import slow
from tests.tpu.vm.fake_cloud import CAPACITY, DENIED, DISABLED, QUOTA
from tpu.vm import code, command_line

UP = ("up", "--name=my-tpu", "--zone=us-central1-a", "--project=my-project")


def error(result):
    """Returns the only line that a command printed to standard error."""
    status, _, err = result
    assert status == 2
    assert err.count("\n") == 1, err
    return err


@pytest.mark.parametrize(
    ("planned", "expected"),
    [
        (QUOTA, "Limit: 8 in zone us-central1-a. Request more quota"),
        (CAPACITY, "Wait for capacity with --queued"),
        (DENIED, "Ask for the roles TPU Admin"),
        (DISABLED, "Run: gcloud services enable tpu.googleapis.com"),
        ((401, "UNAUTHENTICATED", "Request had invalid credentials"), "gcloud auth login"),
        ((400, "INVALID_ARGUMENT", "Accelerator type 'v4-8' not found"), "accelerator-types list"),
        ((409, "ALREADY_EXISTS", "Resource already exists"), "Use another --name"),
        ((503, "UNAVAILABLE", "The service is unavailable"), "Check the network"),
        ((500, "INTERNAL", "a\tb\x1b[31m"), "failed: INTERNAL: ab[31m\n"),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else None,
)
def test_error_of_the_api_is_one_line_with_advice(tpu_vm, cloud, planned, expected):
    cloud.plan("create", planned)
    message = error(tpu_vm(*UP))
    assert message.startswith("tpu_vm up: gcloud compute tpus tpu-vm create my-tpu failed: ")
    assert expected in message


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--name=My_TPU"], "--name='My_TPU' is invalid. Use lowercase letters"),
        (["--name=a/../b"], "--name='a/../b' is invalid"),
        (["--name=-a"], "--name='-a' is invalid"),
        (["--zone=europe"], "--zone=europe is invalid. Use a value such as --zone=us-central1-a"),
        (["--project=My Project"], "--project=My Project is invalid"),
        (["--type=v5p-9"], "unknown TPU slice 'v5p-9'. Valid: v5p-8, v5p-16"),
        (
            ["--type=v6e-8", "--version=tpu-vm-tf-2.15.1-pjrt"],
            "is not an image for JAX on a v6e-8. Use --version=v2-alpha-tpuv6e",
        ),
        (["--type=v3-9"], "unknown TPU slice 'v3-9'"),
        (["--type=2x4"], "--type=2x4 is a slice of the emulator"),
        (["--version=tpu-vm-tf-2.16.1-se"], "TensorFlow 2.16 and later lack Estimator"),
        (["--version=tpu-vm-tf-2.15.1-pjrt"], "TPUEstimator needs the stream executor runtime"),
        (["--version=tpu-vm-tf-2.15.1"], "TPUEstimator needs the stream executor runtime"),
        (["--version=tpu-ubuntu2204-base"], "is not a TensorFlow image of TPU VMs"),
        (["--version=tpu-vm-tf-2.15.1-pod-se"], "does not fit v3-8 with 1 host"),
        (["--type=v3-32", "--version=tpu-vm-tf-2.15.1-se"], "does not fit v3-32 with 4 hosts"),
        (["--spot", "--preemptible"], "--spot and --preemptible exclude each other"),
        (["--queued", "--preemptible"], "--queued does not support --preemptible. Use --spot"),
        (["--startup_script=missing.sh"], "missing.sh is not a file"),
        (["--service_account=me"], "--service_account=me is invalid"),
        (["--network=--quiet"], "--network=--quiet is invalid"),
        (["--price_per_hour=-1"], "--price_per_hour=-1.0 is not a number of at least 0"),
        (["--price_per_hour=nan"], "--price_per_hour=nan is not a number"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_invalid_flags_are_reported_before_gcloud_is_called(tpu_vm, cloud, arguments, expected):
    assert expected in error(tpu_vm(*UP, *arguments))
    assert not [call for call in cloud.calls if "tpus" in call]
    assert not pathlib.Path(".tpu_vm").exists()


@pytest.mark.parametrize(
    ("slice_name", "version"),
    [
        ("v2-8", "tpu-vm-tf-2.15.1-se"),
        ("v3-32", "tpu-vm-tf-2.15.1-pod-se"),
        ("v5litepod-8", "v2-alpha-tpuv5-lite"),
        ("v5p-16", "v2-alpha-tpuv5"),
        ("v6e-8", "v2-alpha-tpuv6e"),
    ],
)
def test_version_follows_from_the_type(tpu_vm, slice_name, version):
    _, out, _ = tpu_vm(*UP, f"--type={slice_name}", "--dry_run")
    assert f"--accelerator-type={slice_name} " in out
    assert f"--version={version} " in out


def test_cloud_gets_its_own_name_of_a_v5e(tpu_vm):
    _, out, _ = tpu_vm(*UP, "--type=v5e-16", "--dry_run")
    assert "--accelerator-type=v5litepod-16 " in out


@pytest.mark.parametrize(
    ("arguments", "zone", "note"),
    [
        (["--type=v3-8"], "us-central1-a", ""),  # gcloud's zone
        (
            ["--type=v4-16"],
            "us-central2-b",
            "gcloud's zone us-central1-a does not offer v4-16; using us-central2-b (others: none)",
        ),
        (
            ["--type=v3-32", "--zone=us-east1-d"],
            "us-east1-d",
            "zone us-east1-d may not offer v3-32, as these do: europe-west4-a",
        ),
    ],
)
def test_zone_follows_from_the_type(tpu_vm, arguments, zone, note):
    _, out, err = tpu_vm("up", "--name=my-tpu", "--dry_run", *arguments)
    assert f"--zone={zone} " in out
    assert err == (f"my-tpu: {note}\n" if note else "")


def test_older_image_is_accepted(tpu_vm):
    assert tpu_vm(*UP, "--version=tpu-vm-tf-2.12.0", "--dry_run")[0] == 0


def test_missing_gcloud(processes, tpu_vm, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    assert error(tpu_vm(*UP)) == (
        "tpu_vm up: gcloud is not installed. Install the Google Cloud CLI: "
        "https://cloud.google.com/sdk/docs/install\n"
    )


def test_stopped_vm(ready, cloud):
    cloud.set_state("my-tpu", "STOPPED")
    assert "Start it: gcloud compute tpus tpu-vm start my-tpu" in error(ready("up"))


def test_unhealthy_vm_is_waited_for(ready, cloud):
    unhealthy = {"health": "UNHEALTHY_MAINTENANCE", "healthDescription": "hot"}
    cloud.plan("health", unhealthy, unhealthy)
    status, out, _ = ready("up")
    assert status == 0
    assert out.splitlines() == ["my-tpu: READY hot", "my-tpu: READY: v3-8 in us-central1-a"]


def test_preempted_before_it_was_ready(tpu_vm, cloud):
    cloud.plan("boot", "PREEMPTED")
    assert "my-tpu is PREEMPTED before it was READY" in error(tpu_vm(*UP))


def test_failing_setup_prints_its_last_line(tpu_vm):
    tpu_vm(*UP)
    message = error(tpu_vm("push", "--setup=echo first; echo no such package; exit 1"))
    assert message == "tpu_vm push: my-tpu: no such package\n"


def test_push_outside_of_a_repository(tpu_vm, tmp_path, monkeypatch):
    tpu_vm(*UP)
    (tmp_path / "other").mkdir()
    message = error(tpu_vm("push", f"--code={tmp_path / 'other'}"))
    assert "is not a git repository with a commit. Run git init" in message


def test_push_takes_changes_and_names_untracked_files(tpu_vm, cloud, project):
    tpu_vm(*UP)
    (project / "program.py").write_text("changed = True\n")
    (project / "new.py").write_text("")
    status, out, _ = tpu_vm("push", "--setup=")
    assert status == 0
    assert (
        "with uncommitted changes\nmy-tpu: not copied, because untracked (git add): new.py" in out
    )
    assert (cloud.home("my-tpu") / "tpu_code/program.py").read_text() == "changed = True\n"
    assert (project / "program.py").read_text() == "changed = True\n"  # unchanged here
    log = ["git", "-C", str(cloud.home("my-tpu") / "tpu_code"), "log", "--format=%s"]
    assert subprocess.check_output(log, text=True).startswith("Pushed by tpu_vm from ")


def test_push_names_submodules_and_git_lfs_files(tpu_vm, project):
    tpu_vm(*UP)
    (project / ".gitattributes").write_text("*.bin filter=lfs\n")
    (project / "weights.bin").write_text("oid sha256:0")
    subprocess.run(["git", "add", ".gitattributes", "weights.bin"], check=True)
    entry = ["--cacheinfo", f"160000,{'1' * 40},part"]
    subprocess.run(["git", "update-index", "--add", *entry], check=True)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@localhost"]
    subprocess.run([*git, "commit", "-qm", "second"], check=True)
    (project / "part").mkdir()
    out = tpu_vm("push")[1]
    assert "not copied, because submodules (push their files with a bucket): part\n" in out
    assert "not copied, because Git LFS (only its pointers; use a bucket): weights.bin\n" in out


def test_default_setup_keeps_the_tensorflow_of_the_image(tmp_path, monkeypatch):
    (tmp_path / "requirements.txt").write_text("tensorflow==1.0\n")
    (tmp_path / "python3").write_text(
        "#!/bin/sh\n[ $3 != list ] || echo tensorflow==2.15.1\necho $@ >> ~/calls\n"
    )
    (tmp_path / "python3").chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    subprocess.run(code.default_setup(str(tmp_path)), shell=True, check=True)
    assert (tmp_path / "tpu_constraints.txt").read_text() == (
        "tensorflow==2.15.1\ntensorflow-cpu==0\ntensorflow-gpu==0\ntf-nightly==0\n"
    )
    assert (tmp_path / "calls").read_text().splitlines()[-1] == (
        f"-m pip install --user --constraint {tmp_path}/tpu_constraints.txt "
        "--requirement requirements.txt tensorflow"
    )


def test_push_of_a_folder_of_a_repository(tpu_vm, cloud, project):
    (project / "part").mkdir()
    (project / "part/inner.py").write_text("")
    subprocess.run(["git", "add", "part"], check=True)
    tpu_vm(*UP)
    assert tpu_vm("push", "--code=part")[0] == 0
    assert [path.name for path in (cloud.home("my-tpu") / "tpu_code").glob("*.py")] == ["inner.py"]


def test_push_copies_data_to_a_bucket(tpu_vm, cloud, tmp_path):
    tpu_vm(*UP)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.tfrecord").write_text("a")
    arguments = ("push", "--nocode", f"--data={tmp_path / 'data'}", "--bucket=gs://b-1/data")
    assert tpu_vm(*arguments)[0] == 0
    assert (cloud.folder / "buckets/b-1/data/a.tfrecord").read_text() == "a"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--data=."], "--data and --bucket belong together"),
        (["--data=missing", "--bucket=gs://b-1"], "--data=missing is not a folder"),
        (["--data=.", "--bucket=b-1"], "--bucket=b-1 is invalid. Use gs://BUCKET/FOLDER"),
    ],
)
def test_invalid_data(ready, arguments, expected):
    assert expected in error(ready("push", *arguments))


def test_second_program_is_refused(ready, cloud):
    ready("run", "--detach", "--", "sleep", "60")
    assert "a program is running. Stop it: tpu_vm stop" in error(ready("run", "--", "true"))
    assert "runs a program. Stop it first" in error(ready("push"))


def test_run_needs_code_and_a_program(tpu_vm):
    tpu_vm(*UP)
    assert "no program. Append it" in error(tpu_vm("run"))
    assert "my-tpu has no code. Copy it: tpu_vm push" in error(tpu_vm("run", "--", "true"))
    assert "no program was started on my-tpu" in error(tpu_vm("watch"))
    assert "no program is running" in error(tpu_vm("stop"))


@pytest.mark.parametrize("command", ["run", slow("push"), slow("logs"), slow("stop")])
def test_preempted_vm_is_reported_at_once(ready, cloud, command):
    cloud.preempt("my-tpu")
    extra = ["--", "true"] if command == "run" else []
    assert error(ready(command, *extra)).endswith(": my-tpu is PREEMPTED. Run: tpu_vm up\n")


def test_down_needs_a_confirmation(ready, cloud, monkeypatch):
    assert "this deletes my-tpu. Confirm it with --yes" in error(ready("down"))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    for answer in ("", "n", "yn"):
        monkeypatch.setattr("builtins.input", lambda text, answer=answer: answer)
        assert ready("down")[:2] == (1, "not deleted\n")
    monkeypatch.setattr("builtins.input", lambda text: "y")
    assert ready("down")[0] == 0


def test_down_of_a_vm_that_is_gone(ready, cloud):
    cloud.delete("my-tpu")
    status, out, _ = ready("down", "--yes")
    assert status == 0
    assert out.startswith("my-tpu: deleted; READY for")


def test_name_is_needed_only_for_several_vms(ready):
    shutil.copy(".tpu_vm/my-tpu.json", ".tpu_vm/other.json")
    assert "--name is missing. Recorded in .tpu_vm: my-tpu, other" in error(ready("status"))


def test_unknown_vm(tpu_vm):
    assert "--name is missing, and no TPU VM is recorded in" in error(tpu_vm("status"))
    assert "was not found. Check --name, --zone and --project" in error(
        tpu_vm("status", "--name=other")
    )


def test_vm_of_another_machine_is_adopted(ready, cloud):
    for path in pathlib.Path(".tpu_vm").iterdir():
        path.unlink()
    status, out, _ = ready("status", "--name=my-tpu", "--zone=us-central1-a")
    assert status == 0
    assert out.startswith("my-tpu: READY HEALTHY, v3-8 in us-central1-a\n")


def test_flags_that_contradict_the_record(ready):
    message = error(ready("status", "--zone=europe-west4-a"))
    assert "--zone=europe-west4-a contradicts the record of my-tpu: us-central1-a" in message
    assert "--type=v2-8 contradicts the record" in error(ready("up", "--type=v2-8"))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"name": "--x"}', "\0"])
def test_damaged_record(ready, text):
    pathlib.Path(".tpu_vm/my-tpu.json").write_text(text)
    assert "my-tpu.json is damaged" in error(ready("status"))


def test_record_with_a_hostile_value(ready):
    path = pathlib.Path(".tpu_vm/my-tpu.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "zone": "--impersonate=x"}))
    assert "is damaged" in error(ready("status"))


def test_ctrl_c_leaves_the_program_running(ready, cloud, monkeypatch):
    ready("run", "--detach", "--", "sleep", "60")

    def interrupt(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupt)
    status, _, err = ready("watch")
    assert status == 130
    assert "The program continues: tpu_vm watch follows it again" in err
    assert "costs money until: tpu_vm down" in err


@pytest.mark.parametrize("command", ["push", "run", "watch", "logs", "status", "stop", "down"])
def test_dry_run_prints_commands_and_runs_nothing(ready, cloud, capsys, command):
    before = [*cloud.calls]
    extra = ["--", "python", "it's.py"] if command == "run" else []
    assert command_line.main([command, "--dry_run", *extra]) == 0
    lines = capsys.readouterr().out
    assert lines.startswith(("gcloud compute tpus tpu-vm ", "git "))
    assert [call for call in cloud.calls if call not in before] == []


def test_program_flags_are_not_flags_of_tpu_vm(ready, capsys):
    assert ready("run", "--", "echo", "--name=other", "--help", "--")[0] == 0
    with pytest.raises(SystemExit):
        command_line.main(["status", "--", "true"])
    assert "only run takes a program" in capsys.readouterr().err
