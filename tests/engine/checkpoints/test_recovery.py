"""Repair of model_dir: which checkpoint training resumes from."""

import os

import numpy as np
import pytest
import tensorflow as tf

from common.errors import RunError
from engine.checkpoints import recovery, writer

WEIGHTS = np.arange(1000, dtype=np.float32)


@pytest.fixture
def model_dir(tmp_path):
    """A folder with the checkpoints of steps 10, 20 and 30."""
    for step in (10, 20, 30):
        write(tmp_path, step, WEIGHTS)
    name(tmp_path, 10, 20, 30)
    return tmp_path


def write(folder, step, weights):
    writer.write(
        str(folder / f"model.ckpt-{step}"), {"weights": weights, "global_step": np.int64(step)}
    )


def name(folder, *steps):
    """Writes the file `checkpoint`."""
    paths = [str(folder / f"model.ckpt-{step}") for step in steps]
    tf.compat.v1.train.update_checkpoint_state(str(folder), paths[-1], paths)


def newest(folder):
    """The step that training resumes from; the file `checkpoint` must agree."""
    path = recovery.recover(str(folder))
    assert tf.train.latest_checkpoint(str(folder)) == path
    return int(path.rpartition("-")[2])


def data_of(folder, step):
    return folder / f"model.ckpt-{step}.data-00000-of-00001"


def index_of(folder, step):
    return folder / f"model.ckpt-{step}.index"


def flip_a_byte(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


BREAKS = {
    "truncated data": lambda folder: os.truncate(data_of(folder, 30), 100),
    "empty data": lambda folder: os.truncate(data_of(folder, 30), 0),
    "flipped byte": lambda folder: flip_a_byte(data_of(folder, 30)),
    "missing data": lambda folder: os.remove(data_of(folder, 30)),
    "truncated index": lambda folder: os.truncate(index_of(folder, 30), 20),
    "empty index": lambda folder: os.truncate(index_of(folder, 30), 0),
    "missing index": lambda folder: os.remove(index_of(folder, 30)),
    "not finite": lambda folder: write(folder, 30, np.append(WEIGHTS, np.float32(np.nan))),
}


def test_the_newest_is_used_if_it_is_valid(model_dir, capsys):
    assert newest(model_dir) == 30
    assert capsys.readouterr().out == ""
    assert not (model_dir / recovery.BROKEN_DIR).exists()


@pytest.mark.parametrize("damage", BREAKS.values(), ids=BREAKS)
def test_a_broken_checkpoint_is_moved_and_the_previous_one_is_used(model_dir, damage, capsys):
    damage(model_dir)
    left = sorted(path.name for path in model_dir.glob("model.ckpt-30.*"))
    assert newest(model_dir) == 20
    assert sorted(path.name for path in (model_dir / recovery.BROKEN_DIR).iterdir()) == left
    assert not list(model_dir.glob("model.ckpt-30.*"))
    assert "model.ckpt-30 cannot be used" in capsys.readouterr().out


def test_several_broken_checkpoints(model_dir):
    for step in (20, 30):
        flip_a_byte(data_of(model_dir, step))
    assert newest(model_dir) == 10


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe garbage"])
def test_a_missing_or_broken_state_file_is_ignored(model_dir, content):
    os.remove(model_dir / "checkpoint")
    if content is not None:
        (model_dir / "checkpoint").write_bytes(content)
    assert newest(model_dir) == 30


def test_a_checkpoint_missing_from_the_state_file_is_used(model_dir):
    name(model_dir, 10, 20)
    assert newest(model_dir) == 30


def test_a_deleted_checkpoint_in_the_state_file_is_skipped(model_dir):
    for path in model_dir.glob("model.ckpt-30.*"):
        path.unlink()
    assert newest(model_dir) == 20


def test_if_all_are_broken_nothing_is_changed(model_dir):
    for step in (10, 20, 30):
        flip_a_byte(data_of(model_dir, step))
    before = sorted(os.listdir(model_dir))
    with pytest.raises(RunError, match=r"none of 3 checkpoints .* Checksum does not match"):
        recovery.recover(str(model_dir))
    assert sorted(os.listdir(model_dir)) == before


def test_temporary_files_of_an_interrupted_save_are_removed(model_dir):
    (model_dir / "model.ckpt-40_temp").mkdir()
    (model_dir / "model.ckpt-40_temp" / "part-00000-of-00001.data-00000-of-00001").touch()
    for left in ("model.ckpt-40.meta.tmp1a2b", "checkpoint.tmp77", "graph.pbtxt.tmp0f"):
        (model_dir / left).touch()
    before = {*os.listdir(model_dir)}
    assert newest(model_dir) == 30
    assert len(before - {*os.listdir(model_dir)}) == 4


def test_data_of_an_interrupted_first_save_is_removed(tmp_path):
    write(tmp_path, 10, WEIGHTS)
    os.remove(index_of(tmp_path, 10))
    assert recovery.recover(str(tmp_path)) is None
    assert os.listdir(tmp_path) == []


def test_data_of_an_interrupted_removal_is_removed(model_dir):
    name(model_dir, 20, 30)
    os.remove(index_of(model_dir, 10))
    assert newest(model_dir) == 30
    assert not data_of(model_dir, 10).exists()


def test_an_index_truncated_by_a_kill_is_removed(tmp_path):
    write(tmp_path, 10, WEIGHTS)
    os.truncate(index_of(tmp_path, 10), 0)
    assert recovery.recover(str(tmp_path)) is None


@pytest.mark.parametrize("evidence", ["meta", "checkpoint"])
def test_a_complete_checkpoint_that_lost_its_index_is_not_removed(tmp_path, evidence):
    write(tmp_path, 10, WEIGHTS)
    os.remove(index_of(tmp_path, 10))
    if evidence == "meta":
        (tmp_path / "model.ckpt-10.meta").write_text("")
    else:
        name(tmp_path, 10)
    with pytest.raises(RunError, match="none of 1 checkpoints"):
        recovery.recover(str(tmp_path))
    assert data_of(tmp_path, 10).exists()


def test_an_interrupted_save_is_finished(model_dir):
    write(model_dir, 40, WEIGHTS)
    assert recovery.recover(str(model_dir), 3) == str(model_dir / "model.ckpt-40")
    assert tf.train.latest_checkpoint(str(model_dir)) == str(model_dir / "model.ckpt-40")
    left = sorted(path.name for path in model_dir.glob("*.index"))
    assert left == ["model.ckpt-20.index", "model.ckpt-30.index", "model.ckpt-40.index"]


def test_a_smaller_limit_alone_removes_nothing(model_dir):
    recovery.recover(str(model_dir), 1)
    assert len(list(model_dir.glob("*.index"))) == 3


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_a_folder_or_pipe_instead_of_the_state_file_is_an_error(model_dir, make):
    os.remove(model_dir / "checkpoint")
    make(model_dir / "checkpoint")
    with pytest.raises(RunError, match="checkpoint is not a file"):
        recovery.recover(str(model_dir))


def test_a_pipe_instead_of_an_index_is_broken(model_dir):
    os.remove(index_of(model_dir, 30))
    os.mkfifo(index_of(model_dir, 30))
    assert newest(model_dir) == 20


def test_missing_and_empty_folders_have_no_checkpoint(tmp_path):
    assert recovery.recover(str(tmp_path / "absent")) is None
    assert recovery.recover(str(tmp_path)) is None


def test_training_resumes_from_the_last_valid_checkpoint(run_in, variables, tmp_path, capsys):
    arguments = ["--mode=train", "--train_steps=20", "--save_checkpoints_steps=5"]
    run_in(tmp_path, *arguments)
    once = variables(tmp_path)
    flip_a_byte(data_of(tmp_path, 20))
    os.remove(tmp_path / "checkpoint")
    run_in(tmp_path, *arguments)
    assert f"resuming from {tmp_path}/model.ckpt-15" in capsys.readouterr().out
    for key, value in variables(tmp_path).items():
        np.testing.assert_array_equal(value, once[key], err_msg=key)
