"""RetinaNet, a dense one-stage detector (Lin et al. 2017, arXiv:1708.02002).

A backbone, a feature pyramid (`fpn`), and for each anchor logits of the classes and a box. Labels:

    boxes     float32 [batch, max_boxes, 4]  (y0, x0, y1, x1) in pixels of the image of the model
    classes   int32 [batch, max_boxes]       -1 for padding
    is_crowd  int32 [batch, max_boxes]       1 for regions that are not trained on
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from models.detection import anchors, assignment, fpn, losses, nms
from models.detection.coco_metric import CocoMetric
from models.model import Model, ModelError
from models.vision import backbones

_PARTS = (anchors, assignment, fpn, losses, nms)


def default_params():
    """Returns the hyperparameters of the model."""
    found = {"num_classes": 1, **backbones.default_params("resnet50")}  # set by the data set
    for part in _PARTS:
        found.update(part.default_params())
    return found


def check_params(params):
    """Raises `ModelError` for a value out of range."""
    backbones.check_params(params)
    for part in _PARTS:
        part.check_params(params)


def inference(features, params, training):
    """Computes logits and box codes of all anchors.

    Args:
      features: `{"image": uint8 or float32 [batch, height, width, channels]}`.
      params: see `default_params`.
      training: True lets batch norm use batch statistics and update its moving averages.

    Returns:
      See `fpn.heads`; of `params["precision"]`.
    """
    maps = backbone_maps(features, params, training)
    return fpn.heads(fpn.pyramid(maps, params, training), params, training)


def backbone_maps(features, params, training):
    """Returns the maps of the backbone that the pyramid is computed from; see `inference`.

    Raises:
      ModelError: the sides of the image do not fit the backbone.
    """
    levels = range(params["min_level"], min(params["max_level"], 5) + 1)
    maps = backbones.feature_maps(features, params, training, levels)
    size = features["image"].shape.as_list()[1:3]
    for level, x in maps.items():
        expected = [-(-side // 2**level) for side in size]
        if x.shape.as_list()[1:3] != expected:
            raise ModelError(
                f"image_size={size[0]}x{size[1]} does not fit backbone={params['backbone']}: "
                "its sides must be multiples of 32"
            )
    return maps


def detection_losses(features, labels, outputs, params):
    """Focal loss of the classes and Huber loss of the boxes; see `losses.detection_losses`."""
    return losses.detection_losses(
        _anchors(features, params), labels, *_by_level(outputs, params), params
    )


def predictions(features, outputs, params):
    """Returns boxes, scores, classes and num_detections; see `nms.detect`.

    Args:
      features: `image`, of which only the size is used, and `image_info`, float32 `[batch, 3]`.
      outputs: what `inference` returned.
      params: see `default_params`.
    """
    return nms.detect(
        _anchors(features, params),
        *(tf.concat(levels, axis=1) for levels in _by_level(outputs, params)),
        features["image_info"],
        params,
    )


def _anchors(features, params):
    return tf.constant(anchors.flat(features["image"].shape.as_list()[1:3], params))


def _by_level(outputs, params):
    """Returns lists of class logits `[batch, n, num_classes]` and box codes `[batch, n, 4]`."""

    def flatten(levels, size):
        parts = []
        for level in sorted(levels):
            x = levels[level]
            num_anchors = int(np.prod(x.shape.as_list()[1:])) // size
            parts.append(tf.reshape(x, [-1, num_anchors, size]))
        return parts

    return flatten(outputs["class_logits"], params["num_classes"]), flatten(outputs["box_codes"], 4)


def host_metrics(params, pipeline):
    """COCO's average precision, if the data set has areas, crowds and names of classes."""
    is_annotated = pipeline.data.kind.name == "annotations"
    return [CocoMetric(params, pipeline)] if is_annotated else []


MODEL = Model(
    name="retinanet",
    default_params=default_params,
    inference=inference,
    losses=detection_losses,
    predictions=predictions,
    # The losses are the streaming metrics; a TPU sends no logits to the host.
    eval_outputs=lambda features, labels, outputs, params: {},
    host_metrics=host_metrics,
    check_params=check_params,
    unused_params=backbones.unused_params,
    features=("image", "image_info"),
    labels=("boxes", "classes", "is_crowd"),
    dataset_properties=("num_classes",),
)
