"""The ways into a SavedModel: from what a request holds to what the model is fed with."""

from __future__ import annotations

import dataclasses
from typing import Callable

import numpy as np
import tensorflow as tf

from input_fns.dataset_info import Feature

# The signatures. A raw one is the default: it needs nothing that is not in every runtime.
RAW = "serving_default"
IMAGE_BYTES = "image_bytes"
TF_EXAMPLE = "tf_example"
CLASSIFY = "classify"
TEXT = "text"

EXAMPLES = "examples"


@dataclasses.dataclass(frozen=True)
class Receiver:
    """One way into a SavedModel.

    Attributes:
      inputs: `{name: spec}` of what a request holds, batch size free; no two receivers share names.
      features: from tensors of `inputs` to what the model sees.
      outputs: from predictions to what the SavedModel answers.
      requests: `(split, count) -> {name: array [count, ...]}`, the first examples of a split.
    """

    inputs: dict[str, tf.TensorSpec]
    features: Callable[[dict[str, tf.Tensor]], dict[str, tf.Tensor]]
    outputs: Callable[[dict[str, tf.Tensor]], dict[str, tf.Tensor]]
    requests: Callable[[str, int], dict[str, np.ndarray]]


def first_requests(pipeline, split: str, count: int) -> dict[str, dict[str, np.ndarray]]:
    """Returns requests for the first examples of a split, `{signature: {input: array}}`."""
    receivers = pipeline.receivers().items()
    return {name: receiver.requests(split, count) for name, receiver in receivers}


def raw_inputs(features: dict[str, Feature]) -> dict[str, tf.TensorSpec]:
    """Returns the inputs of a receiver that takes what the model sees."""
    return {
        name: tf.TensorSpec([None, *feature.shape], feature.dtype)
        for name, feature in features.items()
    }


def string_inputs(name: str) -> dict[str, tf.TensorSpec]:
    """Returns the inputs of a receiver that takes one string for each example."""
    return {name: tf.TensorSpec([None], tf.string)}


def first_of(dataset_fn: Callable[[], tf.data.Dataset], count: int):
    """Returns the first `count` elements of a data set in batches of any size, as arrays."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        examples = dataset_fn().rebatch(count)
        return session.run(tf.compat.v1.data.make_one_shot_iterator(examples).get_next())


def first_records(files: list[str], count: int) -> np.ndarray:
    """Returns the first `count` records of shards, as they are stored, objects `[count]`."""
    return first_of(lambda: tf.data.TFRecordDataset(files).batch(count), count)


def class_outputs(predictions, class_names, top_k: int):
    """Adds names to predictions of classes, for a SavedModel.

    Text stays out of the predictions themselves, which a TPU computes.

    Args:
      predictions: `{"classes": int32 [batch], "probabilities": float32 [batch, num_classes]}`.
      class_names: in the order of the probabilities; () where classes have none.
      top_k: how many of the likeliest classes come too, likeliest first; 0 for none.

    Returns:
      The predictions and `class_names`, string `[batch]`; of `top_k` also `top_classes`, int32,
      `top_class_names`, string, and `top_probabilities`, float32, all `[batch, top_k]`. What
      predicts no classes, or some without names, stays as it is.
    """
    if "classes" not in predictions or not class_names:
        return predictions
    names = tf.constant(class_names)
    outputs = {**predictions, "class_names": tf.gather(names, predictions["classes"])}
    if top_k:
        probabilities, classes = tf.math.top_k(predictions["probabilities"], top_k)
        outputs["top_classes"] = classes
        outputs["top_class_names"] = tf.gather(names, classes)
        outputs["top_probabilities"] = probabilities
    return outputs
