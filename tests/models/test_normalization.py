"""Batch norm: frozen layers, strides, and a TPU's way beside TensorFlow's kernel.

On the emulator, and over its cores, it is tested in test_tpu_equals_cpu.py.
"""

import numpy as np
import pytest
import tensorflow as tf

from models import normalization

VALUES = np.random.default_rng(0).normal(3, 2, [13, 4, 4, 2]).astype(np.float32)


def normalized(trainable=".*", use_tpu=False, **options):
    params = {**normalization.default_params(), "trainable": trainable, "use_tpu": use_tpu}
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


@pytest.mark.parametrize("strides", [1, 2, 3])
@pytest.mark.parametrize("use_tpu", [False, True])
def test_strides_are_of_the_result_alone(session, strides, use_tpu):
    result = normalized(use_tpu=use_tpu, strides=strides)
    session.run(tf.compat.v1.global_variables_initializer())
    whole = (VALUES - VALUES.mean((0, 1, 2))) / np.sqrt(VALUES.var((0, 1, 2)) + 1e-3)
    np.testing.assert_allclose(
        session.run(result), whole[:, ::strides, ::strides], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("strides", [1, 3])
def test_a_tpu_has_the_gradients_and_averages_of_the_kernel(strides):
    def trained(use_tpu):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            params = {**normalization.default_params(), "use_tpu": use_tpu}
            x = tf.constant(VALUES)
            y = normalization.batch_norm(x, params, training=True, strides=strides)
            variables = tf.compat.v1.global_variables()
            weights = tf.constant(np.random.default_rng(1).normal(size=y.shape), tf.float32)
            gradients = tf.gradients(y * weights, [x, *variables[:2]])
            # Not the values of an untrained layer.
            session.run([v.assign([0.7, 1.9]) for v in variables])
            values = session.run(gradients)
            session.run(update_ops())
            return [*values, *session.run(variables)]

    for found, expected in zip(trained(use_tpu=True), trained(use_tpu=False)):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_a_tpu_averages_vectors_as_the_layer_does():
    def trained(use_tpu):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            params = {**normalization.default_params(), "use_tpu": use_tpu}
            x = tf.constant(np.random.default_rng(1).normal(size=[8, 4]), tf.float32)
            normalization.batch_norm(x, params, training=True)
            session.run(tf.compat.v1.global_variables_initializer())
            session.run(update_ops())
            return session.run(tf.compat.v1.global_variables())

    for found, expected in zip(trained(use_tpu=True), trained(use_tpu=False)):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_gamma_can_begin_as_zero(session):
    result = normalized(zero_gamma=True)
    session.run(tf.compat.v1.global_variables_initializer())
    np.testing.assert_array_equal(session.run(result), 0)


@pytest.mark.parametrize(("use_tpu", "offset"), [(False, 0), (False, 1000), (True, 0), (True, 3)])
def test_layer_norm(session, use_tpu, offset):
    x = offset + np.random.default_rng(1).standard_normal([13, 7, 12])
    normalized = normalization.layer_norm(tf.constant(x, tf.float32), use_tpu=use_tpu)
    session.run(tf.compat.v1.global_variables_initializer())
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(session.run(normalized), expected, atol=3e-4 if offset else 1e-5)
