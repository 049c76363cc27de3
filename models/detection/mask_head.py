"""The mask branch of Mask R-CNN (He et al. 2017, arXiv:1703.06870, figure 4, right).

Scope `mask_head`: `conv_1` ... `conv_4`, `deconv`, `logits`.
"""

from __future__ import annotations

import tensorflow as tf

from models.detection import assignment, roi_align
from models.layers import device
from models.model import Loss, check_positive

SIZE = 28  # pixels of a side of a predicted mask


def default_params():
    """Returns the hyperparameters."""
    return {"mask_head_channels": 256}


def check_params(params):
    """Raises `ModelError` for a value of `default_params` out of range."""
    check_positive(params, "mask_head_channels")


def head(maps, rois, params):
    """Computes a mask of each class for each region of interest (RoI).

    Args:
      maps: see `box_head.head`.
      rois: float32 `[batch, n, 4]`.
      params: see `default_params`, and `num_classes`, `roi_grid`.

    Returns:
      Float32 logits `[batch, n, 28, 28, num_classes]`.
    """
    count, channels = rois.shape.as_list()[1], params["mask_head_channels"]
    x = roi_align.roi_align(maps, rois, SIZE // 2, params["roi_grid"])
    x = tf.reshape(x, [-1, *x.shape.as_list()[2:]])
    initializer = tf.compat.v1.variance_scaling_initializer(2.0, "fan_out", "untruncated_normal")
    with tf.compat.v1.variable_scope("mask_head"):
        for i in range(1, 5):
            x = tf.compat.v1.layers.conv2d(
                x,
                channels,
                3,
                padding="same",
                activation=tf.nn.relu,
                kernel_initializer=initializer,
                name=f"conv_{i}",
            )
        x = tf.compat.v1.layers.conv2d_transpose(
            x,
            channels,
            2,
            2,
            activation=tf.nn.relu,
            kernel_initializer=initializer,
            name="deconv",
        )
        x = tf.compat.v1.layers.conv2d(
            x, params["num_classes"], 1, kernel_initializer=initializer, name="logits"
        )
    return tf.reshape(tf.cast(x, tf.float32), [-1, count, SIZE, SIZE, params["num_classes"]])


def mask_loss(rois, logits, labels, params):
    """Returns the loss of the masks of positive RoIs, a `Loss`.

    The targets are the parts of the true mask in the RoIs, in [0, 1] at its borders, as in
    torchvision. The mean cross-entropy of the pixels of the true class's mask, over the positive
    RoIs of an image, then over the images of the global batch that have boxes.

    Args:
      rois: float32 `[batch, n, 4]`.
      logits: of `head`.
      labels: see `assignment.assign`, with `masks`, uint8 `[batch, m, s, s]`, and `mask_frames`,
        float32 `[batch, m, 4]`, the rectangle of the image that each mask covers.
      params: see `default_params`, and `roi_iou`, `crowd_overlap`.
    """
    targets, index = assignment.match(rois, labels, params["roi_iou"], params["crowd_overlap"])
    is_positive = tf.cast(targets.classes >= 0, tf.float32)
    masks = tf.cast(tf.gather(labels["masks"], index, batch_dims=1), tf.float32)
    frames = assignment.select(labels["mask_frames"], index)
    wanted = tf.stop_gradient(roi_align.crop_masks(masks, frames, rois, SIZE))
    entropy = tf.nn.sigmoid_cross_entropy_with_logits(wanted, of_class(logits, targets.classes))
    per_roi = tf.reduce_mean(entropy, axis=[2, 3]) * is_positive
    means = tf.reduce_sum(per_roi, 1) / tf.maximum(tf.reduce_sum(is_positive, 1), 1.0)
    is_box = (labels["classes"] >= 0) & tf.equal(labels["is_crowd"], 0)
    return Loss(means, tf.cast(tf.reduce_any(is_box, axis=1), tf.float32))


def of_class(logits, classes):
    """Returns the masks of one class, `[batch, n, 28, 28]`; zeros for a negative class.

    Args:
      logits: float32 `[batch, n, 28, 28, num_classes]`.
      classes: int32 `[batch, n]`.
    """
    one_hot = tf.one_hot(classes, logits.shape.as_list()[-1])
    if device.is_tpu():  # a fused product and sum: exact, unlike a matrix product in bfloat16
        return tf.reduce_sum(logits * one_hot[:, :, tf.newaxis, tf.newaxis], axis=-1)
    return tf.einsum("bnijc,bnc->bnij", logits, one_hot)
