"""Serving input receivers: from the inputs of a SavedModel signature to the model's features."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping
from typing import Callable

import numpy as np
import tensorflow as tf

from input_fns.core import records
from input_fns.dataset_info import Feature

# Signatures. The raw one is the default: its ops exist in every runtime.
RAW = "serving_default"
IMAGE_BYTES = "image_bytes"
TF_EXAMPLE = "tf_example"
CLASSIFY = "classify"
TEXT = "text"
AUDIO_BYTES = "audio_bytes"
EMBED = "embed"
EMBED_TEXT = "embed_text"

EXAMPLES = "examples"

# Limits of floats, for `Receiver.limits`.
FINITE, POSITIVE = (-math.inf, math.inf), (0, math.inf)


@dataclasses.dataclass(frozen=True)
class Receiver:
    """A serving input receiver of one signature.

    Attributes:
      inputs: `{name: spec}` with a dynamic batch; names are unique over all receivers.
      features: function from tensors of `inputs` to the features of the model.
      outputs: function from predictions and these features to the outputs of the signature.
      requests: `(split, count) -> {name: array [count, ...]}`, the first examples of a split.
      limits: `{feature of the model: (lowest, limit)}`; see `checked`.
      predictions: name of the `Model.other_predictions` that the signature returns, which an export
        lacks if the model does; "": those of the run.
    """

    inputs: dict[str, tf.TensorSpec]
    features: Callable[[dict[str, tf.Tensor]], dict[str, tf.Tensor]]
    outputs: Callable[[dict[str, tf.Tensor], dict[str, tf.Tensor]], dict[str, tf.Tensor]]
    requests: Callable[[str, int], dict[str, np.ndarray]]
    limits: Mapping[str, tuple] = dataclasses.field(default_factory=dict)
    predictions: str = ""


def first_requests(
    pipeline, split: str, count: int, signatures: Collection[str]
) -> dict[str, dict[str, np.ndarray]]:
    """Returns requests for the first examples of a split, `{signature: {input: array}}`.

    Args:
      pipeline: has the serving input receivers.
      split: name of the split.
      count: number of examples.
      signatures: names of the signatures of the SavedModel.
    """
    receivers = pipeline.receivers().items()
    return {
        name: receiver.requests(split, count) for name, receiver in receivers if name in signatures
    }


def checked(features: dict[str, tf.Tensor], limits: Mapping[str, tuple]) -> dict[str, tf.Tensor]:
    """Returns the features of a request, after a check of their values.

    Running them raises InvalidArgumentError for a value outside. Converters to other runtimes
    remove the check.

    Args:
      features: features of the model.
      limits: `{name: (lowest, limit)}`: integers are in [lowest, limit), where limit may be one for
        each column; floats are finite and in (lowest, limit).
    """
    found = dict(features)
    for name, (lowest, limit) in limits.items():
        tensor = features[name]
        if tensor.dtype.is_floating:
            is_valid = (tensor > lowest) & (tensor < limit)  # False for NaN
            above = "" if lowest == -math.inf else f" and above {lowest}"
            problem = [f"{name} must be finite{above}"]
        else:
            is_valid = (tensor >= lowest) & (tensor < tf.constant(limit, tensor.dtype))
            last = np.subtract(limit, 1).tolist()
            problem = [f"{name} must be from {lowest} to {last}. Found values from, to:"]
            ends = tf.reduce_min(tensor), tf.reduce_max(tensor)
            problem += [tf.strings.as_string(end) for end in ends]
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(is_valid), problem)]):
            found[name] = tf.identity(tensor)
    return found


def raw_inputs(features: dict[str, Feature]) -> dict[str, tf.TensorSpec]:
    """Returns the inputs of a receiver of the model's features."""
    return {
        name: tf.TensorSpec([None, *feature.shape], feature.dtype)
        for name, feature in features.items()
    }


def string_inputs(*names: str) -> dict[str, tf.TensorSpec]:
    """Returns the inputs of a receiver of strings, one of each name per example."""
    return {name: tf.TensorSpec([None], tf.string) for name in names}


def first_of(dataset_fn: Callable[[], tf.data.Dataset], count: int):
    """Returns the first `count` examples of a batched `tf.data.Dataset`, as arrays."""
    return next(records.iterate(lambda: dataset_fn().rebatch(count)))


def first_records(files: list[str], count: int) -> np.ndarray:
    """Returns the first `count` serialized records of shards, objects `[count]`."""
    return first_of(lambda: tf.data.TFRecordDataset(files).batch(count), count)


def has_class_probabilities(predictions, class_names) -> bool:
    """Whether predictions have a probability of each class: `[batch, num_classes]`.

    Others, such as a probability of a click or of each pixel, have another shape.

    Args:
      predictions: `{name: [batch, ...]}`.
      class_names: class names in the order of the classes; () without names.
    """
    if not class_names or "probabilities" not in predictions:
        return False
    shape = predictions["probabilities"].shape
    return shape.rank == 2 and shape.as_list()[1] == len(class_names)


def class_outputs(predictions, class_names, top_k: int):
    """Adds class names to predictions, for a SavedModel; a TPU computes no strings.

    Args:
      predictions: `{"classes": int32 [batch], "probabilities": float32 [batch, num_classes]}`; of
        several labels without "classes".
      class_names: class names in the order of the probabilities; () without names.
      top_k: number of most probable classes to add, most probable first; 0 for none.

    Returns:
      The predictions with `class_names`, string `[batch]`; with `top_k` also `top_classes`, int32,
      `top_class_names`, string, and `top_probabilities`, float32, all `[batch, top_k]`. Without
      class names, the predictions unchanged.
    """
    outputs = dict(predictions)
    if class_names and "classes" in predictions and predictions["classes"].shape.rank == 1:
        outputs["class_names"] = tf.gather(tf.constant(class_names), predictions["classes"])
    if top_k and has_class_probabilities(predictions, class_names):
        names = tf.constant(class_names)
        probabilities, classes = tf.math.top_k(predictions["probabilities"], top_k)
        outputs["top_classes"] = classes
        outputs["top_class_names"] = tf.gather(names, classes)
        outputs["top_probabilities"] = probabilities
    return outputs
