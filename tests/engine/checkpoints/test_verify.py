"""Verification of checkpoints: are they readable and finite, do they match the graph?"""

import os

import numpy as np
import pytest
import tensorflow as tf

from common.errors import UsageError
from engine.checkpoints import verify, writer
from engine.train import optimizers

PARAMS = optimizers.default_params()


def save(folder, step, **values):
    """Writes a checkpoint of float32 variables and a global step; returns its path."""
    path = str(folder / f"model.ckpt-{step}")
    values = {name: np.float32(value) for name, value in values.items()}
    writer.write(path, {**values, "global_step": np.int64(step)})
    return path


def test_a_checkpoint_with_the_same_variables_matches(tmp_path):
    checkpoint = save(tmp_path, 7, a=np.zeros([2, 3]), more=1.0)
    tf.compat.v1.get_variable("a", shape=[2, 3])
    verify.check_variables(checkpoint, PARAMS, training=True)


def test_differing_variables_are_named(tmp_path):
    checkpoint = save(tmp_path, 7, a=np.zeros([2, 3]))
    tf.compat.v1.get_variable("a", shape=[2, 5])
    tf.compat.v1.get_variable("b", shape=[4])
    message = r"a is \[2, 3\] in the checkpoint, \[2, 5\] in this model; b \[4\] is missing from"
    with pytest.raises(UsageError, match=message):
        verify.check_variables(checkpoint, PARAMS, training=True)


def test_a_removed_checkpoint_is_not_checked(tmp_path):
    tf.compat.v1.get_variable("a", shape=[])
    verify.check_variables(str(tmp_path / "model.ckpt-7"), PARAMS, training=True)


def test_a_missing_ema_is_an_error_outside_training_only(tmp_path):
    checkpoint = save(tmp_path, 7, a=1.0)
    tf.compat.v1.get_variable("a", shape=[])
    params = {**PARAMS, "ema_decay": 0.9}
    verify.check_variables(checkpoint, params, training=True)
    with pytest.raises(UsageError, match="a/ExponentialMovingAverage"):
        verify.check_variables(checkpoint, params, training=False)


@pytest.mark.parametrize(("decay", "is_reported"), [(0.0, True), (0.9, False)])
def test_a_run_without_ema_decay_says_that_it_ignores_the_ema(tmp_path, capsys, decay, is_reported):
    checkpoint = save(tmp_path, 7, **{"a": 1.0, "a/ExponentialMovingAverage": 2.0})
    tf.compat.v1.get_variable("a", shape=[])
    verify.check_variables(checkpoint, {**PARAMS, "ema_decay": decay}, training=False)
    out = capsys.readouterr().out
    assert ("has moving averages of 1 weights (EMA), but this run uses" in out) == is_reported


@pytest.mark.parametrize("step", [np.array([1, 2]), b"text", np.float32(1)])
def test_global_step_must_be_an_integer(tmp_path, step):
    path = str(tmp_path / "model.ckpt-1")
    writer.write(path, {"global_step": step})
    assert verify.find_problem(path) == "its global_step is missing, or not an integer"


def test_values_must_be_finite(tmp_path):
    path = save(tmp_path, 1, a=np.inf)
    assert verify.find_problem(path) == "a is not finite"
    assert verify.find_problem(path, is_trained=False) is None


def test_string_variables_are_valid(tmp_path):
    path = str(tmp_path / "model.ckpt-1")
    writer.write(path, {"text": b"text", "global_step": np.int64(1)})
    assert verify.find_problem(path) is None


def test_find_newest_valid_skips_a_broken_checkpoint_and_changes_nothing(tmp_path, capsys):
    good, broken = save(tmp_path, 20, a=1.0), save(tmp_path, 30, a=1.0)
    os.truncate(f"{broken}.data-00000-of-00001", 1)
    before = sorted(os.listdir(tmp_path))
    assert verify.find_newest_valid(str(tmp_path)) == good
    assert f"{broken} cannot be used: " in capsys.readouterr().out
    assert sorted(os.listdir(tmp_path)) == before
