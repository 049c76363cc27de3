"""The multi-layer perceptron: shapes, dropout, and Keras' logits."""

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.peers import keras_twin
from common.params import Ints
from models.model import ModelError
from models.vision import mlp
from tests import numerics

PARAMS = {**mlp.default_params(), "num_classes": 3, "hidden_units": Ints([11, 6]), "dropout": 0.5}


def make_images():
    return np.random.default_rng(2).integers(0, 256, [13, 7, 5, 1]).astype(np.uint8)


def test_variables_and_logits_have_their_shapes():
    images = tf.compat.v1.placeholder(tf.float32, [13, 7, 5, 1])
    logits = mlp.inference({"image": images}, PARAMS, training=True)["logits"]
    assert logits.shape.as_list() == [13, 3]
    assert {v.op.name: v.shape.as_list() for v in tf.compat.v1.trainable_variables()} == {
        "dense_0/kernel": [35, 11],
        "dense_0/bias": [11],
        "dense_1/kernel": [11, 6],
        "dense_1/bias": [6],
        "logits/kernel": [6, 3],
        "logits/bias": [3],
    }


def test_the_same_weights_give_the_logits_of_keras(session, eager):
    with session.graph.as_default():
        logits = mlp.inference({"image": tf.constant(make_images())}, PARAMS, False)["logits"]
        session.run(tf.compat.v1.global_variables_initializer())
        variables = session.run({v.op.name: v for v in tf.compat.v1.global_variables()})
        ours = session.run(logits)
    twin = keras_twin.build(PARAMS, (7, 5, 1))
    keras_twin.set_weights(twin, variables)
    expected = twin(make_images(), training=False).numpy()
    # Scaled pixels, and three layers with bias, the largest of all 7x5 pixels.
    numerics.assert_close(ours, expected, terms=7 * 5, depth=1 + 3 * 2)


def test_dropout_acts_in_training_only(session):
    features = {"image": tf.constant(make_images())}
    trained = mlp.inference(features, PARAMS, training=True)["logits"]
    tf.compat.v1.get_variable_scope().reuse_variables()
    served = mlp.inference(features, PARAMS, training=False)["logits"]
    session.run(tf.compat.v1.global_variables_initializer())
    assert not np.array_equal(*(session.run(trained) for _ in range(2)))
    np.testing.assert_array_equal(*(session.run(served) for _ in range(2)))


@pytest.mark.parametrize("units", [[0], [12, -3]])
def test_hidden_units_must_be_above_0(units):
    with pytest.raises(ModelError, match=r"hidden_units=\[.*\] must be above 0"):
        mlp.check_params({**PARAMS, "hidden_units": Ints(units)})
