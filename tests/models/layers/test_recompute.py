"""Rematerialization: the same loss and gradients from a second forward pass."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from engine.train import forward
from models import registry
from models.layers import dropout
from models.layers.recompute import recompute
from tests import numerics, variable_values
from tests.marks import slow

BATCH, LENGTH, FFN = 3, 7, 24
# Two layers forward and backward, 40 operations each; the longest sum is over the hidden units.
BERT = {"terms": FFN, "depth": 2 * 2 * 40}


def build(**changes):
    """Returns the loss and its gradients of a BERT with dropout, with equal weights and seeds."""
    model = registry.find("bert_tiny_classifier")
    sizes = {"num_layers": 2, "hidden_size": 8, "num_heads": 2, "ffn_size": FFN}
    sizes.update(vocab_size=11, max_positions=LENGTH, num_classes=2)
    params = {**model.default_params(), "trainable": ".*", **sizes, **changes}
    random = np.random.default_rng(0)
    features = {
        "input_ids": random.integers(1, 11, [BATCH, LENGTH]),
        "input_mask": np.arange(LENGTH) < [[7], [5], [2]],
        "segment_ids": np.zeros([BATCH, LENGTH]),
        "dropout_seed": [[3, 4]] * BATCH,
    }
    features = {name: tf.constant(np.array(value, np.int32)) for name, value in features.items()}
    outputs = forward.infer(model, features, params, training=True)
    losses = model.losses(features, tf.constant([0, 1, 1]), outputs, params)
    total = sum(tf.reduce_sum(loss.values) for loss in losses.values())
    variables = tf.compat.v1.trainable_variables()
    gradients = tf.gradients(total, variables)
    names = [variable.op.name for variable in variables]
    return {"loss": total, **dict(zip(names, map(tf.convert_to_tensor, gradients)))}


def values(**changes):
    """Returns the values of `build` in a new graph, and how often it computes attention."""
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        tensors = build(**changes)
        num_softmaxes = sum(op.type == "Softmax" for op in graph.get_operations())
        variable_values.assign_all(session, value_of)
        return session.run(tensors), num_softmaxes


@functools.cache
def cached_values(recompute, use_tpu=False):
    """`values`, read-only: several tests compare with the same."""
    return values(recompute=recompute, use_tpu=use_tpu)


def value_of(variable):
    """The value of a variable, a function of its name."""
    random = np.random.default_rng(list(variable.op.name.encode()))
    return random.normal(size=variable.shape, scale=0.4) + ("gamma" in variable.op.name)


@pytest.mark.parametrize("use_tpu", [False, slow(True)])
def test_loss_and_gradients_are_those_without(use_tpu):
    (kept, _), (again, _) = (cached_values(flag, use_tpu) for flag in (False, True))
    assert kept.keys() == again.keys()
    for name, value in kept.items():
        magnitude = max(1.0, np.abs(value).max())
        numerics.assert_close(again[name], value, **BERT, magnitude=magnitude)


@pytest.mark.slow
def test_other_dropout_in_the_second_pass_would_show(monkeypatch):
    kept, _ = cached_values(recompute=False)
    monkeypatch.setattr(dropout, "next_seeds", lambda: (tf.constant([5, 6]), 0))
    name = "bert/encoder/layer_1/output/dense/kernel"
    again, _ = values(recompute=True)
    assert np.abs(again[name] - kept[name]).max() > 0.01


@pytest.mark.slow
def test_gradients_in_bfloat16_are_those_without():
    both = (values(recompute=flag, precision="bfloat16") for flag in (False, True))
    (kept, _), (again, _) = both
    for name, value in kept.items():
        # Equal operations; only the sums of the gradients of `x` may be in another order.
        np.testing.assert_allclose(again[name], value, rtol=0.05, atol=0.05 * np.abs(value).max())


@pytest.mark.slow(cost=0.1)
def test_each_layer_is_computed_twice():
    assert cached_values(recompute=False)[1] == 2
    assert cached_values(recompute=True)[1] == 2 * 2


def test_dropout_without_seeds_is_repeated():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        with dropout.seeded({}):
            seeds = dropout.next_seeds()
            first = dropout.dropout(tf.ones([9, 9]), 0.5, True)
            with dropout.replayed(seeds):
                again = dropout.dropout(tf.ones([9, 9]), 0.5, True)
            other = dropout.dropout(tf.ones([9, 9]), 0.5, True)
        first, again, other = session.run([first, again, other])
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_a_tensor_from_outside_of_the_block_has_its_gradient(session):
    weights = tf.compat.v1.get_variable("weights", [3], initializer=tf.ones_initializer())
    bias = tf.square(weights)  # such as a learned attention bias
    with dropout.seeded({}):
        y = recompute(lambda x: x * bias, tf.constant([[1.0, 2.0, 4.0]]), {})
    session.run(tf.compat.v1.global_variables_initializer())
    assert session.run(tf.gradients(y, weights)[0]).tolist() == [2.0, 4.0, 8.0]
