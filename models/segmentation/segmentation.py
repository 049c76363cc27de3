"""Semantic segmentation: hyperparameters, losses, metrics, predictions and reports of its models.

Features are `{"image": uint8 [batch, height, width, channels]}`, labels
`{"mask": uint8 [batch, height, width]}` with the class of each pixel or `IGNORED_CLASS`, and
outputs `{"logits": float32 [batch, height, width, num_classes]}`.
"""

from __future__ import annotations

import tensorflow as tf

from common.constants import IGNORED_CLASS
from common.params import Floats, Strings
from models.model import Loss, Model, ModelError
from models.segmentation import iou, losses, overlay

_LOSSES = ("cross_entropy", "focal", "dice")


def default_params():
    """Returns the hyperparameters of every segmentation model."""
    return {
        "num_classes": 2,  # set by the data set
        "losses": Strings(["cross_entropy"]),  # terms: cross_entropy, focal, dice; or dice:0.5
        "focal_gamma": 2.0,  # of the term focal
        "class_weights": Floats(),  # of each class in the loss; [] for equal weights
    }


def check_params(params):
    """Raises `ModelError` for a value of `default_params` out of range."""
    num_classes, class_weights = params["num_classes"], params["class_weights"]
    if not 2 <= num_classes <= IGNORED_CLASS:
        raise ModelError(
            f"num_classes={num_classes} must be from 2 to {IGNORED_CLASS}. Objects on a "
            "background are two classes"
        )
    if class_weights and len(class_weights) != num_classes:
        raise ModelError(
            f"class_weights has {len(class_weights)} values, but there are {num_classes} classes"
        )
    is_valid = all(0 <= weight < float("inf") for weight in class_weights)
    if class_weights and not (is_valid and any(class_weights)):
        raise ModelError(
            f"class_weights={class_weights} must be numbers of at least 0, and not all 0"
        )
    if not 0 <= params["focal_gamma"] <= 10:
        raise ModelError(f"focal_gamma={params['focal_gamma']} must be from 0 to 10")
    loss_scales(params)


def unused_params(params):
    """Returns the hyperparameters of terms that are not in the loss; see `Model`."""
    return {} if "focal" in loss_scales(params) else {"focal_gamma": "losses"}


def loss_scales(params):
    """Returns `{term: scale}` of the hyperparameter `losses`.

    Raises:
      ModelError: a term is unknown or repeated, or its scale is not a positive number.
    """
    scales = {}
    for term in params["losses"]:
        name, _, text = term.partition(":")
        try:
            scale = float(text or 1)
        except ValueError:
            scale = 0.0
        if name not in _LOSSES or name in scales or not 0 < scale < float("inf"):
            raise ModelError(
                f"losses={params['losses']}: '{term}' is not valid. Use each of "
                f"{', '.join(_LOSSES)} at most once, with a scale above 0, such as dice:0.5"
            )
        scales[name] = scale
    if not scales:
        raise ModelError(f"losses=[] has no term. Use some of {', '.join(_LOSSES)}")
    return scales


def model_losses(features, labels, outputs, params):
    """The terms of the hyperparameter `losses`; see `models.segmentation.losses`."""
    del features
    functions = {
        "cross_entropy": losses.cross_entropy,
        "focal": lambda *args: losses.cross_entropy(*args, params["focal_gamma"]),
        "dice": losses.dice,
    }
    terms = {}
    for name, scale in loss_scales(params).items():
        with tf.name_scope(name):
            pair = functions[name](labels["mask"], outputs["logits"], params["class_weights"])
            terms[name] = Loss(*pair, scale)
    return terms


def eval_outputs(features, labels, outputs, params):
    """Returns the most probable class of each pixel, uint8 `[batch, height, width]`."""
    del features, labels, params
    return {"classes": tf.cast(_classes(outputs), tf.uint8)}


def metrics(features, labels, outputs, weights, params):
    """Streaming `mean_iou`, `pixel_accuracy`, and `confusion_matrix` for its report."""
    del features
    return iou.streaming(labels["mask"], outputs["classes"], weights, params["num_classes"])


def predictions(features, outputs, params):
    """Returns `{"classes": int32 [batch, height, width]}`, the most probable classes."""
    del features, params
    return {"classes": _classes(outputs)}


def reports(params, pipeline):
    """IoU per class, and images with their masks: the first ones and those with the lowest IoU."""
    annotations = pipeline.data.annotations
    names = annotations.class_names if annotations else pipeline.data.class_names
    names = names or tuple(map(str, range(params["num_classes"])))
    return [iou.IoUReport(names), overlay.Overlays(names)]


def model(name, default_params, inference, check_params, unused_params=unused_params):
    """Returns the Model of a segmentation network."""
    return Model(
        name=name,
        default_params=default_params,
        inference=inference,
        losses=model_losses,
        predictions=predictions,
        metrics=metrics,
        metric_directions={"mean_iou": "max", "pixel_accuracy": "max"},
        eval_outputs=eval_outputs,
        reports=reports,
        check_params=check_params,
        unused_params=unused_params,
        features=("image",),
        labels=("mask",),
        dataset_properties=("num_classes",),
    )


def _classes(outputs):
    return tf.argmax(outputs["logits"], axis=-1, output_type=tf.int32)
