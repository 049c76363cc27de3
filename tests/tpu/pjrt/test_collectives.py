"""Exchanges of values between PJRT devices that XLA on a CPU cannot lower by itself."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.tpu.ops import tpu_ops

tf1 = tf.compat.v1
NUM_CORES = 2
NUMBERS = np.arange(8).reshape([2, NUM_CORES, 2])  # of a batch, core and example


def swap(features):
    """Each core gets the numbers of the other one."""
    return tpu_ops.collective_permute(features, [[0, 1], [1, 0]])


def swap_in_a_loop(features):
    return tf.while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, swap(x)), [0, features])[1]


def swap_small_integers(features):
    return swap(tf.cast(features, tf.uint8))


def transpose(features):
    """Core i gets example i of each core."""
    return tpu_ops.all_to_all(
        features, concat_dimension=0, split_dimension=0, split_count=2, group_assignment=[[0, 1]]
    )


def transpose_to_another_dimension(features):
    exchanged = tpu_ops.all_to_all(
        features, concat_dimension=1, split_dimension=0, split_count=2, group_assignment=[[0, 1]]
    )
    return tf.reshape(exchanged, [2, 1])  # from [1, 2]


def sum_unsigned(features):
    return tf1.tpu.cross_replica_sum(tf.cast(features, tf.uint32))


@pytest.mark.parametrize(
    ("exchange", "expected"),
    [
        (swap, NUMBERS[:, ::-1]),
        (swap_in_a_loop, NUMBERS[:, ::-1]),
        (swap_small_integers, NUMBERS[:, ::-1]),
        (transpose, NUMBERS.transpose(0, 2, 1)),
        (transpose_to_another_dimension, NUMBERS.transpose(0, 2, 1)),
        (sum_unsigned, np.tile(NUMBERS.sum(axis=1, keepdims=True), [1, NUM_CORES, 1])),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_exchange(predict, exchange, expected):
    received = predict(exchange)
    np.testing.assert_array_equal(received.reshape(NUMBERS.shape), expected)
