"""Lock on a gs:// folder, against a fake storage server on loopback."""

import json
import os

import pytest

pytest.importorskip("cryptography", reason="the loopback storage needs cryptography")
pytest.importorskip("gcp_storage_emulator", reason="gcp-storage-emulator needs Python 3.10")

from common import gcs_lock, lock_owner, locks
from tools import gcs_server as loopback

NAME = "model/.lock"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with loopback.serve(str(tmp_path_factory.mktemp("gcs")), "bucket") as gcs:
        yield gcs


@pytest.fixture
def storage(served, monkeypatch):
    """An empty gs://bucket that this process can access."""
    for name, value in served.environment.items():
        monkeypatch.setenv(name, value)
    yield served
    served.heal()
    assert served.names("bucket") == []


def acquire(sleep=lambda seconds: None):
    return locks.acquire("gs://bucket/model", "model_dir", "train", sleep=sleep)


def leave(storage, owner):
    """Writes the lock of another process."""
    lock = acquire()
    lock._released.set()  # it is not renewed, and not removed
    lock._thread.join()
    storage.write("bucket", NAME, json.dumps(owner).encode())
    return lock


def test_the_lock_object_names_its_owner(storage):
    lock = acquire()
    assert json.loads(storage.read("bucket", NAME))["pid"] == os.getpid()
    lock.check()
    lock.release()


def test_a_renewed_lease_raises(storage, monkeypatch):
    monkeypatch.setattr(gcs_lock, "_RENEW_SECONDS", 0.01)
    lock = acquire()
    with pytest.raises(locks.LockedError, match=f"in use by process {os.getpid()} on host"):
        acquire()
    lock.release()


def test_the_lock_of_a_dead_process_of_this_host_is_free(storage):
    leave(storage, {**lock_owner.owner("train"), "started": "an earlier start"})
    acquire(sleep=None).release()


@pytest.mark.parametrize("place", [{"host": "another"}, {"pid_namespace": "pid:[1]"}])
def test_the_lock_of_another_host_or_container_is_free_when_its_lease_expires(
    storage, monkeypatch, place
):
    leave(storage, {**lock_owner.owner("train"), "started": "not visible here", **place})
    waits = []

    def wait(seconds):
        waits.append(seconds)
        monkeypatch.setattr(gcs_lock, "LEASE_SECONDS", -1.0)  # it runs out meanwhile

    acquire(wait).release()
    assert len(waits) == 1


def test_a_lost_lock_raises_and_deletes_nothing(storage, monkeypatch):
    monkeypatch.setattr(gcs_lock, "_RENEW_SECONDS", 0.01)
    lock = acquire()
    other = gcs_lock._Object(f"gs://bucket/{NAME}")
    while (generation := other.write("train", other.read()["generation"])) is None:
        pass  # a renewal came between the two
    lock._thread.join()
    with pytest.raises(lock_owner.LockLostError, match="taken over by another process"):
        lock.check()
    lock.release()
    assert storage.names("bucket") == [NAME]
    other.delete(generation)


def test_a_lost_response_keeps_the_lock(storage, monkeypatch):
    monkeypatch.setattr(gcs_lock, "_RENEW_SECONDS", 0.01)
    lock = acquire()
    lock._generation = 1  # as if the last renewal had failed after it was stored
    while lock._generation == 1:
        pass
    lock.check()
    lock.release()


def test_requests_are_retried(storage):
    storage.fail(2, 503, "ifGenerationMatch=0")
    acquire().release()
    assert storage.num_faults_left == 0


def test_without_write_permission_there_is_a_warning_and_no_lock(storage, capsys):
    storage.fail(9, 403, "ifGenerationMatch=0")
    acquire().release()
    assert "has no lock against a second writer: POST gs://bucket/model/.lock gives 403" in (
        capsys.readouterr().out
    )
