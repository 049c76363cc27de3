"""Fixtures: a fake Google Cloud, a project of a user, and the commands of tpu_vm."""

import contextlib
import io
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from tests.tpu.vm import fake_gcloud
from tests.tpu.vm.fake_cloud import FakeCloud
from tpu.vm import code, command_line, gcloud, settings
from tpu.vm.gcloud import Gcloud
from tpu.vm.settings import Push, Vm

FOLDER = pathlib.Path(__file__).parent
# Counts to `steps` in a file of the "bucket" and resumes from it, like a training.
PROGRAM = """
import os, pathlib, sys, time
path, steps = pathlib.Path(sys.argv[1]), int(sys.argv[2])
step = int(path.read_text()) if path.exists() else 0
print("resuming from step", step, os.environ["TPU_NAME"], flush=True)
while step < steps:
    time.sleep(0.02)
    step += 1
    partial = path.with_suffix(".partial")
    partial.write_text(str(step))
    partial.replace(path)
print("done", flush=True)
"""


@pytest.fixture
def cloud(tmp_path, monkeypatch):
    """A FakeCloud whose `gcloud` is first on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "gcloud"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -S {FOLDER / "fake_gcloud.py"} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_CLOUD", str(tmp_path / "cloud"))
    found = FakeCloud(tmp_path / "cloud")
    yield found
    with found.state() as state:
        names = list(state["nodes"])
    for name in names:
        found.kill(name)


@pytest.fixture(scope="session")
def repository(tmp_path_factory):
    """A git repository with program.py, and a bundle of it."""
    folder = tmp_path_factory.mktemp("repository")
    (folder / "program.py").write_text(PROGRAM)
    (folder / ".gitignore").write_text(".tpu_vm/\n")
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@localhost"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "--all"], check=True)
    subprocess.run([*git, "commit", "-qm", "first"], check=True)
    code.bundle(str(folder), folder / ".git/code.bundle", Gcloud("", ""))
    return folder


@pytest.fixture
def project(repository, tmp_path, monkeypatch):
    """The current folder: a copy of the repository."""
    folder = tmp_path / "project"
    shutil.copytree(repository, folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def processes():
    """Calls the fake `gcloud` as a process, as users do: 50 ms per call."""


@pytest.fixture
def calls(cloud, request, monkeypatch):
    """Calls the fake `gcloud` in this process, unless the test needs processes."""
    run = gcloud.run

    def call(command, timeout=300.0):
        if command[0] != "gcloud":
            return run(command, timeout)
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = fake_gcloud.main(command[1:])
        if status:
            raise gcloud._error(command, status, err.getvalue())
        return out.getvalue()

    if not {"processes", "real_gcloud"} & set(request.fixturenames):
        monkeypatch.setattr(gcloud, "run", call)


@pytest.fixture
def tpu_vm(calls, project, capsys):
    """Runs a command of tpu_vm; returns (exit status, standard output, standard error)."""

    def run(command, *arguments):
        status = command_line.main([command, "--poll_seconds=0.1", *arguments])
        return (status, *capsys.readouterr())

    return run


@pytest.fixture
def ready(tpu_vm, cloud, project):
    """`tpu_vm` after `up --name=my-tpu` and `push`."""
    vm = Vm("my-tpu", "us-central1-a", "my-project", "v3-8", "tpu-vm-tf-2.15.1-se")
    cloud.create(vm.name, {"acceleratorType": vm.type, "runtimeVersion": vm.version})
    cloud.describe(vm.name)  # READY
    vm.push = Push("commit 1234567", setup="")
    settings.save(vm)
    shutil.move(project / ".git/code.bundle", vm.bundle)
    (cloud.home(vm.name) / "tpu_code").mkdir()
    shutil.copy(project / "program.py", cloud.home(vm.name) / "tpu_code")
    return tpu_vm
