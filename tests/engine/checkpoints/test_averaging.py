"""--checkpoint=average:N: the mean of the newest checkpoints."""

import numpy as np
import pytest
import tensorflow as tf

from common.errors import UsageError
from engine.checkpoints import averaging, find


@pytest.fixture
def model_dir(tmp_path, session):
    """Three checkpoints of a variable that is 1, 2 and 6, at steps 10, 20 and 30."""
    weights = tf.compat.v1.get_variable("weights", initializer=tf.zeros([2]))
    step = tf.compat.v1.train.get_or_create_global_step()
    saver = tf.compat.v1.train.Saver()
    for value, number in ((1.0, 10), (2.0, 20), (6.0, 30)):
        weights.load([value, -value], session)
        step.load(number, session)
        saver.save(session, str(tmp_path / "model.ckpt"), number)
    return str(tmp_path)


@pytest.mark.parametrize(("count", "mean"), [("2", 4.0), ("3", 3.0)])
def test_the_mean_of_the_newest(model_dir, count, mean):
    path = averaging.average_newest(model_dir, count)
    np.testing.assert_array_equal(tf.train.load_variable(path, "weights"), [mean, -mean])
    assert tf.train.load_variable(path, "weights").dtype == np.float32


def test_the_step_is_that_of_the_newest(model_dir):
    assert find.read_step(find.find_checkpoint(model_dir, "average:2")) == 30


def test_the_checkpoints_are_not_changed(model_dir):
    before = tf.train.get_checkpoint_state(model_dir)
    averaging.average_newest(model_dir, "3")
    assert tf.train.get_checkpoint_state(model_dir) == before
    assert tf.train.load_variable(tf.train.latest_checkpoint(model_dir), "weights")[0] == 6.0


def test_checkpoints_missing_from_the_state_file_are_averaged(model_dir):
    # As tf.train.Saver(max_to_keep=0) leaves it.
    tf.compat.v1.train.update_checkpoint_state(model_dir, f"{model_dir}/model.ckpt-30")
    path = averaging.average_newest(model_dir, "3")
    assert tf.train.load_variable(path, "weights")[0] == 3.0


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("average:4", r"average:4: .* has 3 checkpoints\. Use a smaller N"),
        ("average:1", "must be average:N"),
        ("average:all", "must be average:N"),
    ],
)
def test_invalid_counts(model_dir, which, message):
    with pytest.raises(UsageError, match=message):
        find.find_checkpoint(model_dir, which)
