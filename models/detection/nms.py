"""Non-maximum suppression (NMS) and the choice of detections, with static shapes.

It uses ops that TPUs, TensorFlow Lite and ONNX have. Each of TensorFlow's own ops for NMS is
missing on one of them, and they pad differently.
"""

from __future__ import annotations

import tensorflow as tf

from models.detection import boxes as box_ops
from models.model import ModelError, check_positive


def default_params():
    """Returns the hyperparameters of `detect`."""
    return {
        "score_threshold": 0.05,  # detections have a score above it
        "nms_iou": 0.5,  # a detection suppresses others of its class with a larger IoU
        "nms_class_agnostic": False,  # True: of any class
        "nms_candidates": 1000,  # best pairs of anchor and class that NMS sees
        "max_detections": 100,  # per image
    }


def check_params(params):
    """Raises `ModelError` for a value of `default_params` out of range."""
    for name in ("score_threshold", "nms_iou"):
        if not 0 <= params[name] <= 1:
            raise ModelError(f"{name}={params[name]} must be in [0, 1]")
    check_positive(params, "max_detections")
    if params["nms_candidates"] < params["max_detections"]:
        raise ModelError(
            f"nms_candidates={params['nms_candidates']} must be at least "
            f"max_detections={params['max_detections']}"
        )


def detect(anchors, class_logits, box_codes, image_info, params):
    """Returns the detections of images.

    The `nms_candidates` pairs of an anchor and a class with the largest scores are decoded, mapped
    to the original image, clipped to it, and suppress each other.

    Args:
      anchors: float32 `[n, 4]`, in pixels of the image of the model.
      class_logits: float32 `[batch, n, num_classes]`.
      box_codes: float32 `[batch, n, 4]`; see `boxes.encode`.
      image_info: float32 `[batch, 3]`: height and width of the original image, and the pixels of
        the image of the model per pixel of the original.
      params: see `default_params`.

    Returns:
      `{"boxes": float32 [batch, d, 4], "scores": float32 [batch, d], "classes": int32 [batch, d],
      "num_detections": int32 [batch]}` with d of `max_detections`: boxes `(y0, x0, y1, x1)` in
      pixels of the original image, best score first; 0 from `num_detections` on.
    """
    logits, anchor_index, classes = best_pairs(class_logits, params["nms_candidates"])
    codes = tf.gather(box_codes, anchor_index, batch_dims=1)
    boxes = box_ops.decode(codes, tf.gather(anchors, anchor_index))
    boxes = to_original(boxes, image_info)
    return choose(boxes, tf.sigmoid(logits), classes, params)


def to_original(boxes, image_info):
    """Returns boxes `[batch, n, 4]` in pixels of the original images, clipped to them.

    Args:
      boxes: float32 `[batch, n, 4]` in pixels of the images of the model.
      image_info: see `detect`.
    """
    height, width, scale = tf.unstack(image_info, axis=-1)
    return box_ops.clip(boxes / scale[:, tf.newaxis, tf.newaxis], height, width)


def choose(boxes, scores, classes, params):
    """Returns the detections among candidates, in the form of `detect`.

    Args:
      boxes: float32 `[batch, k, 4]`, best score first. Those without an area are none.
      scores: float32 `[batch, k]`.
      classes: int32 `[batch, k]`.
      params: see `default_params`.
    """
    # A box in the padding of the image has no area.
    is_valid = (scores > params["score_threshold"]) & (box_ops.area(boxes) > 0)
    groups = tf.zeros_like(classes) if params["nms_class_agnostic"] else classes
    is_kept = suppress(boxes, groups, is_valid, params["nms_iou"])
    return _first(boxes, scores, classes, is_kept, params["max_detections"])


def suppress(boxes, groups, is_valid, iou_threshold):
    """Greedy non-maximum suppression of boxes in descending order of their scores.

    A box is kept unless a box before it that is kept, and of its group, has an IoU with it above
    the threshold. The kept boxes are the fixed point of this rule. It is reached after as many
    iterations as the longest chain of boxes in which each one suppresses the next.

    Args:
      boxes: float32 `[batch, k, 4]`, best score first.
      groups: int32 `[batch, k]`; boxes of different groups do not suppress each other.
      is_valid: bool `[batch, k]`; other boxes are not kept and suppress none.
      iou_threshold: float.

    Returns:
      bool `[batch, k]`: whether each box is kept.
    """
    order = tf.range(boxes.shape.as_list()[1])
    can_suppress = box_ops.iou(boxes, boxes) > iou_threshold  # [batch, suppressing, suppressed]
    can_suppress &= order[:, tf.newaxis] < order
    can_suppress &= tf.equal(groups[:, :, tf.newaxis], groups[:, tf.newaxis, :])
    can_suppress = tf.cast(can_suppress, tf.float32)
    valid = tf.cast(is_valid, tf.float32)

    # tf2onnx converts a loop only if its body uses each variable, so `is_settled` is used there.
    def body(kept, is_settled):
        # Sums of zeros and ones: exact in bfloat16 with float32 accumulation too.
        suppressing = tf.linalg.matvec(can_suppress, kept, transpose_a=True)
        after = valid * tf.cast(suppressing < 0.5, tf.float32)
        after = tf.where(is_settled[:, tf.newaxis], kept, after)
        return after, tf.reduce_all(tf.equal(after, kept), axis=1)

    kept, _ = tf.compat.v1.while_loop(
        lambda kept, is_settled: tf.logical_not(tf.reduce_all(is_settled)),
        body,
        (valid, tf.zeros_like(is_valid[:, 0])),
        parallel_iterations=1,
        back_prop=False,
    )
    return kept > 0.5


def best_pairs(class_logits, count):
    """Returns the largest logits `[batch, k]`, and the anchor and the class of each, int32.

    Args:
      class_logits: float32 `[batch, n, num_classes]`.
      count: k, if there are as many pairs.
    """
    num_anchors, num_classes = class_logits.shape.as_list()[1:]
    # The best pairs are among the anchors with the best classes: two small sorts, not a large one.
    num_best = min(count, num_anchors)
    _, anchors = tf.math.top_k(tf.reduce_max(class_logits, axis=-1), num_best)
    of_best = tf.gather(class_logits, anchors, batch_dims=1)  # [batch, num_best, num_classes]
    of_best = tf.reshape(of_best, [-1, num_best * num_classes])
    logits, pairs = tf.math.top_k(of_best, min(count, num_best * num_classes))
    return logits, tf.gather(anchors, pairs // num_classes, batch_dims=1), pairs % num_classes


def _first(boxes, scores, classes, is_kept, count):
    """Returns the first `count` kept boxes, padded with 0; see `detect`."""
    size = boxes.shape.as_list()[1]
    # Rank from the end, of kept boxes only: top_k returns them in order.
    rank = tf.where(is_kept, tf.range(size, 0, -1), 0)
    rank, index = tf.math.top_k(rank, min(count, size))
    is_kept = rank > 0

    def select(values):
        chosen = tf.gather(values, index, batch_dims=1)
        mask = tf.reshape(is_kept, [-1, index.shape[1]] + [1] * (values.shape.rank - 2))
        chosen = tf.where(mask, chosen, tf.zeros([], values.dtype))
        missing = [[0, 0], [0, count - min(count, size)]] + [[0, 0]] * (values.shape.rank - 2)
        return tf.pad(chosen, missing)

    return {
        "boxes": select(boxes),
        "scores": select(scores),
        "classes": select(classes),
        "num_detections": tf.math.count_nonzero(is_kept, axis=1, dtype=tf.int32),
    }
