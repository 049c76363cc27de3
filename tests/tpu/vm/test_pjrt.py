"""TPU v5e, v5p and v6e: JAX in its own environment, the program on all hosts of a slice."""

import subprocess
import time

import pytest

# Stands for Python: `-m venv FOLDER` makes an environment, all else is recorded.
_PYTHON = """#!/bin/sh
echo "$@" >> "$HOME/python.log"
[ "$2" != venv ] || { mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; }
"""


@pytest.fixture
def pushed(tpu_vm, cloud, project, tmp_path):
    """A function that creates my-tpu of a type and pushes to it; returns what push prints."""
    script = tmp_path / "bin" / "python3"
    script.write_text(_PYTHON)
    script.chmod(0o755)

    def push(kind, *arguments):
        zone = "--zone=us-central1-a"
        assert tpu_vm("up", "--name=my-tpu", f"--type={kind}", zone)[0] == 0
        status, out, err = tpu_vm("push", *arguments)
        assert (status, err) == (0, "")
        return out

    return push


def test_push_installs_jax_and_prints_how_to_run(pushed, cloud):
    out = pushed("v6e-8")
    installed = (cloud.home("my-tpu") / "python.log").read_text().splitlines()
    assert installed == [f"-m venv {cloud.home('my-tpu')}/pjrt", "-m pip install --quiet jax[tpu]"]
    assert "my-tpu: installing JAX for TPUs in ~/pjrt" in out
    assert "tpu_vm run -- python run_tpu.py --tpu=pjrt --pjrt_python=../pjrt/bin/python" in out
    assert "tpu_vm run -- python -m tpu run --pjrt_python=../pjrt/bin/python PROGRAM" in out


@pytest.mark.parametrize(
    ("file", "setup"),
    [
        ("requirements.txt", "python3 -m pip install --user --requirement requirements.txt"),
        ("tools/setup.sh", "tools/setup.sh cpu"),
    ],
)
def test_tensorflow_of_pypi_is_installed(pushed, project, file, setup):
    """The images have none, and that of a TPU VM would take the TPU from JAX."""
    for name in (file, *(["requirements/system.txt"] if "/" in file else [])):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text("#!/bin/sh\n")
        (project / name).chmod(0o755)
    subprocess.run(["git", "add", "--all"], cwd=project, check=True)
    assert f"my-tpu: installing: {setup}\n" in pushed("v5p-8")


def test_a_program_runs_on_all_hosts_of_a_slice(pushed, tpu_vm, cloud):
    pushed("v5litepod-16")
    script = "echo $HOME; pwd; ls program.py ../pjrt/bin/python; env | grep -c ^TPU_NAME"
    status, out, _ = tpu_vm("run", "--", "sh", "-c", f"{script}; exit 0")
    assert status == 0
    homes = [cloud.home("my-tpu", worker) for worker in range(4)]
    logs = [(home / "tpu_job" / "log").read_text().splitlines() for home in homes]
    for home, log in zip(homes, logs):
        files = ["../pjrt/bin/python", "program.py", "0"]
        assert log == [str(home), f"{home}/tpu_code", *files]
    assert out.splitlines()[1:-1] == logs[0]


def test_stop_reaches_all_hosts(pushed, tpu_vm, cloud):
    pushed("v5litepod-16")
    script = "trap 'echo saved > ~/saved; exit 143' TERM; sleep 60 & wait"
    assert tpu_vm("run", "--detach", "--", "sh", "-c", script)[0] == 0
    assert tpu_vm("stop")[0] == 143
    for worker in range(4):
        saved = cloud.home("my-tpu", worker) / "saved"
        while not saved.exists():
            time.sleep(0.01)
    status, _, err = tpu_vm("stop")
    assert (status, err) == (2, "tpu_vm stop: my-tpu: no program is running. See tpu_vm status\n")


def test_a_setup_that_fails_on_one_host_is_an_error(pushed, tpu_vm, cloud):
    pushed("v5litepod-16")
    (cloud.home("my-tpu", 2) / "full").touch()
    setup = "[ ! -f ~/full ] || { echo no space left; exit 1; }"
    status, _, err = tpu_vm("push", f"--setup={setup}")
    assert (status, err) == (2, "tpu_vm push: my-tpu: no space left\n")
