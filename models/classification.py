"""Loss, metrics and predictions of classifiers, of images or of text.

`outputs` is `{"logits": float32 [batch, num_classes]}`. Labels are int32 `[batch]`, or float32
`[batch, num_classes]`, probabilities of the classes as mixup makes them.
"""

from __future__ import annotations

import math

import tensorflow as tf

from models.confusion_matrix import ConfusionMatrix
from models.layers import class_weights
from models.layers.losses import cross_entropy
from models.model import Loss, check_fractions

LOSSES = ("cross_entropy",)
METRIC_DIRECTIONS = {"accuracy": "max"}


def default_params():
    """Returns the hyperparameters of `losses`, besides `num_classes`."""
    return {"label_smoothing": 0.0, **class_weights.default_params()}


def check_params(params):
    """Raises `ModelError` for a value of `default_params` out of range."""
    check_fractions(params, "label_smoothing")
    class_weights.check_params(params)


def outputs(outputs, params):
    """Returns the outputs of inference; see `models.targets`."""
    del params
    return outputs


def losses(features, labels, outputs, params):
    """Softmax cross-entropy with label smoothing and class weights."""
    values = cross_entropy(labels, outputs["logits"], params["label_smoothing"])
    weights = class_weights.of_examples(features, labels, params)
    return {"cross_entropy": Loss(values, weights)}


def metrics(labels, outputs, weights, params):
    """Streaming top-1 `accuracy`, and `confusion_matrix`, int32, for its report."""
    del params
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


def mean_outputs(outputs, params):
    """Returns the logits of the mean of the probabilities; see `models.model.Model`."""
    del params
    log_probabilities = tf.nn.log_softmax(outputs["logits"])
    count = outputs["logits"].shape[0]
    return {"logits": tf.reduce_logsumexp(log_probabilities, axis=0) - math.log(count)}


def class_names(params, pipeline):
    """Returns the names of the classes, or of the numbers of a regression, in order.

    They are 0, 1, 2, ... if the data set has none.
    """
    target = pipeline.data.target
    names = target.names if target else pipeline.data.class_names
    return names or tuple(map(str, range(params["num_classes"])))


def host_metrics(params, pipeline):
    """None."""
    del params, pipeline
    return []


def reports(params, pipeline):
    """Confusion matrix."""
    return [ConfusionMatrix(class_names(params, pipeline))]


def f1(matrix):
    """F1 of the second of two classes, as GLUE computes it; of more classes the mean (macro F1).

    The F1 of a class without examples and predictions is 0, as in scikit-learn.

    Args:
      matrix: confusion matrix, int32 `[num_classes, num_classes]`, labels as rows.

    Returns:
      float64 scalar tensor.
    """
    matrix = tf.cast(matrix, tf.float64)
    found = tf.reduce_sum(matrix, axis=0) + tf.reduce_sum(matrix, axis=1)
    scores = tf.math.divide_no_nan(2 * tf.linalg.diag_part(matrix), found)
    return scores[1] if matrix.shape[0] == 2 else tf.reduce_mean(scores)


def matthews_correlation(matrix):
    """Matthews correlation coefficient, for any number of classes (Gorodkin 2004).

    0 if all labels or all predictions are of one class, as in scikit-learn.

    Args:
      matrix: confusion matrix, int32 `[num_classes, num_classes]`, labels as rows.

    Returns:
      float64 scalar tensor.
    """
    matrix = tf.cast(matrix, tf.float64)
    labels, predicted = tf.reduce_sum(matrix, axis=1), tf.reduce_sum(matrix, axis=0)
    total, correct = tf.reduce_sum(matrix), tf.linalg.trace(matrix)
    covariance = correct * total - tf.reduce_sum(labels * predicted)
    variances = [total**2 - tf.reduce_sum(counts**2) for counts in (labels, predicted)]
    return tf.math.divide_no_nan(covariance, tf.sqrt(variances[0]) * tf.sqrt(variances[1]))


def metric_total(name, shape, dtype):
    """Returns a local variable of a streaming metric, which starts at 0."""
    return tf.compat.v1.get_local_variable(
        name,
        shape,
        dtype,
        initializer=tf.compat.v1.zeros_initializer(),
        collections=[
            tf.compat.v1.GraphKeys.LOCAL_VARIABLES,
            tf.compat.v1.GraphKeys.METRIC_VARIABLES,
        ],
    )


def _confusion_matrix(labels, classes, weights, num_classes):
    """Streaming confusion matrix, int32 `[num_classes, num_classes]`, labels as rows."""
    total = metric_total("confusion_matrix/total", [num_classes, num_classes], tf.int32)
    # As tf.math.confusion_matrix, whose assertions would be a tenth of a small training graph.
    cells = tf.stack([tf.cast(labels, tf.int32), classes], axis=1)
    counted = tf.scatter_nd(cells, tf.cast(weights, tf.int32), [num_classes, num_classes])
    return total.read_value(), total.assign_add(counted)
