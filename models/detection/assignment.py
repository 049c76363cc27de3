"""Assigns the boxes of an image to anchors: the targets of a dense detector.

It is computed on the device. For a 640x640 image with 100 boxes that takes XLA one fused pass over
7.7 million pairs, while targets from the host would be 1.5 MB per image of infeed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from models.detection import boxes as box_ops
from models.layers import device
from models.model import ModelError

BACKGROUND, IGNORED = -1, -2


class Targets(NamedTuple):
    """Targets of anchors.

    Attributes:
      classes: int32 `[batch, n]`; `BACKGROUND`, or `IGNORED` for anchors without a class loss.
      boxes: float32 `[batch, n, 4]`, the box of each positive anchor; any box for the others.
    """

    classes: Any
    boxes: Any


def default_params():
    """Returns the hyperparameters of the assignment."""
    return {
        # An anchor is positive from this IoU with a box, background below the other one.
        "positive_iou": 0.5,
        "negative_iou": 0.4,
        # A background anchor with this part of its area inside a crowd is ignored; 1.1: none is.
        "crowd_overlap": 0.5,
    }


def check_params(params):
    """Raises `ModelError` for a value of `default_params` out of range."""
    low, high = params["negative_iou"], params["positive_iou"]
    if not 0 < low <= high < 1:
        raise ModelError(f"negative_iou={low}, positive_iou={high} must be in order, in (0, 1)")
    if params["crowd_overlap"] <= 0:
        raise ModelError(f"crowd_overlap={params['crowd_overlap']} must be above 0")


def assign(anchors, labels, params) -> Targets:
    """Assigns the boxes of each image to anchors (Lin et al. 2017, arXiv:1708.02002, section 4).

    An anchor gets the box with which it has the largest IoU, if that is at least `positive_iou`.
    The anchor that has the largest IoU with a box gets that box, if they overlap at all: so each
    box has an anchor, unless two boxes have the same best anchor: the first box gets it.

    Args:
      anchors: float32 `[n, 4]`.
      labels: `{"boxes": float32 [batch, m, 4], "classes": int32 [batch, m], "is_crowd": int32
        [batch, m]}`. Boxes of class -1 are padding.
      params: see `default_params`.

    Returns:
      `Targets`.
    """
    boxes, classes = labels["boxes"], labels["classes"]
    is_real, is_crowd = classes >= 0, labels["is_crowd"] > 0
    is_box = is_real & ~is_crowd
    overlap = box_ops.iou(boxes, anchors)  # [batch, m, n]
    overlap = tf.where(is_box[..., tf.newaxis], overlap, -1.0)
    best_anchor = tf.argmax(overlap, axis=2, output_type=tf.int32)  # [batch, m]
    has_anchor = is_box & (tf.reduce_max(overlap, axis=2) > 0)
    best_anchor = tf.where(has_anchor, best_anchor, -1)
    is_best = tf.equal(best_anchor[..., tf.newaxis], tf.range(anchors.shape[0]))  # [batch, m, n]
    # Of several boxes with the same best anchor, argmax finds the first.
    overlap = tf.where(is_best, 2.0, overlap)
    matched = tf.argmax(overlap, axis=1, output_type=tf.int32)  # [batch, n]
    best_overlap = tf.reduce_max(overlap, axis=1)

    in_crowd = box_ops.intersection(boxes, anchors) / box_ops.area(anchors)
    in_crowd = tf.where((is_real & is_crowd)[..., tf.newaxis], in_crowd, 0.0)
    is_ignored = best_overlap >= params["negative_iou"]
    is_ignored |= tf.reduce_max(in_crowd, axis=1) >= params["crowd_overlap"]
    is_positive = best_overlap >= params["positive_iou"]
    rest = tf.where(is_ignored, IGNORED, BACKGROUND)
    return Targets(
        classes=tf.where(is_positive, _select(classes, matched), rest),
        boxes=tf.stack([_select(side, matched) for side in tf.unstack(boxes, axis=-1)], axis=-1),
    )


def _select(values, index):
    """Returns `values` `[batch, m]` at `index` `[batch, n]`: `[batch, n]`, exactly."""
    if not device.is_tpu():
        return tf.gather(values, index, batch_dims=1)
    # XLA fuses this into what computes the index. A gather on a TPU reads row by row, and a product
    # with one-hot vectors rounds to bfloat16.
    is_selected = tf.equal(tf.range(values.shape[1])[:, tf.newaxis], index[:, tf.newaxis])
    zero = tf.zeros([], values.dtype)
    return tf.reduce_sum(tf.where(is_selected, values[..., tf.newaxis], zero), axis=1)
