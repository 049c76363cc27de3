"""One training per model_dir."""

import os

import pytest

import run_cpu
from common import locks
from engine.checkpoints.model_dir_lock import BEST_LOCK, TRAIN_LOCK, ModelDirLock

TRAIN = ("--mode=train", "--train_steps=5")


@pytest.fixture(autouse=True)
def no_wait(monkeypatch):
    monkeypatch.setattr(locks, "_WAIT_SECONDS", 0.0)


@pytest.fixture
def held(tmp_path):
    """Holds locks of `tmp_path / "model"`, as another process would: `held(".lock")`."""
    (tmp_path / "model").mkdir()
    taken = []
    yield lambda name: taken.append(
        locks.acquire(str(tmp_path / "model"), "model_dir", "test", name)
    )
    for lock in taken:
        lock.release()


@pytest.fixture
def status(exit_status, tiny_flags, tmp_path):
    """The exit status of run_cpu.py with a model_dir of the test."""
    model_dir = f"--model_dir={tmp_path}/model"
    return lambda *flags: exit_status(run_cpu, *tiny_flags, model_dir, *flags)


def test_a_second_training_is_an_error_and_changes_nothing(status, held, tmp_path, capsys):
    held(TRAIN_LOCK)
    assert status(*TRAIN) == 2
    assert "in use by process" in capsys.readouterr().err
    assert os.listdir(tmp_path / "model") == [TRAIN_LOCK]


@pytest.mark.parametrize("mode", ["train_and_eval", "continuous_eval"])
def test_a_second_process_that_keeps_the_best_is_an_error(status, held, mode, capsys):
    held(BEST_LOCK)
    assert status(f"--mode={mode}", "--train_steps=5", "--best_metric=accuracy") == 2
    assert "in use by process" in capsys.readouterr().err


def test_training_removes_its_lock(status, tmp_path):
    assert status(*TRAIN, "--best_metric=accuracy") == 0
    assert not [name for name in os.listdir(tmp_path / "model") if "lock" in name]


def test_a_failed_start_releases_the_lock(status, tmp_path, held):
    held(BEST_LOCK)
    assert status("--mode=train_and_eval", "--train_steps=5", "--best_metric=accuracy") == 2
    locks.acquire(str(tmp_path / "model"), "model_dir", "test", TRAIN_LOCK).release()


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("mode", ["eval", "predict"])
def test_reading_modes_need_no_lock(status, held, trained_dir, mode):
    lock = locks.acquire(trained_dir, "model_dir", "test", TRAIN_LOCK)
    assert status(f"--mode={mode}", f"--model_dir={trained_dir}") == 0
    lock.release()


def test_a_training_that_started_in_the_meantime_is_an_error(tmp_path, tiny_flags):
    lock = ModelDirLock(str(tmp_path), "train", (TRAIN_LOCK,))
    (tmp_path / "model.ckpt-5.index").write_text("")
    with pytest.raises(ValueError, match="another process trained there while this one started"):
        lock.lock_new()
    lock.release()
