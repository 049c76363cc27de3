"""Checkpoints: found, compared with the model, begun from, and the best one kept."""

import json
import os

import numpy as np
import pytest
import tensorflow as tf

from common.errors import UsageError
from training import checkpoints, ema, optimizers

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


def best_names(tmp_path):
    return sorted(name for name in os.listdir(tmp_path / "best") if name.endswith(".index"))


def test_find_latest_best_folder_and_path(tmp_path):
    latest, best = save(tmp_path, 7, a=1.0), save(tmp_path / "best", 3, a=1.0)
    assert checkpoints.find(str(tmp_path), "latest") == latest
    assert checkpoints.find(str(tmp_path), "best") == best
    assert checkpoints.find("elsewhere", str(tmp_path)) == latest
    assert checkpoints.find("elsewhere", best) == best


@pytest.mark.parametrize("which", ["latest", "best", "/no/such/model.ckpt-1"])
def test_find_says_where_there_is_none(tmp_path, which):
    with pytest.raises(UsageError, match="no checkpoint in "):
        checkpoints.find(str(tmp_path), which)


def test_find_names_what_there_is_instead(tmp_path):
    save(tmp_path, 7, a=1.0)
    with pytest.raises(UsageError, match=r"no checkpoint in model.ckpt-8 \(.*/model.ckpt-7\)"):
        checkpoints.find(str(tmp_path), "model.ckpt-8")


def test_step_of(tmp_path):
    assert checkpoints.step_of(save(tmp_path, 7, a=1.0)) == 7
    assert checkpoints.step_of(None) == 0


def test_a_checkpoint_of_the_same_variables_fits(tmp_path):
    checkpoint = save(tmp_path, 7, a=np.zeros([2, 3]), more=1.0)
    tf.compat.v1.get_variable("a", shape=[2, 3])
    checkpoints.check_fits(checkpoint, PARAMS, training=True)


def test_a_checkpoint_of_another_model_is_refused_by_name(tmp_path):
    checkpoint = save(tmp_path, 7, a=np.zeros([2, 3]))
    tf.compat.v1.get_variable("a", shape=[2, 5])
    tf.compat.v1.get_variable("b", shape=[4])
    message = r"a is \[2, 3\] in it, \[2, 5\] in this model; b \[4\] is not in it"
    with pytest.raises(UsageError, match=message):
        checkpoints.check_fits(checkpoint, PARAMS, training=True)


def test_an_average_that_was_not_trained_is_missed_in_evaluation_only(tmp_path):
    checkpoint = save(tmp_path, 7, a=1.0)
    tf.compat.v1.get_variable("a", shape=[])
    averaged = {**PARAMS, "ema_decay": 0.9}
    checkpoints.check_fits(checkpoint, averaged, training=True)
    with pytest.raises(UsageError, match="a/ExponentialMovingAverage"):
        checkpoints.check_fits(checkpoint, averaged, training=False)


def test_warm_start_takes_what_matches_and_lists_the_rest(tmp_path, session, capsys):
    checkpoint = save(tmp_path, 7, a=5.0, b=6.0, shaped=np.ones([2]))
    with session.graph.as_default():
        a = tf.compat.v1.get_variable("a", initializer=0.0)
        b = tf.compat.v1.get_variable("b", initializer=0.0)
        shaped = tf.compat.v1.get_variable("shaped", shape=[3])
        new = tf.compat.v1.get_variable("new", shape=[])
        step = tf.compat.v1.train.get_or_create_global_step()
        include = "a|shaped|new|global_step"
        checkpoints.warm_start(checkpoint, include, [a, b, shaped, new, step])
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
        checkpoints.warm_start(checkpoint, "enc", [encoder])


def test_an_average_begins_where_its_variable_does(tmp_path, session, minimize):
    checkpoint = save(tmp_path, 7, a=5.0)
    with session.graph.as_default():
        a = tf.compat.v1.get_variable("a", initializer=0.0)
        minimize(a * a, {**PARAMS, "ema_decay": 0.5}, 0.1)
        checkpoints.warm_start(checkpoint, "a", [a])
        session.run(tf.compat.v1.global_variables_initializer())
        assert session.run([a, ema.average_of(a)]) == [5.0, 5.0]


@pytest.mark.parametrize(
    ("metric", "values", "best"),
    [
        ("accuracy", [0.2, 0.5, 0.3], 2),
        ("average_loss", [0.2, 0.1, 0.3], 2),
        ("perplexity", [9.0, 8.0, 7.0], 3),
        ("accuracy", [float("nan"), 0.1, float("nan")], 2),
        ("average_loss", [0.5, float("nan")], 1),
        ("accuracy", [0.5, 0.5], 1),
    ],
)
def test_the_best_is_kept(tmp_path, metric, values, best):
    keeper = checkpoints.BestCheckpoint(str(tmp_path), metric)
    for step, value in enumerate(values, start=1):
        keeper.update(save(tmp_path, step, a=value), step, {metric: value})
    assert best_names(tmp_path) == [f"model.ckpt-{best}.index"]
    assert checkpoints.step_of(checkpoints.find(str(tmp_path), "best")) == best


def test_the_best_is_found_after_a_move(tmp_path):
    keeper = checkpoints.BestCheckpoint(str(tmp_path / "here"), "accuracy")
    keeper.update(save(tmp_path / "here", 1, a=1.0), 1, {"accuracy": 0.1})
    os.rename(tmp_path / "here", tmp_path / "there")
    best = checkpoints.find(str(tmp_path / "there"), "best")
    assert best == str(tmp_path / "there" / "best" / "model.ckpt-1")


def test_evaluations_without_gain_are_counted_over_restarts(tmp_path):
    for step, value in enumerate([0.5, 0.4, 0.3], start=1):
        keeper = checkpoints.BestCheckpoint(str(tmp_path), "accuracy")
        keeper.update(save(tmp_path, step, a=value), step, {"accuracy": value})
    assert keeper.evals_without_gain == 2


def test_a_checkpoint_that_is_gone_does_not_replace_the_best(tmp_path):
    keeper = checkpoints.BestCheckpoint(str(tmp_path), "accuracy")
    keeper.update(save(tmp_path, 1, a=1.0), 1, {"accuracy": 0.1})
    with pytest.raises(tf.errors.NotFoundError, match="not there any more"):
        keeper.update(str(tmp_path / "model.ckpt-2"), 2, {"accuracy": 0.2})
    assert best_names(tmp_path) == ["model.ckpt-1.index"]


@pytest.mark.parametrize(
    ("metric", "size"),
    [("accuracy", "largest"), ("average_loss", "smallest"), ("rmse", "smallest")],
)
def test_what_is_best_is_said(tmp_path, metric, size):
    wanted = checkpoints.BestCheckpoint(str(tmp_path), metric).wanted
    assert wanted == f"the checkpoint of the {size} {metric}"


def test_a_checkpoint_that_is_judged_again_is_not_counted_again(tmp_path):
    for step, value in ((1, 0.5), (2, 0.4), (2, 0.4), (1, 0.5)):
        keeper = checkpoints.BestCheckpoint(str(tmp_path), "accuracy")
        keeper.update(save(tmp_path, step, a=value), step, {"accuracy": value})
    assert keeper.evals_without_gain == 1


def test_a_copy_that_fails_leaves_the_former_best(tmp_path, monkeypatch):
    keeper = checkpoints.BestCheckpoint(str(tmp_path), "accuracy")
    keeper.update(save(tmp_path, 1, a=1.0), 1, {"accuracy": 0.1})
    better = save(tmp_path, 2, a=2.0)

    def full_disk(*args, **kwargs):
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(tf.io.gfile, "copy", full_disk)
        with pytest.raises(OSError, match="No space"):
            keeper.update(better, 2, {"accuracy": 0.2})
    best = checkpoints.find(str(tmp_path), "best")
    assert tf.train.load_variable(best, "a") == 1.0
    with open(tmp_path / "best" / "best.json") as file:
        assert json.load(file)["step"] == 1


def test_another_metric_is_refused(tmp_path):
    keeper = checkpoints.BestCheckpoint(str(tmp_path), "accuracy")
    keeper.update(save(tmp_path, 1, a=1.0), 1, {"accuracy": 0.1})
    with pytest.raises(UsageError, match="by 'accuracy', not by --best_metric=average_loss"):
        checkpoints.BestCheckpoint(str(tmp_path), "average_loss")


def test_a_metric_that_no_evaluation_gives_is_refused(tmp_path):
    keeper = checkpoints.BestCheckpoint(str(tmp_path), "bleu")
    with pytest.raises(UsageError, match="--best_metric=bleu is none of accuracy"):
        keeper.update("unused", 1, {"accuracy": 0.1, "confusion_matrix": [[1]]})
