"""Batch norm: frozen layers, strides, and a TPU's way beside TensorFlow's kernel.

On the emulator, and over its cores, it is tested in test_tpu_equals_cpu.py.
"""

import numpy as np
import pytest
import tensorflow as tf

from models.layers import device, normalization
from tests import numerics

VALUES = np.random.default_rng(0).normal(3, 2, [13, 4, 4, 2]).astype(np.float32)
# Sums over all but the channels. Of both statistics sum and share, difference and square; epsilon,
# root and scale; product and sum with gamma and beta.
BATCH_NORM = {"terms": 13 * 4 * 4, "depth": 4 + 3 + 2}


def batch_normalized(epsilon=1e-3):
    """Returns the batch norm of `VALUES` in float64."""
    values = VALUES.astype(np.float64)
    return (values - values.mean((0, 1, 2))) / np.sqrt(values.var((0, 1, 2)) + epsilon)


def normalized(trainable=".*", use_tpu=False, **options):
    params = {**normalization.default_params(), "trainable": trainable}
    with device.scope({"use_tpu": use_tpu}), tf.compat.v1.variable_scope("block_1"):
        return normalization.batch_norm(tf.constant(VALUES), params, training=True, **options)


def update_ops():
    return tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)


@pytest.mark.parametrize("trainable", [".*", "block_1/.*", "block_1/batch_norm/gamma"])
def test_a_trained_layer_uses_and_averages_the_batch(session, trainable):
    result = normalized(trainable)
    session.run(tf.compat.v1.global_variables_initializer())
    numerics.assert_close(session.run(result), batch_normalized(), **BATCH_NORM)
    assert len(update_ops()) == 2


@pytest.mark.parametrize("trainable", ["logits/.*", "block_11/.*", "gamma", "block_1"])
def test_a_frozen_layer_uses_its_moving_averages_and_leaves_them(session, trainable):
    result = normalized(trainable)
    session.run(tf.compat.v1.global_variables_initializer())
    # They begin as mean 0 and variance 1.
    numerics.assert_close(session.run(result), VALUES / np.sqrt(1.001), depth=3 + 2)
    assert not update_ops()


@pytest.mark.parametrize("strides", [1, 2, 3])
@pytest.mark.parametrize("use_tpu", [False, True])
def test_strides_are_of_the_result_alone(session, strides, use_tpu):
    result = normalized(use_tpu=use_tpu, strides=strides)
    session.run(tf.compat.v1.global_variables_initializer())
    found = session.run(result)
    kept = np.s_[:, ::strides, ::strides]
    numerics.assert_close(found, batch_normalized()[kept], **BATCH_NORM)
    numerics.assert_far(found, batch_normalized(epsilon=1e-2)[kept], **BATCH_NORM)


@pytest.mark.parametrize("strides", [1, 3])
def test_a_tpu_has_the_gradients_and_averages_of_the_kernel(strides):
    def trained(use_tpu):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            x = tf.constant(VALUES)
            with device.scope({"use_tpu": use_tpu}):
                params = normalization.default_params()
                y = normalization.batch_norm(x, params, training=True, strides=strides)
            variables = tf.compat.v1.global_variables()
            weights = tf.constant(np.random.default_rng(1).normal(size=y.shape), tf.float32)
            gradients = tf.gradients(y * weights, [x, *variables[:2]])
            # Not the values of an untrained layer.
            session.run([v.assign([0.7, 1.9]) for v in variables])
            values = session.run(gradients)
            session.run(update_ops())
            return [*values, *session.run(variables)]

    there_and_back = {**BATCH_NORM, "depth": 2 * BATCH_NORM["depth"]}
    for found, expected in zip(trained(use_tpu=True), trained(use_tpu=False)):
        numerics.assert_close(found, expected, **there_and_back)


def test_a_tpu_averages_vectors_as_the_layer_does():
    def trained(use_tpu):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            x = tf.constant(np.random.default_rng(1).normal(size=[8, 4]), tf.float32)
            with device.scope({"use_tpu": use_tpu}):
                normalization.batch_norm(x, normalization.default_params(), training=True)
            session.run(tf.compat.v1.global_variables_initializer())
            session.run(update_ops())
            return session.run(tf.compat.v1.global_variables())

    for found, expected in zip(trained(use_tpu=True), trained(use_tpu=False)):
        numerics.assert_close(found, expected, **{**BATCH_NORM, "terms": 8})


def test_gamma_can_begin_as_zero(session):
    result = normalized(zero_gamma=True)
    session.run(tf.compat.v1.global_variables_initializer())
    np.testing.assert_array_equal(session.run(result), 0)


@pytest.mark.parametrize(("use_tpu", "offset"), [(False, 0), (False, 1000), (True, 0), (True, 3)])
def test_layer_norm(session, use_tpu, offset):
    channels = 12
    x = offset + np.random.default_rng(1).standard_normal([13, 7, channels])
    x = x.astype(np.float32)
    with device.scope({"use_tpu": use_tpu}):
        normalized = normalization.layer_norm(tf.constant(x))
    session.run(tf.compat.v1.global_variables_initializer())
    x = x.astype(np.float64)
    variance = x.var(-1, keepdims=True)
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(variance + 1e-6)
    found = session.run(normalized)
    # The mean, or in one pass the mean square, cancels with numbers of its size.
    lost = (x**2 / variance if use_tpu else np.abs(x) / variance**0.5).max()
    arithmetic = {"terms": channels, "depth": 3, "magnitude": lost}
    numerics.assert_close(found, expected, **arithmetic)
    unbiased = expected * ((channels - 1) / channels) ** 0.5
    numerics.assert_far(found, unbiased, **arithmetic)
