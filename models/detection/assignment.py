"""Assigns the boxes of an image to anchors: the targets of a dense detector.

It is computed on the device. For a 640x640 image with 100 boxes that takes XLA one fused pass over
7.7 million pairs, while targets from the host would be 1.5 MB per image of infeed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from models.detection import boxes as box_ops
from models.layers import device
from models.model import ModelError, check_positive

BACKGROUND, IGNORED = -1, -2


class Targets(NamedTuple):
    """Targets of anchors."""

    classes: Any  # int32 `[batch, n]`; `BACKGROUND`, or `IGNORED` for anchors without a class loss
    boxes: Any  # float32 `[batch, n, 4]`, the box of each positive anchor; any box for the others


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
    check_positive(params, "crowd_overlap")


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
    has_anchor = is_box & (_matched_iou(boxes, tf.gather(anchors, best_anchor)) > 0)
    best_anchor = tf.where(has_anchor, best_anchor, -1)
    numbers = tf.range(anchors.shape[0])
    is_best = tf.equal(best_anchor[..., tf.newaxis], numbers)  # [batch, m, n]
    # Of several boxes with the same best anchor, argmax finds the first.
    overlap = tf.where(is_best, 2.0, overlap)
    matched = tf.argmax(overlap, axis=1, output_type=tf.int32)  # [batch, n]

    columns = [tf.where(is_box, classes, -1), best_anchor]
    rows = tf.concat([boxes, tf.cast(tf.stack(columns, -1), tf.float32)], axis=-1)
    rows = select(rows, matched)  # [batch, n, 6]
    matched_boxes = rows[..., :4]
    matched_classes, anchor_of_box = tf.unstack(tf.cast(rows[..., 4:], tf.int32), axis=-1)
    # Computed again for the matched boxes: a maximum would be another pass over all pairs.
    best_overlap = _matched_iou(matched_boxes, anchors)
    best_overlap = tf.where(tf.equal(anchor_of_box, numbers), 2.0, best_overlap)
    best_overlap = tf.where(matched_classes >= 0, best_overlap, -1.0)

    in_crowd = box_ops.intersection(boxes, anchors) / box_ops.area(anchors)
    in_crowd = tf.where((is_real & is_crowd)[..., tf.newaxis], in_crowd, 0.0)
    is_ignored = best_overlap >= params["negative_iou"]
    is_ignored |= tf.reduce_max(in_crowd, axis=1) >= params["crowd_overlap"]
    is_positive = best_overlap >= params["positive_iou"]
    rest = tf.where(is_ignored, IGNORED, BACKGROUND)
    return Targets(classes=tf.where(is_positive, matched_classes, rest), boxes=matched_boxes)


def _matched_iou(boxes, others):
    """Returns the IoU of boxes `[..., n, 4]` with those in the same place, `[..., n]`."""
    return box_ops.iou(boxes[..., tf.newaxis, :], others[..., tf.newaxis, :])[..., 0, 0]


def select(rows, index):
    """Returns the rows of float32 `[batch, m, k]` at int32 `[batch, n]`: `[batch, n, k]`."""
    if not device.is_tpu():
        return tf.gather(rows, index, batch_dims=1)
    # A gather on a TPU reads row by row. A product with one-hot vectors is exact if each factor is
    # a bfloat16: a float32 is the sum of three.
    high = _first_bits(rows)
    middle = _first_bits(rows - high)
    parts = tf.stack([high, middle, rows - high - middle], axis=-1)  # [batch, m, k, 3]
    _, m, k = rows.shape.as_list()
    parts = tf.cast(tf.reshape(parts, [-1, m, k * 3]), tf.bfloat16)
    selected = tf.matmul(tf.one_hot(index, m, dtype=tf.bfloat16), parts)
    selected = tf.cast(selected, tf.float32)
    return tf.reduce_sum(tf.reshape(selected, [-1, index.shape[1], k, 3]), axis=-1)


def _first_bits(x):
    """Returns float32 numbers cut to the 8 significant bits of a bfloat16."""
    # Bits, because XLA may leave out a cast to bfloat16 and back.
    bits = tf.bitwise.bitwise_and(tf.bitcast(x, tf.int32), tf.constant(-(2**16), tf.int32))
    return tf.bitcast(bits, tf.float32)


def match(proposals, labels, min_iou, crowd_overlap):
    """Matches each proposal of a two-stage detector with the box of the largest IoU.

    Args:
      proposals: float32 `[batch, n, 4]`; those without an area are padding.
      labels: see `assign`.
      min_iou: a proposal with a smaller IoU is background.
      crowd_overlap: background with this part of its area inside a crowd is ignored.

    Returns:
      `Targets` of the proposals, with padding as `IGNORED`, and the row of each one's box in
      `labels`, int32 `[batch, n]`.
    """
    boxes, classes = labels["boxes"], labels["classes"]
    is_real, is_crowd = classes >= 0, labels["is_crowd"] > 0
    is_box = is_real & ~is_crowd
    overlap = box_ops.iou(boxes, proposals)  # [batch, m, n]
    overlap = tf.where(is_box[..., tf.newaxis], overlap, -1.0)
    matched = tf.argmax(overlap, axis=1, output_type=tf.int32)
    columns = tf.cast(tf.where(is_box, classes, BACKGROUND), tf.float32)[..., tf.newaxis]
    rows = select(tf.concat([boxes, columns], axis=-1), matched)  # [batch, n, 5]

    area = box_ops.area(proposals)
    in_crowd = box_ops.intersection(boxes, proposals)
    in_crowd = tf.where((is_real & is_crowd)[..., tf.newaxis], in_crowd, 0.0)
    is_ignored = (area <= 0) | (tf.reduce_max(in_crowd, axis=1) >= crowd_overlap * area)
    is_positive = (tf.reduce_max(overlap, axis=1) >= min_iou) & (area > 0)
    rest = tf.where(is_ignored, IGNORED, BACKGROUND)
    found = tf.where(is_positive, tf.cast(rows[..., 4], tf.int32), rest)
    return Targets(classes=found, boxes=rows[..., :4]), matched
