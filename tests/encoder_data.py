"""Tiny encoders of the families of `models.text.encoders`, with weights that tests share."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from models.text import bert, encoders

# Odd sizes, so that no two axes have the same one.
SIZES = {
    "num_layers": 3,
    "hidden_size": 24,
    "num_heads": 3,
    "ffn_size": 50,
    "vocab_size": 101,
    "max_positions": 40,
}
FAMILIES = {
    "bert": {"family": "bert"},
    "albert": {"family": "albert", "embedding_size": 10},
    "electra": {"family": "electra", "embedding_size": 10},
    "electra_wide": {"family": "electra"},  # base and large have no projection
}


def params(family: str, **changes):
    """Returns the hyperparameters of a tiny encoder without dropout."""
    no_dropout = {"dropout": 0.0, "attention_dropout": 0.0}
    return {**bert.default_params(), **SIZES, **no_dropout, **FAMILIES[family], **changes}


def features(length: int = 13, batch: int = 4) -> dict[str, np.ndarray]:
    """Returns rows of 1 to `length` tokens; padding holds ids, too."""
    random = np.random.default_rng(0)
    lengths = np.linspace(1, length, batch).astype(int)
    rows = {
        "input_ids": random.integers(0, SIZES["vocab_size"], [batch, length]),
        "input_mask": np.arange(length) < lengths[:, np.newaxis],
        "segment_ids": random.integers(0, 2, [batch, length]),
    }
    return {name: value.astype(np.int32) for name, value in rows.items()}


def random_values(shapes: dict[str, list[int]], scale: float = 0.2) -> dict[str, np.ndarray]:
    """Returns values of variables, also of norms and biases, functions of their names."""
    found = {}
    for name, shape in shapes.items():
        random = np.random.default_rng(list(name.encode()))
        found[name] = random.normal(name.endswith("gamma"), scale, shape).astype(np.float32)
    return found


def encode(values, training=False):
    """Returns the sequence output and the pooled output of arrays `features`, as tensors."""
    tensors = {name: tf.constant(value) for name, value in features().items()}
    sequence_output = encoders.encode(tensors, values, training)
    return sequence_output, encoders.pool(sequence_output, values)


def loss_of(sequence_output, pooled_output):
    """Returns a scalar that depends on every token and on the pooled output."""
    weights = np.random.default_rng(7).normal(size=sequence_output.shape).astype(np.float32)
    return tf.reduce_sum(sequence_output * weights) + tf.reduce_sum(tf.square(pooled_output))


def run(build, values=None, scale=0.2):
    """Returns outputs, loss, gradients and values of the variables of a graph, as arrays.

    Args:
      build: function that returns the sequence output and the pooled output.
      values: `{name: array}`; None for `random_values`.
      scale: of these.
    """
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        outputs = build()
        variables = {v.op.name: v for v in tf.compat.v1.trainable_variables()}
        shapes = {name: variable.shape.as_list() for name, variable in variables.items()}
        values = values or random_values(shapes, scale)
        assert values.keys() == variables.keys()
        for name, variable in variables.items():
            variable.load(values[name], session)
        loss = loss_of(*outputs)
        gradients = tf.gradients(loss, list(variables.values()))
        gradients = dict(zip(variables, map(tf.convert_to_tensor, gradients)))
        sequence_output, pooled_output = outputs
        found = {"sequence_output": sequence_output, "pooled_output": pooled_output, "loss": loss}
        return session.run({**found, **gradients}), values


def largest_difference(ours, theirs):
    """Returns the largest difference, relative to the largest number of an array, at least 1."""
    assert ours.keys() == theirs.keys()
    differences = {
        name: np.abs(ours[name] - theirs[name]).max() / max(1.0, np.abs(theirs[name]).max())
        for name in ours
    }
    return max(differences.values())
