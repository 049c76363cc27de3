"""Atomic writes and copies of files."""

import errno
import os

import pytest

from common import files
from common.errors import UsageError


def test_atomic_write_renames_a_complete_file(tmp_path):
    path = str(tmp_path / "new" / "file.txt")
    with files.atomic_write(path) as file:
        file.write("half")
        assert not os.path.exists(path)
        file.write(" and half")
    assert (tmp_path / "new" / "file.txt").read_text() == "half and half"
    assert os.listdir(tmp_path / "new") == ["file.txt"]


def test_an_error_keeps_the_old_file_and_removes_the_temporary_one(tmp_path):
    (tmp_path / "file.txt").write_text("old")

    def write_and_stop():
        with files.atomic_write(str(tmp_path / "file.txt")) as file:
            file.write("new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_and_stop()
    assert (tmp_path / "file.txt").read_text() == "old"
    assert os.listdir(tmp_path) == ["file.txt"]


def test_a_full_disk_names_the_file(tmp_path):
    path = str(tmp_path / "a.txt")
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):  # noqa: SIM117
        with files.atomic_write(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # as file.write does
    assert os.listdir(tmp_path) == []


def test_require_writable_creates_no_folder(tmp_path):
    files.require_writable("model_dir", str(tmp_path / "a" / "b"))
    assert os.listdir(tmp_path) == []


def test_a_relative_folder_is_writable(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files.require_writable("model_dir", "runs/new")


def test_require_writable_rejects_a_folder_inside_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"--model_dir=.*/file/a cannot be written"):
        files.require_writable("model_dir", str(tmp_path / "file" / "a"))


@pytest.fixture
def left_behind(tmp_path):
    """The temporary file of a dead process."""
    path = tmp_path / "file.txt.partial-0123abcd"
    path.write_text("half")
    return path


def test_temporary_files_of_a_killed_process_are_removed(tmp_path, left_behind):
    files.remove_leftovers(str(tmp_path))
    assert os.listdir(tmp_path) == []


def test_the_temporary_file_of_a_live_process_is_kept(tmp_path, left_behind):
    with files.atomic_write(str(tmp_path / "other.txt")) as file:
        file.write("whole")
        files.remove_leftovers(str(tmp_path))
    assert os.listdir(tmp_path) == ["other.txt"]


def test_fsync_precedes_the_rename(tmp_path, monkeypatch):
    calls = []
    for name in ("fsync", "replace"):
        original = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda *args, f=original, n=name: (calls.append(n), f(*args))[1]
        )
    with files.atomic_write(str(tmp_path / "file.txt")) as file:
        file.write("text")
    assert calls == ["fsync", "replace", "fsync"]


def test_two_concurrent_writers(tmp_path):
    path = str(tmp_path / "file.txt")
    with files.atomic_write(path) as first, files.atomic_write(path) as second:
        first.write("first")
        second.write("the second, longer")
    assert (tmp_path / "file.txt").read_text() == "first"
    assert os.listdir(tmp_path) == ["file.txt"]


def test_copy_is_atomic(tmp_path):
    (tmp_path / "a").write_bytes(bytes(range(256)))
    files.copy(str(tmp_path / "a"), str(tmp_path / "b"))
    assert (tmp_path / "b").read_bytes() == bytes(range(256))


def test_only_an_empty_folder_is_removed(tmp_path):
    """Another process may have locked a folder that this one has created."""
    for name in ("empty", "locked"):
        (tmp_path / name).mkdir()
    (tmp_path / "locked" / ".lock").touch()
    for name in ("empty", "locked", "missing"):
        files.remove_if_empty(str(tmp_path / name))
    assert os.listdir(tmp_path) == ["locked"]
