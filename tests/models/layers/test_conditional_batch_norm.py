"""Conditional batch norm, against the formula in NumPy."""

import numpy as np
import tensorflow as tf

from models.layers import normalization
from models.layers.conditional_batch_norm import conditional_batch_norm
from tests import numerics, variable_values

CLASSES = [2, 0, 2]


def test_a_class_changes_scale_and_offset(session):
    random = np.random.default_rng(1)
    images = random.normal(2, 3, size=[3, 4, 5, 2]).astype(np.float32)
    params = normalization.default_params()
    one_hot = tf.one_hot(CLASSES, 3)
    y = conditional_batch_norm(tf.constant(images), one_hot, params, training=True)
    values = variable_values.assign_all(
        session, lambda variable: random.normal(size=variable.shape).astype(np.float32)
    )
    of = {name.rpartition("/")[2]: value for name, value in values.items()}
    mean, variance = images.mean((0, 1, 2)), images.var((0, 1, 2))
    normal = (images - mean) / np.sqrt(variance + params["batch_norm_epsilon"])
    normal = of["gamma"] * normal + of["beta"]
    scale, offset = (of[name][CLASSES][:, None, None] for name in ("class_scale", "class_offset"))
    expected = normal * (1 + scale) + offset
    numerics.assert_close(session.run(y), expected, terms=3 * 4 * 5, depth=6)


def test_it_starts_as_plain_batch_norm(session):
    images = np.random.default_rng(1).normal(size=[3, 4, 5, 2]).astype(np.float32)
    params = normalization.default_params()
    with tf.compat.v1.variable_scope("shared", reuse=tf.compat.v1.AUTO_REUSE):
        both = [
            conditional_batch_norm(tf.constant(images), classes, params, training=True)
            for classes in (tf.one_hot(CLASSES, 3), None)
        ]
    session.run(tf.compat.v1.global_variables_initializer())
    conditional, plain = session.run(both)
    np.testing.assert_array_equal(conditional, plain)
