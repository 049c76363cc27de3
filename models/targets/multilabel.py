"""Several labels per example: any number of classes, each predicted by a sigmoid.

Labels are float32 `[batch, num_classes]`: 1 for each class of the example, 0 for the others, or
what mixup makes of them. Outputs are `{"logits": float32 [batch, num_classes]}`.
"""

from __future__ import annotations

import tensorflow as tf

from models import classification
from models.layers import class_weights
from models.layers.losses import sigmoid_focal
from models.model import Loss
from models.targets.label_report import LabelReport

LOSSES = ("sigmoid_cross_entropy", "focal")
METRIC_DIRECTIONS = dict.fromkeys(("micro_f1", "macro_f1", "exact_match"), "max")


def outputs(outputs, params):
    """Returns the outputs of inference."""
    del params
    return outputs


def losses(features, labels, outputs, params):
    """Sigmoid or focal cross-entropy, the mean over the classes, which `class_weights` weight.

    Label smoothing s makes the labels s/2 and 1 - s/2, as in Keras.
    """
    logits = outputs["logits"]
    if params["loss"] == "focal":
        alpha, gamma = params["focal_alpha"], params["focal_gamma"]
        present, absent = (
            sigmoid_focal(tf.fill(tf.shape(logits), is_class), logits, alpha, gamma)
            for is_class in (True, False)
        )
        values = labels * present + (1 - labels) * absent
    else:
        smoothing = params["label_smoothing"]
        labels = labels * (1 - smoothing) + smoothing / 2
        values = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
    weights = class_weights.of_classes(features, params)
    if weights is not None:
        values *= weights / tf.reduce_mean(weights)
    name = "focal" if params["loss"] == "focal" else LOSSES[0]
    return {name: Loss(tf.reduce_mean(values, axis=-1))}


def mean_outputs(outputs, params):
    """Returns the logits of the mean of the probabilities; see `models.model.Model`."""
    del params
    present, absent = (
        tf.reduce_logsumexp(tf.math.log_sigmoid(logits), axis=0)
        for logits in (outputs["logits"], -outputs["logits"])
    )
    return {"logits": present - absent}


def metrics(labels, outputs, weights, params):
    """Streaming `micro_f1`, `macro_f1`, `exact_match`; the F1 of a class without any label is 0."""
    is_label = labels >= 0.5
    is_predicted = _is_predicted(outputs, params)
    counted = tf.cast(weights > 0, tf.int32)[:, tf.newaxis]

    def count(*conditions):  # [num_classes]
        is_all = tf.cast(tf.reduce_all(tf.stack(conditions), axis=0), tf.int32)
        return tf.reduce_sum(is_all * counted, axis=0)

    counts = [count(is_label, is_predicted), count(is_label), count(is_predicted)]
    # int64: float32 cannot count beyond 2**24 examples.
    total = classification.metric_total("labels/total", [3, labels.shape[1]], tf.int64)
    sides = total.read_value(), total.assign_add(tf.cast(tf.stack(counts), tf.int64))
    exact = tf.reduce_all(tf.equal(is_label, is_predicted), axis=1)
    return {
        "micro_f1": tuple(_f1(tf.reduce_sum(side, axis=1)) for side in sides),
        "macro_f1": tuple(tf.reduce_mean(_f1(side)) for side in sides),
        "exact_match": tf.compat.v1.metrics.mean(tf.cast(exact, tf.float32), weights),
    }


def predictions(features, outputs, params):
    """Returns `probabilities`, float32, and `labels`, int32 0 or 1, `[batch, num_classes]` each."""
    del features
    return {
        "labels": tf.cast(_is_predicted(outputs, params), tf.int32),
        "probabilities": tf.sigmoid(outputs["logits"]),
    }


def host_metrics(params, pipeline):
    """Mean average precision and AUC, and a report of each class."""
    names = classification.class_names(params, pipeline)
    return [LabelReport(names, params["threshold"])]


def reports(params, pipeline):
    """None besides that of `host_metrics`."""
    del params, pipeline
    return []


def _is_predicted(outputs, params):
    return tf.sigmoid(outputs["logits"]) >= tf.constant(params["threshold"])


def _f1(counts):
    """Returns F1, float64, from (both, labels, predictions), int64 `[3, ...]`."""
    both, labels, predicted = tf.unstack(tf.cast(counts, tf.float64))
    return tf.math.divide_no_nan(2 * both, labels + predicted)
