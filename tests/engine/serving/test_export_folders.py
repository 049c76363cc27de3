"""Staging and version folders: leftovers of killed exports, concurrent exports."""

import os
import subprocess
import sys
import threading

import pytest
import tensorflow as tf

from common import locks
from engine.serving import export_folders


def published(export_dir, count, done):
    """Publishes some folders; runs in a separate process."""
    for _ in range(count):
        with export_folders.staging(export_dir) as staging:
            path = os.path.join(staging, "1")
            tf.io.gfile.makedirs(path)
            with open(os.path.join(path, "saved_model.pb"), "w") as file:
                file.write(str(os.getpid()))
            done.append(export_folders.publish(path, export_dir, False))


def test_publish_creates_a_version_and_no_other_file(tmp_path):
    done = []
    published(str(tmp_path), 2, done)
    assert sorted(os.listdir(tmp_path)) == [os.path.basename(path) for path in done]
    assert int(os.path.basename(done[1])) > int(os.path.basename(done[0]))


def test_concurrent_exports_get_different_versions(tmp_path):
    """Threads exclude each other like processes: a flock belongs to an open file."""
    done = []
    threads = [threading.Thread(target=published, args=(str(tmp_path), 5, done)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(done)) == 15
    assert sorted(os.listdir(tmp_path)) == sorted(map(os.path.basename, done))


def test_a_folder_is_locked_until_it_is_removed(tmp_path, monkeypatch):
    """Another export starts between the removal of the first file and that of the folder."""
    rmtree, others = tf.io.gfile.rmtree, []

    def rmtree_with_another_export(path):
        for name in os.listdir(path):
            os.unlink(os.path.join(path, name))
        if not others:
            others.append(1)
            with export_folders.staging(str(tmp_path)):
                assert os.path.isdir(path)
        rmtree(path)

    monkeypatch.setattr(tf.io.gfile, "rmtree", rmtree_with_another_export)
    with export_folders.staging(str(tmp_path)) as path, open(os.path.join(path, "file"), "w"):
        pass
    assert others
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
def test_the_folder_of_a_killed_export_is_removed(tmp_path):
    code = (
        "import sys, time\n"
        "from engine.serving import export_folders\n"
        "with export_folders.staging(sys.argv[1]) as path:\n"
        "    print(path, flush=True)\n"
        "    time.sleep(100)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        path = process.stdout.readline().decode().strip()
        with export_folders.staging(str(tmp_path)):
            assert os.path.exists(path)  # the export is running
        process.kill()
    with export_folders.staging(str(tmp_path)):
        assert not os.path.exists(path)
        assert not os.path.exists(f"{path}.lock")


@pytest.mark.parametrize("leftover", [["temp-00000001/17/file"], ["temp-00000001.lock"]])
def test_a_folder_without_a_lock_and_a_lock_without_a_folder_are_removed(tmp_path, leftover):
    """An earlier version left the one; an export killed before it made its folder the other."""
    for name in (*leftover, "temp-mine/file", "temp-41.lock", "failed-7/file"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    with export_folders.staging(str(tmp_path)):
        pass
    assert sorted(os.listdir(tmp_path)) == ["failed-7", "temp-41.lock", "temp-mine"]


@pytest.mark.parametrize("name", ["²", "9" * 30, "12x", "007"])
def test_names_that_are_not_versions_are_ignored(tmp_path, name):
    (tmp_path / name).mkdir()
    done = []
    published(str(tmp_path), 1, done)
    assert len(os.path.basename(done[0])) == 10


def test_a_version_claimed_by_another_process_is_not_used(tmp_path, monkeypatch):
    """As on gs://, where folders cannot be locked."""
    taken = []

    def acquire(folder, flag, purpose, name):
        taken.append(name)
        if len(taken) == 1:
            raise locks.LockedError("in use")
        return locks.Lock()

    monkeypatch.setattr(locks, "acquire", acquire)
    monkeypatch.setattr(export_folders, "_next_version", lambda export_dir: 41)
    with export_folders._claimed("gs://bucket/x", 41) as first:
        assert not first
    with export_folders._claimed("gs://bucket/x", 42) as second:
        assert second
    assert taken == ["temp-41.lock", "temp-42.lock"]
