"""Lock that allows one writer per folder."""

import os
import signal
import subprocess
import sys

import pytest

from common import lock_owner, locks

_HOLDER = """
import sys, time
from common import locks
lock = locks.acquire(sys.argv[1], "model_dir", "train")
print("held", flush=True)
time.sleep(600)
"""


def acquire(folder, sleep=lambda seconds: None):
    return locks.acquire(str(folder), "model_dir", "train", sleep=sleep)


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock of `tmp_path`."""
    command = [sys.executable, "-c", _HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_process_raises(tmp_path, holder):
    with pytest.raises(locks.LockedError, match=rf"in use by process {holder.pid} on host .*train"):
        acquire(tmp_path)


def test_a_killed_process_frees_its_lock(tmp_path, holder):
    acquire(tmp_path, lambda seconds: (holder.send_signal(signal.SIGKILL), holder.wait())).release()


def test_a_released_lock_leaves_no_file(tmp_path):
    acquire(tmp_path).release()
    assert os.listdir(tmp_path) == []
    acquire(tmp_path).release()


def test_two_locks_of_one_process_exclude_each_other(tmp_path):
    lock = acquire(tmp_path)
    with pytest.raises(locks.LockedError, match=f"process {os.getpid()} "):
        acquire(tmp_path)
    lock.release()


def test_the_file_of_a_dead_process_is_ignored(tmp_path):
    (tmp_path / ".lock").write_text('{"pid": 1, "host": "elsewhere"}')
    acquire(tmp_path).release()


def test_remove_dead_removes_the_file_of_a_dead_process(tmp_path, holder):
    locks.remove_dead(str(tmp_path))
    assert os.listdir(tmp_path) == [".lock"]
    holder.kill()
    holder.wait()
    locks.remove_dead(str(tmp_path))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("text", ["", "[]", "nonsense", '{"host": "\\u001b[2J"}'])
def test_a_lock_file_that_cannot_be_parsed(text):
    assert lock_owner.describe(lock_owner.parse_owner(text)) == "another process"


def test_a_folder_with_the_name_of_the_lock_file(tmp_path):
    (tmp_path / ".lock").mkdir()
    with pytest.raises(locks.LockedError, match=r"cannot be locked: .*Is a directory"):
        acquire(tmp_path)


def test_other_remote_file_systems_have_no_lock():
    locks.acquire("hdfs://host/folder", "model_dir", "train").release()


def test_start_time_detects_a_reused_process_id():
    assert lock_owner.start_time(os.getpid()).isdigit()
    assert lock_owner.start_time(2**22 + 1) == ""
