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


def test_the_folder_of_a_killed_export_is_removed(tmp_path):
    code = (
        "import os, sys, time\n"
        "from common import locks\n"
        "folder = os.path.join(sys.argv[1], 'temp-0123abcd')\n"
        "os.makedirs(folder + '/17')\n"
        "lock = locks.acquire(folder, 'export_dir', 'export', 'lock')\n"
        "print('locked', flush=True)\n"
        "time.sleep(100)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"locked\n"
        with export_folders.staging(str(tmp_path)):
            assert (tmp_path / "temp-0123abcd").exists()  # the export is running
        process.kill()
    with export_folders.staging(str(tmp_path)):
        assert not (tmp_path / "temp-0123abcd").exists()


def test_a_folder_without_a_lock_is_removed(tmp_path):
    """Its export was killed before it created the lock."""
    for name in ("temp-00000001", "temp-mine", "failed-7"):
        (tmp_path / name / "17").mkdir(parents=True)
    with export_folders.staging(str(tmp_path)):
        pass
    assert sorted(os.listdir(tmp_path)) == ["failed-7", "temp-mine"]


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
