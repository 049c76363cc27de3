"""Temporary files do not outlive the run, or at most until the next one."""

import os
import subprocess
import sys
import tempfile

import pytest

from input_fns.convert.work_folder import WorkFolder


@pytest.fixture(autouse=True)
def _temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_the_folder_of_a_live_run_stays_until_it_is_removed(tmp_path):
    first, second = WorkFolder(), WorkFolder()
    assert sorted(os.listdir(tmp_path)) == sorted(map(os.path.basename, (first.path, second.path)))
    first.remove()
    assert os.listdir(tmp_path) == [os.path.basename(second.path)]


def test_the_folder_is_removed_with_its_object(tmp_path):
    folder = WorkFolder()
    (tmp_path / folder.path / "tokens").write_text("some")
    del folder
    assert os.listdir(tmp_path) == []


def test_the_folder_of_a_killed_run_is_removed_by_the_next(tmp_path):
    program = (
        "import os; from input_fns.convert.work_folder import WorkFolder; folder = WorkFolder(); "
        "os.kill(os.getpid(), 9)"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], env=environment)
    (dead,) = os.listdir(tmp_path)
    assert WorkFolder().path != os.path.join(tmp_path, dead)
    assert not (tmp_path / dead).exists()
