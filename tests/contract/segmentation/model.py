"""A small fully convolutional network for semantic segmentation."""

import numpy as np
import tensorflow as tf

from models.model import Loss, Model

IGNORED = 255  # the label of a pixel without a class


def default_params():
    return {"num_classes": 3, "filters": 16}


def inference(features, params, training):
    x = tf.cast(features["image"], tf.float32) / 127.5 - 1
    x = tf.compat.v1.layers.conv2d(x, params["filters"], 3, padding="same", activation=tf.nn.relu)
    return {"logits": tf.compat.v1.layers.conv2d(x, params["num_classes"], 1, name="logits")}


def losses(features, labels, outputs, params):
    is_labeled = tf.not_equal(labels, IGNORED)
    classes = tf.where(is_labeled, tf.cast(labels, tf.int32), 0)
    pixels = tf.nn.sparse_softmax_cross_entropy_with_logits(classes, outputs["logits"])
    total = tf.reduce_sum(tf.where(is_labeled, pixels, 0.0), [1, 2])
    num_labeled = tf.reduce_sum(tf.cast(is_labeled, tf.float32), [1, 2])
    return {"cross_entropy": Loss(tf.math.divide_no_nan(total, num_labeled), num_labeled)}


def predictions(features, outputs, params):
    return {"classes": tf.argmax(outputs["logits"], axis=-1, output_type=tf.int32)}


def metrics(labels, outputs, weights, params):
    classes = tf.argmax(outputs["logits"], axis=-1, output_type=tf.int32)
    weights = tf.cast(tf.not_equal(labels, IGNORED), tf.float32) * weights[:, None, None]
    return {"pixel_accuracy": tf.compat.v1.metrics.accuracy(labels, classes, weights)}


class MeanIoU:
    """Mean intersection over union of the classes, over all labeled pixels of a split."""

    names, directions = ("mean_iou",), {"mean_iou": "max"}

    def __init__(self, num_classes):
        self._confusion = np.zeros([num_classes, num_classes])

    def update(self, features, labels, predictions):
        is_labeled = labels != IGNORED
        np.add.at(self._confusion, (labels[is_labeled], predictions["classes"][is_labeled]), 1)

    def result(self):
        hits = np.diag(self._confusion)
        union = self._confusion.sum(0) + self._confusion.sum(1) - hits
        return {"mean_iou": float(np.mean(hits[union > 0] / union[union > 0]))}


def host_metrics(params, pipeline):
    return [MeanIoU(params["num_classes"])]


MODEL = Model(
    "fcn", default_params, inference, losses, predictions, metrics, host_metrics=host_metrics
)
