"""Batch norm of frozen layers. Its statistics are tested in test_convnet.py and on the emulator."""

import numpy as np
import pytest
import tensorflow as tf

from models import normalization

VALUES = np.random.default_rng(0).normal(3, 2, [13, 4, 4, 2]).astype(np.float32)


def normalized(trainable, **options):
    params = {**normalization.default_params(), "trainable": trainable}
    with tf.compat.v1.variable_scope("block_1"):
        return normalization.batch_norm(tf.constant(VALUES), params, training=True, **options)


def update_ops():
    return tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)


@pytest.mark.parametrize("trainable", [".*", "block_1/.*", "block_1/batch_norm/gamma"])
def test_a_trained_layer_uses_and_averages_the_batch(session, trainable):
    result = normalized(trainable)
    session.run(tf.compat.v1.global_variables_initializer())
    np.testing.assert_allclose(session.run(result).mean(axis=(0, 1, 2)), 0, atol=1e-5)
    assert len(update_ops()) == 2


@pytest.mark.parametrize("trainable", ["logits/.*", "block_11/.*", "gamma", "block_1"])
def test_a_frozen_layer_uses_its_moving_averages_and_leaves_them(session, trainable):
    result = normalized(trainable)
    session.run(tf.compat.v1.global_variables_initializer())
    # They begin as mean 0 and variance 1.
    np.testing.assert_allclose(session.run(result), VALUES / np.sqrt(1.001), rtol=1e-5)
    assert not update_ops()


def test_gamma_can_begin_as_zero(session):
    result = normalized(".*", zero_gamma=True)
    session.run(tf.compat.v1.global_variables_initializer())
    np.testing.assert_array_equal(session.run(result), 0)
