"""Lookups of embedding tables: combiners, missing ids, partitions, activations of a TPU."""

import numpy as np
import pytest
import tensorflow as tf

from models.layers import embedding_table
from models.layers.embedding_table import EmbeddingTable, lookup
from tests import numerics

ROWS, WIDTH = 7, 3
IDS = np.array([[2, 5, 2], [-1, -1, -1], [0, -1, 6], [4, 4, -1]])
VALUES = np.random.default_rng(0).normal(size=(ROWS, WIDTH)).astype(np.float32)


def initial_values(shape, dtype=None, partition_info=None):
    first = partition_info.var_offset[0] if partition_info else 0
    return tf.constant(VALUES[first : first + int(shape[0])])


def table(combiner=None, ids=IDS):
    lookups = {"bag": lambda features: features["ids"]}
    return EmbeddingTable("t", ROWS, WIDTH, lookups, combiner, initializer=initial_values)


def run(session, found, ids=IDS):
    with session.graph.as_default():
        vectors = lookup(found, {"ids": tf.constant(ids, tf.int32)})
        session.run(tf.compat.v1.global_variables_initializer())
        return session.run(vectors)


@pytest.mark.parametrize(
    ("combiner", "divide"),
    [("sum", lambda n: 1), ("mean", lambda n: n), ("sqrtn", np.sqrt)],
)
def test_bags_are_those_of_numpy(session, combiner, divide):
    bags = [VALUES[row[row >= 0]] for row in IDS]
    expected = [bag.sum(axis=0) / divide(max(len(bag), 1)) for bag in bags]
    numerics.assert_close(run(session, table(combiner)), expected, terms=3, depth=2)


@pytest.mark.parametrize("ids", [IDS, IDS[:, 0]], ids=["several", "one"])
def test_missing_ids_have_a_vector_of_0(session, ids):
    expected = np.where((ids >= 0)[..., None], VALUES[ids], 0)
    np.testing.assert_array_equal(run(session, table(), ids), expected)


def test_missing_ids_update_no_other_row(session):
    with session.graph.as_default():
        vectors = lookup(table("sum"), {"ids": tf.constant([[3, -1]])})
        (variable,) = tf.compat.v1.trainable_variables()
        (gradient,) = tf.gradients(vectors, [variable])
        assert isinstance(gradient, tf.IndexedSlices)
        indices, values = session.run([gradient.indices, gradient.values])
    assert set(indices) == {3}
    np.testing.assert_array_equal(values.sum(axis=0), np.ones(WIDTH))


def test_partitions_hold_contiguous_rows(session):
    partitioner = tf.compat.v1.fixed_size_partitioner(2)
    with embedding_table.scope(partitioner=partitioner):
        found = run(session, table("sum"))
    with session.graph.as_default():
        parts = tf.compat.v1.trainable_variables()
        values = session.run(parts)
    assert [part.op.name for part in parts] == ["t/part_0", "t/part_1"]
    np.testing.assert_array_equal(np.concatenate(values), VALUES)
    numerics.assert_close(found[0], VALUES[[2, 5, 2]].sum(axis=0), terms=3)


def test_activations_replace_the_variable(graph):
    activation = tf.zeros([4, WIDTH])
    with embedding_table.scope(activations={"bag": activation}):
        assert lookup(table("sum"), {}) is activation
    assert not tf.compat.v1.global_variables()


def test_an_unknown_combiner_is_an_error():
    with pytest.raises(ValueError, match="t: combiner 'max' must be one of"):
        table("max")
