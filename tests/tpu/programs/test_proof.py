"""Trainings of `compare` that look for the reason of a difference."""

import pytest
import tensorflow as tf

from tpu.programs import proof


@pytest.mark.parametrize(
    ("num_cores", "groups", "shift"),
    [
        (3, [], 1),
        (4, [[[0, 1], [2, 3]]], 2),
        (4, [[[0, 2], [3, 1]]], 1),
        (6, [[[0, 1, 2], [3, 4, 5]], [[0, 3], [1, 4], [2, 5]]], 3),
        (4, [[[0, 1, 2], [3]]], 0),
    ],
)
def test_an_exchange_of_batches_keeps_groups(num_cores, groups, shift):
    assert proof.find_shift(num_cores, groups) == shift


def test_groups_of_sums():
    with tf.Graph().as_default(), proof.groups_of_sums() as groups:
        for assignment in ([[0, 1, 2, 3]], [[0, 1], [2, 3]]):
            tf.compat.v1.tpu.cross_replica_sum(tf.ones([3]), assignment)
    assert groups == [[[0, 1], [2, 3]]]
