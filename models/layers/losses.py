"""Losses that several models share."""

from __future__ import annotations

import tensorflow as tf

from models.layers import device


def cross_entropy(labels, logits, label_smoothing):
    """Softmax cross-entropy with label smoothing.

    Label smoothing s gives the true class a probability of 1 - s + s / num_classes and each other
    class s / num_classes (Szegedy et al. 2015, arXiv:1512.00567, section 7).

    Args:
      labels: int32 `[...]`, or float32 `[..., num_classes]`, probabilities of the classes.
      logits: float32 `[..., num_classes]`.
      label_smoothing: float in [0, 1).

    Returns:
      float32 `[...]`, the loss of each example.
    """
    if labels.dtype.is_integer and not label_smoothing:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    num_classes = logits.shape.as_list()[-1]
    off = label_smoothing / num_classes
    if not labels.dtype.is_integer:
        targets = labels * (1.0 - label_smoothing) + off
    else:
        # In one op: with a large vocabulary each pass over the targets takes time.
        targets = tf.one_hot(labels, num_classes, 1.0 - label_smoothing + off, off)
    return _with_targets(logits, targets)


def _with_targets(logits, targets):
    """Softmax cross-entropy with targets that sum to 1, both float32 `[..., num_classes]`.

    Makes fewer passes over the logits than TensorFlow's op. A CPU uses softmax, a oneDNN kernel
    that is several times as fast; on a TPU XLA fuses both sums over the logits.
    """

    @tf.custom_gradient
    def cross_entropy(logits, targets):
        peak = tf.reduce_max(logits, -1, keepdims=True)
        if device.is_tpu():
            log_total = tf.math.log(tf.reduce_sum(tf.exp(logits - peak), -1, keepdims=True))
            # The gradient's products compute it again, and a division takes longer.
            probabilities = tf.exp(logits - peak - log_total)
        else:
            probabilities = tf.nn.softmax(logits)
            # The largest probability is exp(0) / total, and never 0.
            log_total = -tf.math.log(tf.reduce_max(probabilities, -1, keepdims=True))
        losses = tf.squeeze(peak + log_total, -1) - tf.reduce_sum(targets * logits, -1)

        def gradient(upstream):
            upstream = upstream[..., tf.newaxis]
            # The gradient of the targets, as of TensorFlow's op. It is not run for constant ones.
            surprise = peak + log_total - logits
            return upstream * (probabilities - targets), upstream * surprise

        return losses, gradient

    return cross_entropy(logits, targets)


def sigmoid_focal(is_class, logits, alpha, gamma):
    """Focal loss of independent classes (Lin et al. 2017, arXiv:1708.02002, eq. 5).

    Args:
      is_class: bool `[...]`.
      logits: float32 `[...]`.
      alpha: weight of True, and 1 - alpha of False.
      gamma: exponent of the probability of the wrong answer.

    Returns:
      float32 `[...]`, `-alpha * (1 - p)^gamma * log(p)` for the probability p of the right answer.
    """

    @tf.custom_gradient
    def focal(logits):
        # For all anchors and classes: each exponential and logarithm counts, and TensorFlow's
        # gradient has seven more of them.
        surprise = tf.nn.softplus(-logits)  # -log(p)
        log_wrong = -(surprise + logits)  # log(1 - p)
        weight, wrong = tf.exp(gamma * log_wrong), tf.exp(log_wrong)
        slope = -weight * (gamma * (1 - wrong) * surprise + wrong)
        return weight * surprise, lambda upstream: upstream * slope

    logits_of_answer = tf.where(is_class, logits, -logits)
    return tf.where(is_class, alpha, 1 - alpha) * focal(logits_of_answer)


def huber(errors, delta):
    """Huber loss: half the squared error, linear beyond `delta`.

    Args:
      errors: float32 `[...]`.
      delta: where the loss becomes linear.

    Returns:
      float32 `[...]`.
    """
    size = tf.abs(errors)
    quadratic = tf.minimum(size, delta)
    return quadratic * (size - quadratic / 2)


def smooth_l1(errors, beta):
    """Smooth L1 loss (Girshick 2015, arXiv:1504.08083): the absolute error, quadratic below `beta`.

    Args:
      errors: float32 `[...]`.
      beta: where the loss becomes linear, with a slope of 1.

    Returns:
      float32 `[...]`.
    """
    return huber(errors, beta) / beta
