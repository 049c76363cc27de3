"""One writer a gs:// folder: leases and generation preconditions, against a storage on loopback."""

import json
import os

import pytest

pytest.importorskip("cryptography", reason="the loopback storage needs cryptography")
pytest.importorskip("gcp_storage_emulator", reason="gcp-storage-emulator needs Python 3.10")

from common import gcs_lock, locks
from tests import gcs as loopback

NAME = "model/.lock"
DEAD = {"host": "another host", "pid": 7, "started": "1", "purpose": "train", "since": "then"}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with loopback.serve(str(tmp_path_factory.mktemp("gcs")), "bucket") as gcs:
        yield gcs


@pytest.fixture
def storage(served, monkeypatch):
    """The empty gs://bucket, which this process reaches, too."""
    for name, value in served.environment.items():
        monkeypatch.setenv(name, value)
    yield served
    served.heal()
    assert served.names("bucket") == []


def acquire(sleep=lambda seconds: None):
    return locks.acquire("gs://bucket/model", "model_dir", "train", sleep=sleep)


def leave(storage, owner):
    """Leaves the lock of another process."""
    lock = acquire()
    lock._released.set()  # it is not renewed, and not removed
    lock._thread.join()
    storage.write("bucket", NAME, json.dumps(owner).encode())
    return lock


def test_a_lock_is_an_object_that_names_its_owner(storage):
    lock = acquire()
    assert json.loads(storage.read("bucket", NAME))["pid"] == os.getpid()
    lock.check()
    lock.release()


def test_a_live_owner_is_recognised_by_its_renewals(storage, monkeypatch):
    monkeypatch.setattr(gcs_lock, "_RENEW_SECONDS", 0.01)
    lock = acquire()
    with pytest.raises(locks.LockedError, match=f"in use by process {os.getpid()} on host"):
        acquire()
    lock.release()


def test_a_dead_process_of_this_host_is_replaced_at_once(storage):
    leave(storage, {**locks.owner("train"), "started": "an earlier start"})
    acquire(sleep=None).release()


def test_a_silent_process_of_another_host_is_replaced_when_its_lease_is_over(storage, monkeypatch):
    leave(storage, DEAD)
    waits = []

    def wait(seconds):
        waits.append(seconds)
        monkeypatch.setattr(gcs_lock, "LEASE_SECONDS", -1.0)  # it runs out meanwhile

    acquire(wait).release()
    assert len(waits) == 1


def test_an_owner_that_was_replaced_learns_of_it_and_removes_nothing(storage, monkeypatch):
    monkeypatch.setattr(gcs_lock, "_RENEW_SECONDS", 0.01)
    lock = acquire()
    other = gcs_lock._Object(f"gs://bucket/{NAME}")
    while (generation := other.write("train", other.read()["generation"])) is None:
        pass  # a renewal came between the two
    lock._thread.join()
    with pytest.raises(locks.LockLostError, match="taken over by another process"):
        lock.check()
    lock.release()
    assert storage.names("bucket") == [NAME]
    other.delete(generation)


def test_an_answer_that_was_lost_on_its_way_is_no_loss_of_the_lock(storage, monkeypatch):
    monkeypatch.setattr(gcs_lock, "_RENEW_SECONDS", 0.01)
    lock = acquire()
    lock._generation = 1  # as if the last renewal had failed after it was stored
    while lock._generation == 1:
        pass
    lock.check()
    lock.release()


def test_a_server_that_fails_for_a_while_is_asked_again(storage):
    storage.fail(2, 503, "ifGenerationMatch=0")
    acquire().release()
    assert storage.num_faults_left == 0


def test_without_the_right_to_write_there_is_no_lock_and_that_is_said(storage, capsys):
    storage.fail(9, 403, "ifGenerationMatch=0")
    acquire().release()
    assert "has no lock against a second writer: POST gs://bucket/model/.lock gives 403" in (
        capsys.readouterr().out
    )
