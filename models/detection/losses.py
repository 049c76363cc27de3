"""Losses of a dense detector: focal loss of classes, Huber loss of boxes."""

from __future__ import annotations

import tensorflow as tf

from models.detection import assignment
from models.detection import boxes as box_ops
from models.model import Loss, ModelError


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
    for name in ("huber_delta", "box_loss_weight"):
        if params[name] <= 0:
            raise ModelError(f"{name}={params[name]} must be above 0")


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
    logits = tf.where(is_class, logits, -logits)  # of the right answer
    # (1 - p)^gamma as exp: the gradient of a power is not finite at 0.
    loss = tf.exp(-gamma * tf.nn.softplus(logits)) * tf.nn.softplus(-logits)
    return tf.where(is_class, alpha, 1 - alpha) * loss


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


def detection_losses(anchors, labels, class_logits, box_codes, params):
    """Returns the losses of anchors: `{"class": Loss, "box": Loss}`.

    Both are divided by the number of positive anchors of the global batch; for `class` an image
    without positive anchors counts as one with a single one.

    Args:
      anchors: float32 `[n, 4]`.
      labels: see `assignment.assign`.
      class_logits: float32 `[batch, n, num_classes]`.
      box_codes: float32 `[batch, n, 4]`; see `boxes.encode`.
      params: see `default_params` and `assignment.default_params`.
    """
    targets = assignment.assign(anchors, labels, params)
    is_positive = targets.classes >= 0
    num_positive = tf.math.count_nonzero(is_positive, axis=1, dtype=tf.float32)  # [batch]
    divisor = tf.maximum(num_positive, 1.0)

    num_classes = class_logits.shape.as_list()[-1]
    is_class = tf.equal(targets.classes[..., tf.newaxis], tf.range(num_classes))
    focal = sigmoid_focal(is_class, class_logits, params["focal_alpha"], params["focal_gamma"])
    is_counted = tf.not_equal(targets.classes, assignment.IGNORED)
    focal = tf.where(is_counted[..., tf.newaxis], focal, 0.0)

    # The code of any other box may be infinite, and its gradient NaN.
    boxes = tf.where(is_positive[..., tf.newaxis], targets.boxes, anchors)
    errors = box_codes - box_ops.encode(boxes, anchors)
    errors = tf.where(is_positive[..., tf.newaxis], errors, 0.0)
    distances = tf.reduce_sum(huber(errors, params["huber_delta"]), axis=[1, 2]) / 4
    return {
        "class": Loss(tf.reduce_sum(focal, axis=[1, 2]) / divisor, divisor),
        "box": Loss(distances / divisor, num_positive, params["box_loss_weight"]),
    }
