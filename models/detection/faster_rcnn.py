"""Faster R-CNN, a two-stage detector (Ren et al. 2015, arXiv:1506.01497), with a feature pyramid.

The first stage, a region proposal network (`rpn`), proposes boxes; the second one (`box_head`)
classifies and corrects each of them. Labels as in `retinanet`; inference reads them in training,
where the second stage sees a random sample of the proposals and the true boxes.
"""

from __future__ import annotations

import tensorflow as tf

from models.detection import anchors, assignment, box_head, fpn, nms, retinanet, rpn
from models.model import Model
from models.vision import backbones

_PARTS = (rpn, box_head, nms)
LABELS = ("boxes", "classes", "is_crowd")


def default_params():
    """Returns the hyperparameters of the model."""
    found = {
        "num_classes": 1,  # set by the data set
        **backbones.default_params("resnet50"),
        **anchors.default_params(),
        # Anchors of 32, 64, ..., 512 pixels, of one size in each level.
        "min_level": 2,
        "max_level": 6,
        "anchor_size": 8.0,
        "anchor_scales": 1,
        "fpn_channels": 256,
        "crowd_overlap": assignment.default_params()["crowd_overlap"],
    }
    for part in _PARTS:
        found.update(part.default_params())
    return found


def check_params(params):
    """Raises `ModelError` for a value out of range."""
    backbones.check_params(params)
    anchors.check_params(params)
    fpn.check_pyramid(params)
    for part in _PARTS:
        part.check_params(params)


def inference(features, params, training):
    """Proposes boxes, then computes their classes and boxes.

    Args:
      features: `{"image": uint8 or float32 [batch, height, width, channels], "image_info": float32
        [batch, 3]}`, see `nms.detect`; in training also the labels.
      params: see `default_params`.
      training: True lets batch norm use batch statistics and update its moving averages, and
        samples the proposals.

    Returns:
      `{"rpn": {level: ...}}`, see `rpn.head`; `"rois"`, float32 `[batch, n, 4]`, and their
      `"class_logits"` and `"box_codes"`, see `box_head.head`.
    """
    return two_stages(features, params, training)[0]


def two_stages(features, params, training):
    """Returns the outputs of `inference`, and the maps that the heads of RoIs read."""
    pyramid = fpn.pyramid(retinanet.backbone_maps(features, params, training), params, training)
    first = rpn.head(pyramid, params)
    rois, numbers = rpn.proposals(_anchors(features, params), first, _sizes(features), params)
    if training:
        rois = box_head.sample(rois, numbers, features, params)
    # Level 6 is for proposals only.
    maps = {level: x for level, x in pyramid.items() if level <= 5}
    logits, codes = box_head.head(maps, rois, params)
    outputs = {
        "rpn": first,
        "rois": rois,
        "class_logits": logits,
        "box_codes": codes,
    }
    return outputs, maps


def detection_losses(features, labels, outputs, params):
    """Returns the losses of both stages; see `rpn.rpn_losses` and `box_head.box_losses`."""
    all_anchors = anchors.flat(features["image"].shape.as_list()[1:3], params)
    second = outputs["rois"], outputs["class_logits"], outputs["box_codes"]
    return {
        **rpn.rpn_losses(all_anchors, outputs["rpn"], features, labels, params),
        **box_head.box_losses(*second, labels, params),
    }


def predictions(features, outputs, params):
    """Returns boxes, scores, classes and num_detections; see `nms.detect`."""
    second = outputs["rois"], outputs["class_logits"], outputs["box_codes"]
    return box_head.detect(*second, features["image_info"], params)


def _anchors(features, params):
    by_level = anchors.by_level(features["image"].shape.as_list()[1:3], params)
    return {level: x.reshape(-1, 4) for level, x in by_level.items()}


def _sizes(features):
    """Returns height and width of the image on its canvas, float32 `[batch, 2]`."""
    info = features["image_info"]
    sizes = info[:, :2] * info[:, 2:]
    return tf.minimum(sizes, tf.constant(features["image"].shape.as_list()[1:3], tf.float32))


MODEL = Model(
    name="faster_rcnn",
    default_params=default_params,
    inference=inference,
    losses=detection_losses,
    predictions=predictions,
    # The losses are the streaming metrics; a TPU sends no logits to the host.
    eval_outputs=lambda features, labels, outputs, params: {},
    host_metrics=retinanet.host_metrics,
    check_params=check_params,
    unused_params=backbones.unused_params,
    train_inputs=LABELS,
    features=("image", "image_info"),
    labels=LABELS,
    dataset_properties=("num_classes",),
)
