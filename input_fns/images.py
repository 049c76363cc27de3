"""Stored images and labels: from TFRecord bytes to tensors, and the receiver that serving feeds."""

from __future__ import annotations

import tensorflow as tf

OUTSIDE_CLASSES = "a label in the shards is outside the classes of dataset.json"


def parse_fn(features, num_classes):
    """Returns a parser of a batch of serialised tf.train.Examples.

    Args:
      features: `{name: dataset.Feature}`, each stored as one string of raw little-endian numbers.
      num_classes: labels must lie in [0, num_classes).

    Returns:
      `parse(string [batch]) -> (features, labels)`: `{name: dtype [batch, *shape]}` and int32
      `[batch]`. Running it raises InvalidArgumentError for a label outside the classes.
    """
    spec = {name: tf.io.FixedLenFeature([], tf.string) for name in features}
    spec["label"] = tf.io.FixedLenFeature([], tf.int64)

    def parse(serialized):
        stored = tf.io.parse_example(serialized, spec)
        labels = _checked(tf.cast(stored.pop("label"), tf.int32), num_classes)
        return {name: _decode(stored[name], features[name]) for name in features}, labels

    return parse


def raw_serving_input_receiver_fn(features):
    """Returns a serving_input_receiver_fn whose inputs are the stored features, batch size free."""

    def serving_input_receiver_fn():
        receivers = {
            name: tf.compat.v1.placeholder(feature.dtype, [None, *feature.shape], name)
            for name, feature in features.items()
        }
        return tf.estimator.export.ServingInputReceiver(receivers, receivers)

    return serving_input_receiver_fn


def _decode(stored, feature):
    numbers = tf.io.decode_raw(stored, feature.dtype)
    return tf.reshape(numbers, [-1, *feature.shape])


def _checked(labels, num_classes):
    # On the host and once a batch: it costs nothing, and on a TPU it would not even run.
    inside = tf.reduce_all((labels >= 0) & (labels < num_classes))
    facts = [f"{OUTSIDE_CLASSES}: [0, {num_classes}) does not hold all of", labels]
    with tf.control_dependencies([tf.debugging.Assert(inside, facts, summarize=16)]):
        return tf.identity(labels)
