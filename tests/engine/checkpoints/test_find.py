"""Checkpoints: found, compared with the model, and begun from."""

import os

import numpy as np
import pytest
import tensorflow as tf

from common.errors import UsageError
from engine.checkpoints import ema, find
from engine.train import optimizers

PARAMS = optimizers.default_params()


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
    assert find.find(str(tmp_path), "latest") == latest
    assert find.find(str(tmp_path), "best") == best
    assert find.find("elsewhere", str(tmp_path)) == latest
    assert find.find("elsewhere", best) == best


@pytest.mark.parametrize("which", ["latest", "best", "/no/such/model.ckpt-1"])
def test_find_says_where_there_is_none(tmp_path, which):
    with pytest.raises(UsageError, match="no checkpoint in "):
        find.find(str(tmp_path), which)


def test_find_names_what_there_is_instead(tmp_path):
    save(tmp_path, 7, a=1.0)
    with pytest.raises(UsageError, match=r"no checkpoint in model.ckpt-8 \(.*/model.ckpt-7\)"):
        find.find(str(tmp_path), "model.ckpt-8")


def test_step_of(tmp_path):
    assert find.step_of(save(tmp_path, 7, a=1.0)) == 7
    assert find.step_of(None) == 0


def test_a_checkpoint_of_the_same_variables_fits(tmp_path):
    checkpoint = save(tmp_path, 7, a=np.zeros([2, 3]), more=1.0)
    tf.compat.v1.get_variable("a", shape=[2, 3])
    find.check_fits(checkpoint, PARAMS, training=True)


def test_a_checkpoint_of_another_model_is_refused_by_name(tmp_path):
    checkpoint = save(tmp_path, 7, a=np.zeros([2, 3]))
    tf.compat.v1.get_variable("a", shape=[2, 5])
    tf.compat.v1.get_variable("b", shape=[4])
    message = r"a is \[2, 3\] in it, \[2, 5\] in this model; b \[4\] is not in it"
    with pytest.raises(UsageError, match=message):
        find.check_fits(checkpoint, PARAMS, training=True)


def test_an_average_that_was_not_trained_is_missed_in_evaluation_only(tmp_path):
    checkpoint = save(tmp_path, 7, a=1.0)
    tf.compat.v1.get_variable("a", shape=[])
    averaged = {**PARAMS, "ema_decay": 0.9}
    find.check_fits(checkpoint, averaged, training=True)
    with pytest.raises(UsageError, match="a/ExponentialMovingAverage"):
        find.check_fits(checkpoint, averaged, training=False)


def test_warm_start_takes_what_matches_and_lists_the_rest(tmp_path, session, capsys):
    checkpoint = save(tmp_path, 7, a=5.0, b=6.0, shaped=np.ones([2]))
    with session.graph.as_default():
        a = tf.compat.v1.get_variable("a", initializer=0.0)
        b = tf.compat.v1.get_variable("b", initializer=0.0)
        shaped = tf.compat.v1.get_variable("shaped", shape=[3])
        new = tf.compat.v1.get_variable("new", shape=[])
        step = tf.compat.v1.train.get_or_create_global_step()
        include = "a|shaped|new|global_step"
        find.warm_start(checkpoint, include, [a, b, shaped, new, step])
        session.run(tf.compat.v1.global_variables_initializer())
        assert session.run([a, b, step]) == [5.0, 0.0, 0]
    out = capsys.readouterr().out
    assert "1 variables from" in out
    assert "shaped ([2] there, [3] here)" in out
    assert "not in it: new" in out


def test_the_pattern_of_a_warm_start_is_for_the_whole_name(tmp_path):
    checkpoint = save(tmp_path, 7, encoder=5.0)
    encoder = tf.compat.v1.get_variable("encoder", initializer=0.0)
    with pytest.raises(UsageError, match="matches no variable"):
        find.warm_start(checkpoint, "enc", [encoder])


def test_an_average_begins_where_its_variable_does(tmp_path, session, minimize):
    checkpoint = save(tmp_path, 7, a=5.0)
    with session.graph.as_default():
        a = tf.compat.v1.get_variable("a", initializer=0.0)
        minimize(a * a, {**PARAMS, "ema_decay": 0.5}, 0.1)
        find.warm_start(checkpoint, "a", [a])
        session.run(tf.compat.v1.global_variables_initializer())
        assert session.run([a, ema.average_of(a)]) == [5.0, 5.0]


@pytest.mark.parametrize("which", ["latest", "folder"])
def test_find_skips_a_broken_checkpoint(tmp_path, capsys, which):
    good = save(tmp_path, 7, a=1.0)
    os.truncate(save(tmp_path, 8, a=2.0) + ".data-00000-of-00001", 3)
    assert find.find(str(tmp_path), "latest" if which == "latest" else str(tmp_path)) == good
    assert "model.ckpt-8 cannot be used: " in capsys.readouterr().out


@pytest.mark.parametrize("content", [None, "", "nonsense {", "\\xff"])
def test_find_needs_no_file_that_names_the_latest(tmp_path, content):
    latest = save(tmp_path, 10, a=1.0)
    os.remove(tmp_path / "checkpoint")
    if content is not None:
        (tmp_path / "checkpoint").write_text(content)
    assert find.find(str(tmp_path), "latest") == latest


def test_find_refuses_a_named_checkpoint_that_is_broken(tmp_path):
    path = save(tmp_path, 7, a=1.0)
    os.truncate(path + ".index", 3)
    with pytest.raises(UsageError, match=r"model.ckpt-7 cannot be used: .*sstable"):
        find.find("elsewhere", path)


def test_a_warm_start_needs_no_global_step_and_any_name(tmp_path):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.get_variable("a", initializer=1.0)
        session.run(tf.compat.v1.global_variables_initializer())
        path = tf.compat.v1.train.Saver().save(session, str(tmp_path / "bert_model.ckpt"))
    assert find.find_warm_start(str(tmp_path)) == path
    assert find.find_warm_start(path) == path
    with pytest.raises(UsageError, match="global_step is missing"):
        find.find("elsewhere", path)
