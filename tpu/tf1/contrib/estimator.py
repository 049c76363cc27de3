"""tf.contrib.estimator: its heads average the loss by default, those of 2.15 sum it."""

from __future__ import annotations

import tensorflow as tf
from tensorflow_estimator.python.estimator.canned import head

__all__ = ["binary_classification_head", "multi_class_head", "regression_head"]
_MEAN = tf.compat.v1.losses.Reduction.SUM_OVER_BATCH_SIZE


def binary_classification_head(
    weight_column=None,
    thresholds=None,
    label_vocabulary=None,
    loss_reduction=_MEAN,
    loss_fn=None,
    name=None,
):
    """Returns a head with sigmoid cross entropy."""
    return head._binary_logistic_head_with_sigmoid_cross_entropy_loss(
        weight_column, thresholds, label_vocabulary, loss_reduction, loss_fn, name
    )


def multi_class_head(
    n_classes,
    weight_column=None,
    label_vocabulary=None,
    loss_reduction=_MEAN,
    loss_fn=None,
    name=None,
):
    """Returns a head with softmax cross entropy."""
    return head._multi_class_head_with_softmax_cross_entropy_loss(
        n_classes, weight_column, label_vocabulary, loss_reduction, loss_fn, name
    )


def regression_head(
    weight_column=None,
    label_dimension=1,
    loss_reduction=_MEAN,
    loss_fn=None,
    inverse_link_fn=None,
    name=None,
):
    """Returns a head with mean squared error."""
    return head._regression_head(
        weight_column, label_dimension, loss_reduction, loss_fn, inverse_link_fn, name
    )
