"""The graph of the CPU that `compare` trains beside emulated cores."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

from tpu.programs import cpu_graph

tf1 = tf.compat.v1


@pytest.mark.parametrize("is_of_tpu", [True, False])
def test_variables_of_a_loop_are_read_after_their_update(is_of_tpu):
    """dynamic_rnn caches them on a CPU, but not in the training loop of a TPU."""
    variables = cpu_graph.variables_of_a_tpu() if is_of_tpu else contextlib.nullcontext()
    with variables, tf.Graph().as_default(), tf1.Session() as session:
        tf1.nn.dynamic_rnn(tf1.nn.rnn_cell.BasicRNNCell(3), tf.ones([2, 5, 7]), dtype=tf.float32)
        bias = tf1.trainable_variables("rnn/basic_rnn_cell/bias")[0]
        with tf.control_dependencies([bias.assign_add(tf.ones([3]), read_value=False)]):
            average = tf.identity(bias)
        session.run(tf1.global_variables_initializer())
        expected = np.ones(3) if is_of_tpu else np.zeros(3)
        np.testing.assert_array_equal(session.run(average), expected)


@pytest.mark.parametrize(
    ("optimizer", "is_found"),
    [
        (tf1.train.MomentumOptimizer(0.1, 0.9), True),
        (tf1.train.RMSPropOptimizer(0.1), True),
        (tf1.train.AdagradOptimizer(0.1), False),
        (tf1.train.AdamOptimizer(0.1), False),
    ],
)
def test_updates_of_the_rows_of_a_batch(optimizer, is_found, tmp_path):
    def model_fn(features, mode):
        table = tf1.get_variable("table", [5, 3])
        loss = tf.reduce_sum(tf.nn.embedding_lookup(table, features))
        train_op = optimizer.minimize(loss, tf1.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    estimator = tf.estimator.Estimator(model_fn, tmp_path)
    with (
        cpu_graph.variables_of_a_tpu(),
        cpu_graph.ordered_updates() as facts,
        tf.Graph().as_default(),
    ):
        tf1.train.create_global_step()
        estimator._call_model_fn(tf.constant([1, 3]), None, "train", estimator.config)
    assert list(facts.row_updates) == ["table"] * is_found
