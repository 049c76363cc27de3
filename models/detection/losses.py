"""Losses of a dense detector: focal loss of classes, Huber loss of boxes."""

from __future__ import annotations

import tensorflow as tf

from models.detection import assignment
from models.detection import boxes as box_ops
from models.layers.losses import huber, sigmoid_focal
from models.model import Loss, ModelError, check_positive


def default_params():
    """Returns the hyperparameters of the losses."""
    return {
        "focal_alpha": 0.25,  # weight of positive anchors; background has 1 - focal_alpha
        "focal_gamma": 1.5,
        "huber_delta": 0.1,
        "box_loss_weight": 50.0,
    }


def check_params(params):
    """Raises `ModelError` for a value of `default_params` out of range."""
    if not 0 < params["focal_alpha"] < 1:
        raise ModelError(f"focal_alpha={params['focal_alpha']} must be in (0, 1)")
    if params["focal_gamma"] < 0:
        raise ModelError(f"focal_gamma={params['focal_gamma']} must be at least 0")
    check_positive(params, "huber_delta", "box_loss_weight")


def detection_losses(anchors, labels, class_logits, box_codes, params):
    """Returns the losses of anchors: `{"class": Loss, "box": Loss}`.

    Both are divided by the number of positive anchors of the global batch; for `class` an image
    without positive anchors counts as one with a single one.

    Args:
      anchors: float32 `[n, 4]`.
      labels: see `assignment.assign`.
      class_logits: list of float32 `[batch, anchors of a level, num_classes]`.
      box_codes: list of float32 `[batch, anchors of a level, 4]`; see `boxes.encode`.
      params: see `default_params` and `assignment.default_params`.
    """
    targets = assignment.assign(anchors, labels, params)
    is_positive = targets.classes >= 0
    num_positive = tf.reduce_sum(tf.cast(is_positive, tf.float32), axis=1)  # [batch]
    divisor = tf.maximum(num_positive, 1.0)

    # By level, because joined logits of 80 classes would be another 100 MB, and their gradient too.
    sizes = [logits.shape.as_list()[1] for logits in class_logits]
    classes = tf.split(targets.classes, sizes, axis=1)
    focal = [_class_loss(*level, params) for level in zip(classes, class_logits)]

    # The code of any other box may be infinite, and its gradient NaN.
    boxes = tf.where(is_positive[..., tf.newaxis], targets.boxes, anchors)
    errors = tf.concat(box_codes, axis=1) - box_ops.encode(boxes, anchors)
    errors = tf.where(is_positive[..., tf.newaxis], errors, 0.0)
    distances = tf.reduce_sum(huber(errors, params["huber_delta"]), axis=[1, 2]) / 4
    return {
        "class": Loss(tf.add_n(focal) / divisor, divisor),
        "box": Loss(distances / divisor, num_positive, params["box_loss_weight"]),
    }


def _class_loss(classes, logits, params):
    """Returns the sum of the focal losses of the anchors of a level, `[batch]`."""
    is_class = tf.equal(classes[..., tf.newaxis], tf.range(logits.shape.as_list()[-1]))
    focal = sigmoid_focal(is_class, logits, params["focal_alpha"], params["focal_gamma"])
    is_counted = tf.not_equal(classes, assignment.IGNORED)
    return tf.reduce_sum(tf.where(is_counted[..., tf.newaxis], focal, 0.0), axis=[1, 2])
