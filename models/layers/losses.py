"""Losses that several models share."""

from __future__ import annotations

import tensorflow as tf

from models.layers import device


def cross_entropy(labels, logits, label_smoothing):
    """Softmax cross-entropy, float32 of the shape of `logits` without its last axis.

    Label smoothing s gives the true class 1 - s + s/num_classes and every other s/num_classes
    (Szegedy et al. 2015, arXiv:1512.00567, section 7).

    Args:
      labels: int32 `[...]`, or float32 `[..., num_classes]`: shares of the classes.
      logits: float32 `[..., num_classes]`.
      label_smoothing: in [0, 1).
    """
    num_classes = logits.shape.as_list()[-1]
    off = label_smoothing / num_classes
    if not labels.dtype.is_integer:
        targets = labels * (1.0 - label_smoothing) + off
    elif label_smoothing:
        # At once: with a vocabulary for classes each pass over the targets takes its time.
        targets = tf.one_hot(labels, num_classes, 1.0 - label_smoothing + off, off)
    else:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    return _with_targets(logits, targets)


def _with_targets(logits, targets):
    """Cross-entropy with targets that add up to 1.

    As TensorFlow's own, in fewer passes over the logits: on a CPU out of its softmax, which is
    oneDNN's and several times as fast; on a TPU both sums are of the logits as they are, so XLA
    takes them at once.
    """

    @tf.custom_gradient
    def cross_entropy(logits, targets):
        peak = tf.reduce_max(logits, -1, keepdims=True)
        if device.is_tpu():
            powers = tf.exp(logits - peak)
            total = tf.reduce_sum(powers, -1, keepdims=True)
            shares = powers / total
        else:
            shares = tf.nn.softmax(logits)
            # No share that is the largest is 0.
            total = 1 / tf.reduce_max(shares, -1, keepdims=True)
        log_total = tf.squeeze(peak + tf.math.log(total), -1)
        losses = log_total - tf.reduce_sum(targets * logits, -1)
        return losses, lambda of_loss: (of_loss[..., tf.newaxis] * (shares - targets), None)

    return cross_entropy(logits, targets)
