"""A small fully convolutional network for semantic segmentation."""

import numpy as np
import tensorflow as tf

from models.model import Loss, Model

IGNORED = 255  # the label of pixels without a class


def default_params():
    return {"num_classes": 3, "filters": 16, "num_layers": 2}


def inference(features, params, training):
    """Returns `{"logits": float32 [batch, height, width, num_classes]}`."""
    x = tf.cast(features["image"], tf.float32) / 127.5 - 1
    for i in range(params["num_layers"]):
        x = tf.compat.v1.layers.conv2d(x, params["filters"], 3, padding="same", name=f"conv_{i}")
        x = tf.nn.relu(x)
    return {"logits": tf.compat.v1.layers.conv2d(x, params["num_classes"], 1, name="logits")}


def losses(features, labels, outputs, params):
    """Returns the cross-entropy of an image and the number of its labeled pixels."""
    is_labeled = tf.not_equal(labels, IGNORED)
    classes = tf.where(is_labeled, tf.cast(labels, tf.int32), 0)
    weights = tf.cast(is_labeled, tf.float32)
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(classes, outputs["logits"])
    num_labeled = tf.reduce_sum(weights, [1, 2])
    mean = tf.math.divide_no_nan(tf.reduce_sum(each * weights, [1, 2]), num_labeled)
    return {"cross_entropy": Loss(mean, num_labeled)}


def predictions(features, outputs, params):
    return {"classes": tf.argmax(outputs["logits"], -1, tf.int32)}


def eval_outputs(features, labels, outputs, params):
    return predictions(features, outputs, params)  # smaller than the logits


def metrics(features, labels, outputs, weights, params):
    """Returns the accuracy over labeled pixels; `weights` are 0 for padding."""
    weights = tf.cast(tf.not_equal(labels, IGNORED), tf.float32) * weights[:, None, None]
    return {"accuracy": tf.compat.v1.metrics.accuracy(labels, outputs["classes"], weights)}


class MeanIoU:
    """Mean intersection over union of the classes, over the pixels of the whole split."""

    names = ("mean_iou",)

    def __init__(self, num_classes):
        self._confusion = np.zeros([num_classes, num_classes], np.int64)

    def update(self, features, labels, predictions):
        is_labeled = labels != IGNORED
        pairs = labels[is_labeled], predictions["classes"][is_labeled]
        np.add.at(self._confusion, pairs, 1)

    def result(self):
        hits = np.diag(self._confusion)
        union = self._confusion.sum(0) + self._confusion.sum(1) - hits
        return {"mean_iou": float(np.mean(hits[union > 0] / union[union > 0]))}


MODEL = Model(
    "segmentation",
    default_params,
    inference,
    losses,
    predictions,
    metrics,
    eval_outputs,
    host_metrics=lambda params, pipeline: [MeanIoU(params["num_classes"])],
    features=("image",),
)
