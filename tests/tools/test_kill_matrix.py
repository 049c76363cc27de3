"""Kills before system calls: the order of calls, the choice of points, and one real point."""

import os
import pathlib
import subprocess
import sys
import threading

import pytest

from tools import kill_matrix
from tools.killing import runner, seccomp

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def supported():
    try:
        seccomp.check_supported()
    except seccomp.UnsupportedError as error:
        pytest.skip(str(error))


def write_and_rename(folder):
    """Creates the files 0, 1 and 2, each in a thread."""

    def write(name):
        (folder / "partial").write_text("content")
        os.rename(folder / "partial", folder / name)

    for name in "012":
        thread = threading.Thread(target=write, args=[name])
        thread.start()
        thread.join()


def watched(folder, kill_at=None):
    """Runs `write_and_rename`; returns its status and its calls; kills it before one of them."""
    calls = []

    def decide(call):
        if not call.path.startswith(str(folder)):
            return True
        calls.append((call.name, os.path.basename(call.path)))
        return len(calls) - 1 != kill_at

    return seccomp.run(lambda: write_and_rename(folder), decide), calls


def test_calls_of_all_threads_are_in_order(tmp_path):
    one = [("openat", "partial"), ("write", "partial"), ("rename", "partial")]
    assert watched(tmp_path) == (0, 3 * one)
    assert sorted(os.listdir(tmp_path)) == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("kill_at", "left"), [(3, ["0"]), (4, ["0", "partial"]), (5, ["0", "partial"])]
)
def test_call_does_not_happen_after_a_kill(kill_at, left, tmp_path):
    status, calls = watched(tmp_path, kill_at)
    assert (status, len(calls)) == (-9, kill_at + 1)
    assert sorted(os.listdir(tmp_path)) == left
    if kill_at == 4:
        assert (tmp_path / "partial").read_text() == ""


def test_run_returns_the_exit_status():
    assert seccomp.run(lambda: sys.exit(2), lambda call: True) == 2


def test_choose_includes_the_first_and_last_call_of_each_kind():
    calls = ["write a"] * 50 + ["rename b"] * 3 + ["unlink c"]
    chosen = kill_matrix.choose(calls, 8, seed=1)
    assert {0, 49, 50, 52, 53} <= set(chosen)
    assert len(chosen) == len(set(chosen)) == 8
    assert kill_matrix.choose(calls, 8, seed=1) == chosen
    assert kill_matrix.choose(calls, 0, seed=1) == list(range(54))


def test_summary_ignores_times(tmp_path):
    (tmp_path / "model").mkdir()
    for version in ("1700000000", "1700000009"):
        (tmp_path / "export" / version).mkdir(parents=True)
        (tmp_path / "export" / version / "saved_model.pb").write_text(version)
    path = tmp_path / "model" / "result_2.json"
    path.write_text('{"train": {"a": 1}, "eval": {"loss": 1}, "export": "export/1700000009"}')
    (tmp_path / "model" / "events.out.tfevents.17.host").write_text("")
    first = runner.summary(tmp_path)
    assert set(first) == {
        "export",
        "export/VERSION",
        "export/VERSION/saved_model.pb",
        "model",
        "model/result_2.json",
    }
    path.write_text('{"train": {"a": 2}, "eval": {"loss": 1}, "export": "export/1700000042"}')
    assert runner.summary(tmp_path) == first
    path.write_text('{"train": {"a": 2}, "eval": {"loss": 2}, "export": "export/1700000042"}')
    assert runner.summary(tmp_path) != first


def run_matrix(*arguments):
    command = [sys.executable, "-m", "tools.kill_matrix", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_prepare_data_killed_before_completion():
    done = run_matrix("--only=prepare:14", "--workers=1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "prepare" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("command", runner.COMMANDS)
def test_some_points_of_each_command(command):
    done = run_matrix(f"--commands={command}", "--points=8", "--seed=2")
    assert done.returncode == 0, done.stdout + done.stderr
