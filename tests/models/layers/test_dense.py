"""Tests of models.layers.dense."""

import numpy as np
import tensorflow as tf

from models.layers import dense


def test_a_dense_layer_is_that_of_keras():
    x = np.random.RandomState(0).standard_normal([3, 7, 5]).astype(np.float32)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        keras = tf.keras.layers.Dense(4, bias_initializer="random_normal")
        expected = keras(x)
        kernel, bias = dense.kernel_and_bias("output", [5, 4], tf.float32)
        y = dense.add_bias(tf.matmul(tf.reshape(x, [21, 5]), kernel), bias, [3, -1, 4])
        assert [variable.op.name for variable in (kernel, bias)] == ["output/kernel", "output/bias"]

        session.run(tf.compat.v1.global_variables_initializer())
        np.testing.assert_array_equal(session.run(bias), np.zeros(4))
        session.run([kernel.assign(keras.kernel), bias.assign(keras.bias)])
        expected, y = session.run([expected, y])
        # 5 products of numbers around 1 in float32
        np.testing.assert_allclose(y, expected, rtol=0, atol=5e-6)


def test_tensorflow_does_not_compute_product_and_bias_as_one_operation():
    options = tf.compat.v1.RunOptions(output_partition_graphs=True)
    metadata = tf.compat.v1.RunMetadata()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        kernel, bias = dense.kernel_and_bias("output", [5, 4], tf.float32)
        rows = tf.compat.v1.placeholder(tf.float32, [None, 5])
        product = tf.matmul(rows, kernel)
        y = dense.add_bias(product, bias, [-1, 7, 4])
        z = tf.nn.bias_add(product, bias)
        session.run(tf.compat.v1.global_variables_initializer())

        def is_fused(fetch):
            session.run(fetch, {rows: np.zeros([21, 5])}, options, metadata)
            (graph,) = metadata.partition_graphs
            return any("Fused" in node.op for node in graph.node)

        assert is_fused(z)
        assert not is_fused(y)
