"""tf.contrib.nn."""

from __future__ import annotations

import tensorflow as tf

__all__ = [
    "deprecated_flipped_sigmoid_cross_entropy_with_logits",
    "deprecated_flipped_softmax_cross_entropy_with_logits",
    "deprecated_flipped_sparse_softmax_cross_entropy_with_logits",
]
_nn = tf.compat.v1.nn


def deprecated_flipped_softmax_cross_entropy_with_logits(logits, labels, dim=-1, name=None):
    """See tf.nn.softmax_cross_entropy_with_logits."""
    return _nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits, axis=dim, name=name)


def deprecated_flipped_sparse_softmax_cross_entropy_with_logits(logits, labels, name=None):
    """See tf.nn.sparse_softmax_cross_entropy_with_logits."""
    return _nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits, name=name)


def deprecated_flipped_sigmoid_cross_entropy_with_logits(logits, targets, name=None):
    """See tf.nn.sigmoid_cross_entropy_with_logits."""
    return _nn.sigmoid_cross_entropy_with_logits(labels=targets, logits=logits, name=name)
