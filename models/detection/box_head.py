"""The second stage of Faster R-CNN: class and box of each proposal (Lin et al. 2016).

Scope `box_head`: `dense_1`, `dense_2`, `logits`, `codes`. Class 0 of the logits is the background.
"""

from __future__ import annotations

import tensorflow as tf

from models.detection import assignment, nms, roi_align, sampling
from models.detection import boxes as box_ops
from models.layers.losses import smooth_l1
from models.model import Loss, ModelError, check_positive

_STREAM = 2  # of random numbers
# Codes of the second stage are this many times those of `boxes.encode`, so that their errors have
# the size of those of the classes (Girshick 2015, and all implementations since).
_CODE_SCALES = (10.0, 10.0, 5.0, 5.0)


def default_params():
    """Returns the hyperparameters."""
    return {
        "roi_samples": 512,  # proposals of an image in the loss
        "roi_positives": 0.25,  # largest part of them that is positive
        "roi_iou": 0.5,  # a proposal with a smaller IoU with all boxes is background
        "roi_grid": 2,  # RoIAlign's samples of a bin, in each direction
        "box_head_units": 1024,
        "smooth_l1_beta": 1 / 9,  # of both stages
    }


def check_params(params):
    """Raises `ModelError` for a value of `default_params` out of range."""
    check_positive(params, "roi_grid", "box_head_units", "smooth_l1_beta")
    for name in ("roi_positives", "roi_iou"):
        if not 0 < params[name] < 1:
            raise ModelError(f"{name}={params[name]} must be in (0, 1)")
    if num_positives(params) < 1:
        raise ModelError(
            f"roi_samples={params['roi_samples']} times roi_positives={params['roi_positives']} "
            "must be at least 1"
        )


def num_positives(params) -> int:
    """Returns the largest number of positive proposals in the loss of an image."""
    return int(params["roi_samples"] * params["roi_positives"])


def sample(proposals, anchors, features, params):
    """Returns the proposals of an image to train on, float32 `[batch, roi_samples, 4]`.

    The true boxes are proposals too: at first no other one is positive. Positives come first, at
    most `num_positives`; unused places are zeros.

    Args:
      proposals: float32 `[batch, n, 4]`.
      anchors: int32 `[batch, n]`, the anchor that each was made of. It decides whether a proposal
        is chosen: its place would change with the rounding of scores that are almost equal.
      features: features of training, with the labels `boxes`, `classes`, `is_crowd`.
      params: see `default_params`.
    """
    is_box = (features["classes"] >= 0) & tf.equal(features["is_crowd"], 0)
    boxes = tf.where(is_box[..., tf.newaxis], features["boxes"], 0.0)
    proposals = tf.concat([proposals, boxes], axis=1)
    size = proposals.shape.as_list()[1]
    of_boxes = -1 - tf.range(boxes.shape.as_list()[1])
    keys = tf.concat([anchors, tf.zeros_like(features["classes"]) + of_boxes], axis=1)
    targets, _ = assignment.match(proposals, features, params["roi_iou"], params["crowd_overlap"])
    count = min(params["roi_samples"], size)
    index, is_sampled = sampling.sample(
        targets.classes >= 0,
        tf.equal(targets.classes, assignment.BACKGROUND),
        sampling.uniform(features, keys, _STREAM),
        count,
        min(num_positives(params), count),
    )
    chosen = tf.gather(proposals, index, batch_dims=1)
    chosen = tf.where(is_sampled[..., tf.newaxis], chosen, 0.0)
    return tf.stop_gradient(tf.pad(chosen, [[0, 0], [0, params["roi_samples"] - count], [0, 0]]))


def head(maps, rois, params):
    """Computes the class and the box of each region of interest (RoI).

    Args:
      maps: `{level: [batch, height, width, channels]}` of the pyramid, without the coarsest level
        of the proposals.
      rois: float32 `[batch, n, 4]`.
      params: see `default_params`, and `num_classes`.

    Returns:
      Float32 class logits `[batch, n, 1 + num_classes]` and box codes
      `[batch, n, num_classes, 4]`, those of `boxes.encode` times (10, 10, 5, 5).
    """
    count = rois.shape.as_list()[1]
    x = roi_align.roi_align(maps, rois, 7, params["roi_grid"])
    x = tf.reshape(x, [-1, 49 * x.shape.as_list()[-1]])
    classes = params["num_classes"]

    def dense(x, units, name, stddev=None):
        initializer = tf.compat.v1.random_normal_initializer(stddev=stddev) if stddev else None
        return tf.compat.v1.layers.dense(x, units, kernel_initializer=initializer, name=name)

    with tf.compat.v1.variable_scope("box_head"):
        for i in (1, 2):
            x = tf.nn.relu(dense(x, params["box_head_units"], f"dense_{i}"))
        logits = dense(x, 1 + classes, "logits", stddev=0.01)
        codes = dense(x, 4 * classes, "codes", stddev=0.001)
    logits = tf.reshape(tf.cast(logits, tf.float32), [-1, count, 1 + classes])
    return logits, tf.reshape(tf.cast(codes, tf.float32), [-1, count, classes, 4])


def box_losses(rois, logits, codes, labels, params):
    """Returns the losses of the second stage: `{"class": Loss, "box": Loss}`.

    The sums over the proposals of an image are divided by their number, and averaged over the
    images of the global batch. An evaluation counts all proposals, a training those of `sample`.

    Args:
      rois: float32 `[batch, n, 4]`.
      logits: of `head`.
      codes: of `head`.
      labels: see `assignment.assign`.
      params: see `default_params`.
    """
    targets, _ = assignment.match(rois, labels, params["roi_iou"], params["crowd_overlap"])
    is_positive = targets.classes >= 0
    entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(
        tf.where(is_positive, targets.classes + 1, 0), logits
    )
    entropy = tf.where(tf.equal(targets.classes, assignment.IGNORED), 0.0, entropy)
    is_class = tf.equal(targets.classes[..., tf.newaxis], tf.range(params["num_classes"]))
    own = tf.reduce_sum(tf.where(is_class[..., tf.newaxis], codes, 0.0), axis=2)
    # The code of a box without an area is infinite, and its gradient NaN.
    boxes, from_boxes = (
        tf.where(is_positive[..., tf.newaxis], x, [0.0, 0.0, 1.0, 1.0])
        for x in (targets.boxes, rois)
    )
    errors = own - box_ops.encode(boxes, from_boxes) * _CODE_SCALES
    distance = tf.reduce_sum(smooth_l1(errors, params["smooth_l1_beta"]), axis=-1)
    distance = tf.where(is_positive, distance, 0.0)
    count = rois.shape.as_list()[1]
    return {
        "class": Loss(tf.reduce_sum(entropy, axis=1) / count),
        "box": Loss(tf.reduce_sum(distance, axis=1) / count),
    }


def detect(rois, logits, codes, image_info, params):
    """Returns the detections of images in the form of `nms.detect`.

    Args:
      rois: float32 `[batch, n, 4]`; those without an area are padding.
      logits: of `head`.
      codes: of `head`.
      image_info: see `nms.detect`.
      params: see `nms.default_params`.
    """
    is_roi = box_ops.area(rois) > 0
    log_probabilities = tf.nn.log_softmax(logits)[..., 1:]  # of classes without the background
    log_probabilities = tf.where(is_roi[..., tf.newaxis], log_probabilities, -1e9)
    scores, index, classes = nms.best_pairs(log_probabilities, params["nms_candidates"])
    num_classes = params["num_classes"]
    flat = tf.reshape(codes, [-1, rois.shape.as_list()[1] * num_classes, 4])
    codes = tf.gather(flat, index * num_classes + classes, batch_dims=1) / _CODE_SCALES
    boxes = box_ops.decode(codes, tf.gather(rois, index, batch_dims=1))
    return nms.choose(nms.to_original(boxes, image_info), tf.exp(scores), classes, params)
