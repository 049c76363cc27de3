"""What models from images to class logits share: input, loss, metrics and predictions.

`outputs` is `{"logits": float32 [batch, num_classes]}`. Labels are int32 `[batch]`, or float32
`[batch, num_classes]`: shares of the classes, as mixup makes them.
"""

from __future__ import annotations

import tensorflow as tf

from common.params import Floats
from models.layers.dropout import dropout
from models.layers.losses import cross_entropy
from models.model import Loss, Model, ModelError, check_fractions
from models.vision.confusion_matrix import ConfusionMatrix
from models.vision.gallery import Gallery


def default_params():
    """Returns the hyperparameters that every classifier of images has."""
    return {
        "num_classes": 10,  # the data set's own number replaces it
        "pixel_mean": Floats([0]),  # subtracted from stored pixels: one number, or one per channel
        "pixel_scale": 1 / 255,  # then they are multiplied by it; both on the device
        "label_smoothing": 0.0,
        "precision": "float32",  # of the layers, or bfloat16; --precision replaces it
    }


def check_params(params):
    """Raises `ModelError` for a value of `default_params` out of range."""
    if len(params["pixel_mean"]) not in (1, 3):
        raise ModelError(
            f"pixel_mean={params['pixel_mean']} must be one number, or three such as [123,117,104]"
        )
    if params["pixel_scale"] <= 0:
        raise ModelError(f"pixel_scale={params['pixel_scale']} must be above 0")
    check_fractions(params, "label_smoothing")


def scaled_images(features, params):
    """Returns the images less `pixel_mean`, times `pixel_scale`, in `params["precision"]`.

    `features["image"]` is uint8 or float32 `[batch, height, width, channels]`: images travel to the
    device as they are stored and are scaled there.

    Raises:
      ModelError: `pixel_mean` has another number of channels.
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
    """Returns `[batch, num_classes]` of features `[batch, height, width, channels]`.

    Their mean over height and width, `params["dropout"]` of it dropped in training, the last layer.
    """
    x = global_pool(x, "global_pool")
    x = dropout(x, params["dropout"], training)
    initializer = tf.compat.v1.random_normal_initializer(stddev=0.01)  # Goyal et al. 2017, 5.1
    return tf.compat.v1.layers.dense(
        x, params["num_classes"], kernel_initializer=initializer, name="logits"
    )


def global_pool(x, name):
    """Returns the mean over height and width, `[batch, channels]`, as it is summed in float32."""
    with tf.name_scope(name):
        # A CPU would add up bfloat16 in bfloat16: 256 + 1 is 256.
        return tf.cast(tf.reduce_mean(tf.cast(x, tf.float32), axis=[1, 2]), x.dtype)


def losses(features, labels, outputs, params):
    """Softmax cross-entropy with `params["label_smoothing"]`."""
    del features
    return {
        "cross_entropy": Loss(cross_entropy(labels, outputs["logits"], params["label_smoothing"]))
    }


def metrics(features, labels, outputs, weights, params):
    """Streaming top-1 `accuracy`, and `confusion_matrix`, int32, for its report."""
    del features, params
    logits = outputs["logits"]
    classes = tf.argmax(logits, axis=-1, output_type=tf.int32)
    if labels.shape.rank == 2:
        labels = tf.argmax(labels, axis=-1, output_type=tf.int32)
    return {
        "accuracy": tf.compat.v1.metrics.accuracy(labels, classes, weights),
        "confusion_matrix": _confusion_matrix(labels, classes, weights, logits.shape.as_list()[-1]),
    }


def predictions(features, outputs, params):
    """Returns `{"classes": int32 [batch], "probabilities": float32 [batch, num_classes]}`."""
    del features, params
    logits = outputs["logits"]
    return {
        "classes": tf.argmax(logits, axis=-1, output_type=tf.int32),
        "probabilities": tf.nn.softmax(logits),
    }


def reports(params, pipeline):
    """Confusion matrix, and the first images with their predictions."""
    del params
    class_names = pipeline.data.class_names
    return [ConfusionMatrix(class_names), Gallery(class_names)]


def model(name, default_params, inference, check_params=check_params):
    """Returns the Model of an image classifier."""
    return Model(
        name=name,
        default_params=default_params,
        inference=inference,
        losses=losses,
        predictions=predictions,
        metrics=metrics,
        reports=reports,
        check_params=check_params,
        features=("image",),
        dataset_properties=("num_classes",),
    )


def _confusion_matrix(labels, classes, weights, num_classes):
    """Streaming confusion matrix, int32 `[num_classes, num_classes]`, labels as rows."""
    total = tf.compat.v1.get_local_variable(
        "confusion_matrix/total",
        shape=[num_classes, num_classes],
        dtype=tf.int32,
        initializer=tf.compat.v1.zeros_initializer(),
        collections=[
            tf.compat.v1.GraphKeys.LOCAL_VARIABLES,
            tf.compat.v1.GraphKeys.METRIC_VARIABLES,
        ],
    )
    counted = tf.math.confusion_matrix(
        labels, classes, num_classes, weights=tf.cast(weights, tf.int32)
    )
    return total.read_value(), total.assign_add(counted)
