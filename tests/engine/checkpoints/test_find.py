"""--checkpoint: latest, best, a path or a folder."""

import os

import numpy as np
import pytest
import tensorflow as tf

from common.errors import UsageError
from engine.checkpoints import checkpoint_files, find, warm_start


def save(folder, step, **values):
    """Writes a checkpoint with some variables into a folder; returns its path."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, value in values.items():
            tf.compat.v1.get_variable(name, initializer=np.float32(value))
        global_step = tf.compat.v1.train.get_or_create_global_step()
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(global_step.assign(step))
        path = os.path.join(folder, "model.ckpt")
        return tf.compat.v1.train.Saver().save(session, path, global_step=step)


def test_find_latest_best_folder_and_path(tmp_path):
    latest, best = save(tmp_path, 7, a=1.0), save(tmp_path / "best", 3, a=1.0)
    assert find.find_checkpoint(str(tmp_path), "latest") == latest
    assert find.find_checkpoint(str(tmp_path), "best") == best
    assert find.find_checkpoint("elsewhere", str(tmp_path)) == latest
    assert find.find_checkpoint("elsewhere", best) == best


@pytest.mark.parametrize(
    "name",
    [
        "model.ckpt-7.index",
        "model.ckpt-7.meta",
        "model.ckpt-7.data-00000-of-00001",
        "model.ckpt-7/",
        "checkpoint",
        "./",
    ],
)
def test_a_file_of_a_checkpoint_is_that_checkpoint(tmp_path, name):
    path, which = save(tmp_path, 7, a=1.0), f"{tmp_path}/{name}"
    assert os.path.normpath(find.find_checkpoint("elsewhere", which)) == path
    assert os.path.normpath(warm_start.find_checkpoint(which)) == path
    assert checkpoint_files.is_there(which)


@pytest.mark.parametrize("which", ["latest", "best", "/no/such/model.ckpt-1"])
def test_a_missing_checkpoint_is_an_error(tmp_path, which):
    with pytest.raises(UsageError, match="no checkpoint in "):
        find.find_checkpoint(str(tmp_path), which)


def test_the_error_lists_existing_checkpoints(tmp_path):
    save(tmp_path, 7, a=1.0)
    with pytest.raises(UsageError, match=r"no checkpoint in model.ckpt-8 \(.*/model.ckpt-7\)"):
        find.find_checkpoint(str(tmp_path), "model.ckpt-8")


def test_read_step(tmp_path):
    assert find.read_step(save(tmp_path, 7, a=1.0)) == 7
    assert find.read_step(None) == 0


@pytest.mark.parametrize("is_folder", [False, True])
def test_a_broken_checkpoint_is_skipped(tmp_path, capsys, is_folder):
    good = save(tmp_path, 7, a=1.0)
    os.truncate(save(tmp_path, 8, a=2.0) + ".data-00000-of-00001", 3)
    which = str(tmp_path) if is_folder else "latest"
    assert find.find_checkpoint(str(tmp_path), which) == good
    assert "model.ckpt-8 cannot be used: " in capsys.readouterr().out


@pytest.mark.parametrize("content", [None, "", "nonsense {", "\\xff"])
def test_latest_does_not_need_the_state_file(tmp_path, content):
    latest = save(tmp_path, 10, a=1.0)
    os.remove(tmp_path / "checkpoint")
    if content is not None:
        (tmp_path / "checkpoint").write_text(content)
    assert find.find_checkpoint(str(tmp_path), "latest") == latest


def test_a_broken_checkpoint_given_by_path_is_an_error(tmp_path):
    path = save(tmp_path, 7, a=1.0)
    os.truncate(path + ".index", 3)
    with pytest.raises(UsageError, match=r"model.ckpt-7 cannot be used: .*sstable"):
        find.find_checkpoint("elsewhere", path)


def test_a_long_wait_for_a_checkpoint_is_printed_once(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(find, "_REPORT_SECS", 0.0)
    monkeypatch.setattr(find, "_POLL_SECS", 0.001)
    assert list(find.checkpoints_iterator(str(tmp_path), 0.05)) == []
    expected = f"waiting for a checkpoint in {tmp_path}, at most 0.05 s\n"
    assert capsys.readouterr().out == expected
