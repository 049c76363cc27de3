"""Losses of semantic segmentation: cross-entropy, focal loss and Dice loss, with ignored pixels.

Each returns values and weights of a `models.model.Loss`, one number per image. The weights are a
function of the labels only, so the loss of a global batch does not depend on how images with
different numbers of ignored pixels are distributed over replicas.
"""

from __future__ import annotations

import tensorflow as tf

from common.constants import IGNORED_CLASS
from models.layers import device

# 1 - p of the focal loss is at least this, so that its power has a finite gradient at p = 1.
_SMALLEST = 1e-7


def cross_entropy(labels, logits, class_weights=(), focal_gamma=0.0):
    """Softmax cross-entropy or focal loss, the weighted mean over the labeled pixels of an image.

    The focal loss of a pixel with the probability p of its class is `(1 - p) ** gamma * -log(p)`
    (Lin et al. 2017, arXiv:1708.02002).

    Args:
      labels: uint8 `[batch, height, width]`, the class of each pixel, or `IGNORED_CLASS`.
      logits: float32 `[batch, height, width, num_classes]`.
      class_weights: weight of the pixels of each class; () for 1.
      focal_gamma: gamma of the focal loss; 0 is cross-entropy.

    Returns:
      (values, weights), float32 `[batch]`. The weights are the sums of the weights of the labeled
      pixels; an image without labeled pixels has a value and a weight of 0.
    """
    is_labeled = tf.not_equal(labels, IGNORED_CLASS)
    classes = tf.where(is_labeled, tf.cast(labels, tf.int32), 0)
    values = _of_pixels(classes, logits)
    if focal_gamma:
        values *= tf.maximum(-tf.math.expm1(-values), _SMALLEST) ** focal_gamma
    weights = tf.cast(is_labeled, tf.float32)
    if class_weights:
        table = tf.constant(class_weights, tf.float32)
        # Not a gather of each pixel, which is slow on a TPU.
        weights *= tf.reduce_sum(tf.one_hot(classes, len(class_weights)) * table, -1)
    total, weight = tf.reduce_sum(values * weights, [1, 2]), tf.reduce_sum(weights, [1, 2])
    return tf.math.divide_no_nan(total, weight), weight


def _of_pixels(classes, logits):
    """Returns the softmax cross-entropy of each pixel, float32 `[batch, height, width]`."""
    if device.is_tpu():
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=classes, logits=logits)
    # Reductions over a few classes are slow on a CPU in the last dimension, and fast in the first.
    logits = tf.transpose(logits, [3, 0, 1, 2])
    logits -= tf.stop_gradient(tf.reduce_max(logits, 0))
    num_classes, largest = logits.shape.as_list()[0], tf.reduce_max(classes)
    is_class = tf.debugging.Assert(largest < num_classes, ["not a class:", largest])
    with tf.control_dependencies([is_class]):
        targets = tf.one_hot(classes, num_classes, axis=0)
    return tf.math.log(tf.reduce_sum(tf.exp(logits), 0)) - tf.reduce_sum(logits * targets, 0)


def dice(labels, logits, class_weights=()):
    """Soft Dice loss (Milletari et al. 2016, arXiv:1606.04797) of the classes of an image.

    The loss of a class is `1 - 2 * sum(p * t) / (sum(p) + sum(t))` over the labeled pixels of the
    image, where p is the probability of the class and t is 1 for its pixels. Classes without
    pixels in the image are left out: their loss would be 1 for any small p.

    Args:
      labels: uint8 `[batch, height, width]`, the class of each pixel, or `IGNORED_CLASS`.
      logits: float32 `[batch, height, width, num_classes]`.
      class_weights: weight of each class; () for 1.

    Returns:
      (values, weights), float32 `[batch]`. The weights are the sums of the weights of the classes
      that the image has.
    """
    num_classes = logits.shape.as_list()[-1]
    # All zeros for IGNORED_CLASS.
    targets = tf.one_hot(tf.cast(labels, tf.int32), num_classes)
    is_labeled = tf.cast(tf.not_equal(labels, IGNORED_CLASS), tf.float32)
    probabilities = tf.nn.softmax(logits) * is_labeled[..., tf.newaxis]
    sizes = tf.reduce_sum(targets, [1, 2])
    shared = tf.reduce_sum(probabilities * targets, [1, 2])
    sums = tf.reduce_sum(probabilities, [1, 2]) + sizes
    values = 1 - 2 * tf.math.divide_no_nan(shared, sums)  # [batch, num_classes]
    weights = tf.cast(sizes > 0, tf.float32)
    if class_weights:
        weights *= tf.constant(class_weights, tf.float32)
    weight = tf.reduce_sum(weights, -1)
    return tf.math.divide_no_nan(tf.reduce_sum(values * weights, -1), weight), weight
