"""Counts of floating-point operations, judged by numbers worked out by hand."""

import pytest
import tensorflow as tf

from benchmarks import flops

BATCH, HEIGHT, WIDTH = 2, 9, 7


def two_layers(first, second):
    """Fetches of two convolutions with a gradient each, and of the images' gradient."""
    images = tf.compat.v1.placeholder(tf.float32, [BATCH, HEIGHT, WIDTH, 3])
    kernels = [
        tf.compat.v1.placeholder(tf.float32, shape) for shape in ((3, 3, 3, 4), (3, 3, 4, 5))
    ]
    x = tf.nn.conv2d(images, kernels[0], *first)
    x = tf.nn.conv2d(x, kernels[1], *second)
    ones = tf.ones(x.shape)
    return tf.gradients(x, kernels, ones), tf.gradients(x, images, ones)


@pytest.mark.parametrize(
    ("first", "second", "sizes"),
    [
        ((1, "VALID"), (1, "SAME"), (7 * 5, 7 * 5)),
        ((1, "VALID"), (1, "VALID"), (7 * 5, 5 * 3)),
        ((2, "SAME"), (1, "SAME"), (5 * 4, 5 * 4)),
        ((1, "SAME"), (2, "VALID"), (9 * 7, 4 * 3)),
    ],
)
def test_a_convolution_and_its_gradients_are_two_operations_a_weight_of_each_output(
    first, second, sizes
):
    of_kernels, of_images = two_layers(first, second)
    forward = [2 * BATCH * sizes[0] * 4 * 27, 2 * BATCH * sizes[1] * 5 * 36]
    # Of the first layer the product itself; of both the kernel's gradient, and one between them.
    assert flops.count(of_kernels) == 2 * forward[0] + 2 * forward[1]
    # What belongs to one fetch alone is not in the count of another.
    assert flops.count(of_images) == forward[0] + forward[1]


@pytest.mark.parametrize("use_resource", [False, True])
def test_what_is_merely_to_come_before_an_update_does_not_count(use_resource):
    images = tf.compat.v1.placeholder(tf.float32, [BATCH, HEIGHT, WIDTH, 3])
    kernel = tf.compat.v1.get_variable("kernel", [3, 3, 3, 4], use_resource=use_resource)
    x = tf.nn.conv2d(images, kernel, 1, "VALID")
    (gradient,) = tf.gradients(x, kernel, tf.ones(x.shape))
    nobody_reads = next(op for op in x.graph.get_operations() if "BackpropInput" in op.type)
    with tf.control_dependencies([nobody_reads]):
        update = kernel.assign(gradient).op
    assert flops.count(tf.group(update)) == 2 * BATCH * 7 * 5 * 4 * 27


def test_a_depthwise_kernel_does_not_sum_over_channels():
    images = tf.compat.v1.placeholder(tf.float32, [BATCH, HEIGHT, WIDTH, 3])
    kernel = tf.compat.v1.placeholder(tf.float32, [3, 3, 3, 1])
    x = tf.nn.depthwise_conv2d(images, kernel, [1, 2, 2, 1], "SAME")
    gradients = tf.gradients(x, [images, kernel], tf.ones(x.shape))
    once = 2 * BATCH * 5 * 4 * 3 * 9
    assert [flops.count(x), flops.count(gradients[0]), flops.count(gradients[1])] == [once] * 3


def test_products_of_matrices_and_what_is_no_tensor_count():
    x = tf.compat.v1.placeholder(tf.float32, [BATCH, 7])
    weights = tf.compat.v1.placeholder(tf.float32, [7, 5])
    product = tf.matmul(x, weights)
    assert flops.count({"logits": product, "step": tf.group(product)}) == 2 * BATCH * 7 * 5


def test_sizes_that_are_not_known_count_nothing():
    x = tf.compat.v1.placeholder(tf.float32, [None, 7])
    assert flops.count(x + 1.0) == 0
