"""Spectral normalization against PyTorch 2.13, in float64.

waves = lambda *shape, phase: np.sin(np.arange(np.prod(shape)) * 1.7 + phase).reshape(shape)
layer = torch.nn.Linear(18, 5, bias=False)
layer.weight.data = torch.tensor(waves(18, 5, phase=1).T)
layer = torch.nn.utils.spectral_norm(layer)
u = torch.tensor(waves(5, phase=2))
layer.weight_u.copy_(u / u.norm())
layer(torch.zeros(1, 18))
(layer.weight * torch.tensor(waves(18, 5, phase=3).T)).sum().backward()
print(layer.weight.T[:2], layer.weight_u, layer.weight_orig.grad.T[:2])
"""

import numpy as np
import pytest
import tensorflow as tf

from models.layers import spectral_norm
from tests import numerics

WEIGHT = [
    [0.17012031, 0.08640345, -0.19238553, -0.03682782, 0.20187566],
    [-0.01519331, -0.19796051, 0.06620556, 0.18090006, -0.11282151],
]
U = [0.59035195, -0.20775501, -0.53681577, 0.34608652, 0.44763309]
GRADIENT = [
    [0.12810033, -0.23719506, -0.06697777, 0.25445449, 0.00140765],
    [-0.14679231, 0.1090724, 0.11868555, -0.13965636, -0.08269764],
]
# Two products with the matrix, two norms and a quotient; the longest sum is over 18 rows.
ARITHMETIC = {"terms": 18, "depth": 5}


def waves(*shape, phase):
    return np.sin(np.arange(np.prod(shape)) * 1.7 + phase).reshape(shape)


@pytest.fixture
def normalized(session):
    """Returns `(kernel, normalized kernel, variable u)` of a 3x3 convolution from 2 to 5."""

    def build(training):
        kernel = tf.constant(waves(3, 3, 2, 5, phase=1), tf.float32)
        weight = spectral_norm.spectral_norm(kernel, training)
        (u,) = tf.compat.v1.global_variables()
        u.load(waves(5, phase=2), session)
        return kernel, weight, u

    return build


def test_a_training_step_is_that_of_pytorch(normalized, session):
    kernel, weight, u = normalized(training=True)
    upstream = tf.constant(waves(3, 3, 2, 5, phase=3), tf.float32)
    (gradient,) = tf.gradients(weight, kernel, upstream)
    weight, gradient = session.run([weight, gradient])
    numerics.assert_close(weight.reshape(18, 5)[:2], WEIGHT, **ARITHMETIC)
    numerics.assert_close(gradient.reshape(18, 5)[:2], GRADIENT, **ARITHMETIC)
    session.run(tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS))
    numerics.assert_close(session.run(u), U, **ARITHMETIC)


def test_the_power_iteration_finds_the_largest_singular_value(normalized, session):
    kernel, weight, _ = normalized(training=True)
    (update,) = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)
    for _ in range(100):
        session.run(update)
    largest = np.linalg.svd(waves(18, 5, phase=1), compute_uv=False)[0]
    numerics.assert_close(session.run(weight), session.run(kernel) / largest, **ARITHMETIC)


def test_an_evaluation_does_not_update_the_vector(normalized, session):
    _, weight, u = normalized(training=False)
    assert tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS) == []
    before = session.run(u)
    session.run(weight)
    np.testing.assert_array_equal(session.run(u), before)
    assert not tf.compat.v1.trainable_variables()


def test_a_layer_does_not_depend_on_the_scale_of_its_kernel(session):
    x = tf.constant(waves(2, 4, 3, 2, phase=4), tf.float32)
    y = spectral_norm.conv2d(x, 5, 3, training=False, name="conv")
    session.run(tf.compat.v1.global_variables_initializer())
    before = session.run(y)
    kernel = next(v for v in tf.compat.v1.global_variables() if "kernel" in v.name)
    kernel.load(8 * session.run(kernel), session)
    numerics.assert_close(session.run(y), before, terms=18, depth=5)
    assert np.abs(before).max() > 0.01
