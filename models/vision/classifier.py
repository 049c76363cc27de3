"""Image classifiers: hyperparameters, input scaling and reports that they share.

Loss, metrics and predictions are those of `models.targets`: a network predicts one class, several
labels, or numbers.
"""

from __future__ import annotations

import tensorflow as tf

from common.params import Floats
from models import classification, targets
from models.layers.dropout import dropout
from models.layers.pooling import global_pool
from models.model import Model, ModelError, check_positive
from models.vision import tta
from models.vision.gallery import Gallery


def default_params():
    """Returns the hyperparameters of every image classifier."""
    return {
        "num_classes": 10,  # set by the data set; of a regression, the numbers of an example
        "pixel_mean": Floats([0]),  # subtracted from the pixels: one number, or one per channel
        "pixel_scale": 1 / 255,  # multiplies the pixels after that
        **targets.default_params(),
        **tta.default_params(),
        "precision": "float32",  # or bfloat16, of the layers; set by --precision
    }


def check_params(params):
    """Raises `ModelError` for a value of `default_params` out of range."""
    check_scaling(params)
    targets.check_params(params)
    tta.check_params(params)


def check_scaling(params):
    """Raises `ModelError` for hyperparameters of `scaled_images` out of range."""
    if len(params["pixel_mean"]) not in (1, 3):
        raise ModelError(
            f"pixel_mean={params['pixel_mean']} must be one number, or three such as [123,117,104]"
        )
    check_positive(params, "pixel_scale")


def scaled_images(features, params):
    """Returns `(image - pixel_mean) * pixel_scale`, computed on the device.

    Args:
      features: `{"image": uint8 or float32 [batch, height, width, channels]}`.
      params: see `default_params`.

    Returns:
      `[batch, height, width, channels]` of `params["precision"]`.

    Raises:
      ModelError: `pixel_mean` does not match the number of channels.
    """
    images, means = features["image"], params["pixel_mean"]
    if len(means) not in (1, images.shape.as_list()[-1]):
        raise ModelError(f"pixel_mean={means} does not fit images of shape {images.shape}")
    with tf.name_scope("scaled_images"):
        images = tf.cast(images, tf.float32)
        if any(means):
            images -= tf.constant(means)
        return tf.cast(images * params["pixel_scale"], params["precision"])


def pooled_logits(x, params, training):
    """Global average pooling, dropout with rate `params["dropout"]`, and the last dense layer.

    Args:
      x: float32 or bfloat16 `[batch, height, width, channels]`.
      params: hyperparameters.
      training: True turns dropout on.

    Returns:
      Logits `[batch, num_classes]`, of the dtype of `x`.
    """
    return logits(global_pool(x, "global_pool"), params, training)


def logits(x, params, training):
    """Dropout with rate `params["dropout"]`, and the last dense layer.

    Args:
      x: float32 or bfloat16 `[batch, features]`.
      params: hyperparameters.
      training: True turns dropout on.

    Returns:
      Logits `[batch, num_classes]`, of the dtype of `x`.
    """
    x = dropout(x, params["dropout"], training)
    initializer = tf.compat.v1.random_normal_initializer(stddev=0.01)  # Goyal et al. 2017, 5.1
    return tf.compat.v1.layers.dense(
        x, params["num_classes"], kernel_initializer=initializer, name="logits"
    )


def reports(params, pipeline):
    """Reports of the target, and the first images with their classes."""
    class_names = classification.class_names(params, pipeline)
    return [*targets.reports(params, pipeline), Gallery(class_names)]


def model(
    name,
    default_params,
    inference,
    check_params=check_params,
    unused_params=lambda params: {},
    **options,
):
    """Returns the Model of an image classifier; options as of `Model`."""
    return Model(
        name=name,
        default_params=default_params,
        inference=targets.inference(tta.inference(inference)),
        losses=targets.losses,
        predictions=targets.predictions,
        mean_outputs=targets.mean_outputs,
        metrics=targets.metrics,
        metric_directions=targets.metric_directions,
        host_metrics=targets.host_metrics,
        reports=reports,
        check_params=check_params,
        dataset_variables=targets.dataset_variables,
        unused_params=lambda params: {**targets.unused_params(params), **unused_params(params)},
        features=("image",),
        labels=("label",),
        dataset_properties=("num_classes", *targets.PROPERTIES),
        optional_properties=targets.PROPERTIES,
        **options,
    )
