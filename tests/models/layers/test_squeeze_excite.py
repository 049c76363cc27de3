"""Squeeze and excitation with swish, against the formula in NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from models.layers import device
from models.layers.squeeze_excite import squeeze_excite
from models.layers.swish import swish
from tests import numerics, variable_values

BATCH, HEIGHT, WIDTH, CHANNELS, HIDDEN = 5, 3, 7, 4, 2


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("fuses", [False, True])
def test_swish_is_x_times_its_sigmoid(fuses, session):
    values = np.linspace(-9, 9, 37)
    with device.scope({}, fuses=fuses):
        x = tf.constant(values, tf.float32)
        y = swish(x)
    found = session.run([y, tf.gradients(y, x)[0]])
    gate = sigmoid(values)
    numerics.assert_close(found[0], values * gate, depth=4)
    numerics.assert_close(found[1], gate + values * gate * (1 - gate), depth=8)


def test_channels_are_multiplied_by_gates_of_their_means(session):
    random = np.random.default_rng(3)
    images = random.normal(size=[BATCH, HEIGHT, WIDTH, CHANNELS]).astype(np.float32)
    y = squeeze_excite(tf.constant(images), HIDDEN)
    values = variable_values.assign_all(
        session, lambda variable: random.normal(size=variable.shape).astype(np.float32)
    )
    dense = {name.split("/", 1)[1]: value for name, value in values.items()}
    hidden = images.mean((1, 2)) @ dense["reduce/kernel"] + dense["reduce/bias"]
    gates = (hidden * sigmoid(hidden)) @ dense["expand/kernel"] + dense["expand/bias"]
    expected = images * sigmoid(gates)[:, np.newaxis, np.newaxis]
    numerics.assert_close(session.run(y), expected, terms=HEIGHT * WIDTH, depth=8)
