"""Tests of models.layers.subsampling."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from models.layers import device
from models.layers.subsampling import conv_subsampling
from tests import numerics

FILTERS = 5
V1 = tf.compat.v1


def subsample(frames, bins, use_tpu):
    """Returns the output for two recordings, and the gradients of the variables."""
    random = np.random.default_rng(0)
    x = random.normal(size=[2, frames, bins]).astype(np.float32)
    lengths = np.array([frames, frames // 2 + 1])
    masks = []
    for size in (-(-frames // 2), -(-frames // 4)):
        lengths = (lengths + 1) // 2
        masks.append((np.arange(size) < lengths[:, np.newaxis]).astype(np.float32))
    with tf.Graph().as_default(), V1.Session() as session:
        with device.scope({"use_tpu": use_tpu}):
            output = conv_subsampling(tf.constant(x), [tf.constant(m) for m in masks], FILTERS)
        variables = V1.trainable_variables()
        for variable in variables:
            value = random.normal(size=variable.shape.as_list()) / 3
            variable.load(value, session)
        weights = tf.constant(np.random.default_rng(1).normal(size=output.shape), tf.float32)
        gradients = tf.gradients(tf.reduce_sum(output * weights), variables)
        strides = {tuple(op.get_attr("strides")) for op in of_type(output.graph, "Conv2D")}
        output, *gradients = session.run([output, *gradients])
    return output, gradients, [v.op.name for v in variables], strides, (x, masks)


def of_type(graph, kind):
    return [op for op in graph.get_operations() if op.type == kind]


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(("frames", "bins"), [(12, 8), (13, 8), (12, 7), (7, 5)])
def test_a_tpu_core_computes_what_a_cpu_computes(frames, bins):
    expected, expected_gradients, names, _, _ = subsample(frames, bins, False)
    found, gradients, found_names, strides, _ = subsample(frames, bins, True)
    assert expected.shape == (2, -(-frames // 4), -(-bins // 4), FILTERS)
    assert found_names == names
    # Of whole blocks, without the strides whose gradients are slow on a TPU.
    assert strides == ({(1, 1, 1, 1)} if (frames, bins) == (12, 8) else {(1, 2, 2, 1)})
    terms = 9 * FILTERS
    numerics.assert_close(found, expected, terms=terms, depth=4)
    for gradient, of_cpu in zip(gradients, expected_gradients):
        numerics.assert_close(gradient, of_cpu, terms=terms * frames * bins, depth=4)


def test_the_convolutions_are_those_of_keras():
    output, _, _, _, (x, masks) = subsample(7, 5, False)
    random = np.random.default_rng(0)
    random.normal(size=x.shape)
    x = x[..., np.newaxis]
    with context.eager_mode():
        for mask, channels in zip(masks, (1, FILTERS)):
            shapes = [3, 3, channels, FILTERS], [FILTERS]
            layer = tf.keras.layers.Conv2D(FILTERS, 3, 2, activation="relu")
            padded = np.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)])
            layer.build(padded.shape)
            layer.set_weights([random.normal(size=shape) / 3 for shape in shapes])
            x = layer(padded).numpy() * mask[:, :, np.newaxis, np.newaxis]
    numerics.assert_close(output, x, terms=9 * FILTERS, depth=4)
