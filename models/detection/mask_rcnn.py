"""Mask R-CNN (He et al. 2017, arXiv:1703.06870): Faster R-CNN with a mask for each detection.

The mask branch (`mask_head`) runs beside the box branch in training, on the positive proposals; in
prediction after it, on the detections. Labels are those of `faster_rcnn`, and

    masks        uint8 [batch, max_boxes, s, s]    0 or 1, the pixels of each object
    mask_frames  float32 [batch, max_boxes, 4]     the rectangle of the image that `masks` covers
"""

from __future__ import annotations

import tensorflow as tf

from models.detection import box_head, faster_rcnn, mask_head
from models.detection.instance_metric import InstanceMetric
from models.model import Model


def default_params():
    """Returns the hyperparameters of the model."""
    return {**faster_rcnn.default_params(), **mask_head.default_params()}


def check_params(params):
    """Raises `ModelError` for a value out of range."""
    faster_rcnn.check_params(params)
    mask_head.check_params(params)


def inference(features, params, training):
    """Computes the outputs of Faster R-CNN, and masks.

    Args:
      features: see `faster_rcnn.inference`.
      params: see `default_params`.
      training: see `faster_rcnn.inference`.

    Returns:
      The outputs of `faster_rcnn.inference`; `"mask_rois"`, float32 `[batch, n, 4]`, and their
      `"mask_logits"`, see `mask_head.head`. Of a prediction also `"detections"`, see `nms.detect`.
    """
    outputs, maps = faster_rcnn.two_stages(features, params, training)
    if training:
        rois = outputs["rois"][:, : box_head.num_positives(params)]  # positives come first
    else:
        outputs["detections"] = faster_rcnn.predictions(features, outputs, params)
        scale = features["image_info"][:, 2, tf.newaxis, tf.newaxis]
        rois = outputs["detections"]["boxes"] * scale
    return {**outputs, "mask_rois": rois, "mask_logits": mask_head.head(maps, rois, params)}


def losses(features, labels, outputs, params):
    """Returns the losses of Faster R-CNN, and `"mask"`; see `mask_head.mask_loss`."""
    masks = outputs["mask_rois"], outputs["mask_logits"]
    return {
        **faster_rcnn.detection_losses(features, labels, outputs, params),
        "mask": mask_head.mask_loss(*masks, labels, params),
    }


def predictions(features, outputs, params):
    """Returns the detections with their masks.

    Args:
      features: `image_info`, float32 `[batch, 3]`.
      outputs: of `inference` without training.
      params: see `default_params`.

    Returns:
      See `nms.detect`; `"masks"`, float32 `[batch, d, 28, 28]`, the probability of each part of the
      box; `"image_size"`, int32 `[batch, 2]`, height and width of the original image.
    """
    del params
    found = outputs["detections"]
    masks = tf.sigmoid(mask_head.of_class(outputs["mask_logits"], found["classes"]))
    is_found = tf.range(masks.shape.as_list()[1]) < found["num_detections"][:, tf.newaxis]
    masks = tf.where(is_found[..., tf.newaxis, tf.newaxis], masks, 0.0)
    size = tf.cast(tf.round(features["image_info"][:, :2]), tf.int32)
    return {**found, "masks": masks, "image_size": size}


def host_metrics(params, pipeline):
    """COCO's average precision of boxes and masks, if the data set has instance masks."""
    kind = pipeline.data.kind
    is_annotated = kind.name == "annotations" and kind.task == "instance_segmentation"
    return [InstanceMetric(params, pipeline)] if is_annotated else []


MODEL = Model(
    name="mask_rcnn",
    default_params=default_params,
    inference=inference,
    losses=losses,
    predictions=predictions,
    eval_outputs=lambda features, labels, outputs, params: {},
    host_metrics=host_metrics,
    check_params=check_params,
    unused_params=faster_rcnn.MODEL.unused_params,
    train_inputs=faster_rcnn.LABELS,
    features=("image", "image_info"),
    labels=(*faster_rcnn.LABELS, "masks"),  # with them come mask_frames
    dataset_properties=("num_classes",),
    sensitive_predictions=("masks",),
)
