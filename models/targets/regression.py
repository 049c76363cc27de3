"""One or more numbers per example.

Labels are float32 `[batch, num_classes]`, one column per number. The network computes numbers in
standard deviations from their means in the training data; the outputs of inference are
`{"logits": float32 [batch, num_classes]}` and in the units of the labels `"numbers"`, with their
`"scale"`.
"""

from __future__ import annotations

import tensorflow as tf

from models import classification
from models.layers.losses import huber
from models.model import Loss
from models.targets.number_report import NumberReport

LOSSES = ("squared_error", "huber")
METRIC_DIRECTIONS = dict.fromkeys(("mean_absolute_error", "root_mean_squared_error"), "min")


def outputs(outputs, params):
    """Returns the outputs of inference with `numbers` and `scale`.

    Mean and scale are variables, so that a checkpoint predicts the same numbers with another data
    set. A new training starts with those of its data set; without them, with those of its warm
    start, or without scaling.
    """
    count = params["num_classes"]

    def constant(name, values):
        initializer = tf.compat.v1.constant_initializer(list(values))
        return tf.compat.v1.get_variable(
            f"target/{name}", [count], tf.float32, initializer, trainable=False
        )

    mean = constant("mean", params["target_mean"] or [0.0] * count)
    scale = constant("scale", params["target_scale"] or [1.0] * count)
    logits = tf.cast(outputs["logits"], tf.float32)
    scale = tf.broadcast_to(scale, tf.shape(logits))
    scale = tf.ensure_shape(scale, logits.shape)
    return {**outputs, "numbers": logits * scale + mean, "scale": scale}


def dataset_variables(params):
    """Returns the names of mean and scale, if the data set has them; see `Model`."""
    has_scaling = params["target_mean"] or params["target_scale"]
    return ["target/mean", "target/scale"] if has_scaling else []


def losses(features, labels, outputs, params):
    """Squared error or Huber loss, the mean over the numbers, in standard deviations of each."""
    del features
    errors = (outputs["numbers"] - labels) / outputs["scale"]
    if params["loss"] == "huber":
        return {"huber": Loss(tf.reduce_mean(huber(errors, params["huber_delta"]), axis=-1))}
    return {"squared_error": Loss(tf.reduce_mean(tf.square(errors), axis=-1))}


def mean_outputs(outputs, params):
    """Returns the mean of the numbers; see `models.model.Model`."""
    del params
    return {name: tf.reduce_mean(values, axis=0) for name, values in outputs.items()}


def metrics(labels, outputs, weights, params):
    """Streaming `mean_absolute_error` and `root_mean_squared_error`, means over the numbers."""
    del params
    # float64: a float32 total stops to grow after millions of examples.
    errors = tf.cast(outputs["numbers"] - labels, tf.float64)
    counted = tf.cast(weights, tf.float64)[:, tf.newaxis]

    def mean(name, values):  # [num_classes]
        total = classification.metric_total(f"{name}/total", [labels.shape[1]], tf.float64)
        count = classification.metric_total(f"{name}/count", [], tf.float64)
        return (
            tf.math.divide_no_nan(total.read_value(), count.read_value()),
            tf.math.divide_no_nan(
                total.assign_add(tf.reduce_sum(values * counted, axis=0)),
                count.assign_add(tf.reduce_sum(counted)),
            ),
        )

    absolute, squared = mean("absolute", tf.abs(errors)), mean("squared", tf.square(errors))
    return {
        "mean_absolute_error": tuple(tf.reduce_mean(side) for side in absolute),
        "root_mean_squared_error": tuple(tf.reduce_mean(tf.sqrt(side)) for side in squared),
    }


def predictions(features, outputs, params):
    """Returns `{"numbers": float32 [batch, num_classes]}`."""
    del features, params
    return {"numbers": outputs["numbers"]}


def host_metrics(params, pipeline):
    """Coefficient of determination and correlations, and a report of each number."""
    return [NumberReport(classification.class_names(params, pipeline))]


def reports(params, pipeline):
    """None besides that of `host_metrics`."""
    del params, pipeline
    return []
