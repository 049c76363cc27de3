"""Files that are whole or not there."""

import os

import pytest

from training import files
from training.program import UsageError


def test_a_file_takes_its_name_when_it_is_whole(tmp_path):
    path = str(tmp_path / "new" / "file.txt")
    with files.atomic_write(path) as file:
        file.write("half")
        assert not os.path.exists(path)
        file.write(" and half")
    assert (tmp_path / "new" / "file.txt").read_text() == "half and half"
    assert os.listdir(tmp_path / "new") == ["file.txt"]


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path):
    (tmp_path / "file.txt").write_text("old")

    def write_and_stop():
        with files.atomic_write(str(tmp_path / "file.txt")) as file:
            file.write("new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_and_stop()
    assert (tmp_path / "file.txt").read_text() == "old"
    assert os.listdir(tmp_path) == ["file.txt"]


def test_a_folder_that_can_be_made_is_writable_and_is_not_made(tmp_path):
    files.require_writable("model_dir", str(tmp_path / "a" / "b"))
    assert os.listdir(tmp_path) == []


def test_a_relative_folder_is_writable(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files.require_writable("model_dir", "runs/new")


def test_a_folder_inside_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"--model_dir=.*/file/a cannot be written"):
        files.require_writable("model_dir", str(tmp_path / "file" / "a"))
