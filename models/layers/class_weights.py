"""Class weights, the hyperparameter `class_weights` of every classifier.

    none         no weights
    [1,5,2]      one weight per class, in the order of the classes
    balanced     n / (num_classes * count), as in scikit-learn
    effective:B  (1 - B) / (1 - B^count), the inverse of the effective number of examples, scaled to
                 a sum of num_classes (Cui et al. 2019, arXiv:1901.05555)

They weight the loss of training. An evaluation reports the loss without weights, as Keras does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from common import strict_flags
from common.constants import EXAMPLE_WEIGHT
from common.messages import did_you_mean
from models.model import ModelError

NONE = "none"
_BALANCED, _EFFECTIVE = "balanced", "effective"


def default_params():
    """Returns the hyperparameter `class_weights`."""
    return {"class_weights": NONE}


def check_params(params):
    """Raises `ModelError` for an invalid value of `class_weights`."""
    value = _value(params)
    if not needs_counts(value):
        _listed(value, params["num_classes"])
    elif value != _BALANCED:
        _beta(value)


def needs_counts(value: str) -> bool:
    """Whether the weights depend on the number of examples of each class; see `from_counts`."""
    return value == _BALANCED or value.partition(":")[0] == _EFFECTIVE


def from_counts(value: str, counts: Sequence[float]) -> str:
    """Returns the value of `class_weights` that lists the weights of `balanced` or `effective`.

    Classes without examples have the weight 0 and do not count as classes.

    Args:
      value: `balanced` or `effective:B`.
      counts: number of training examples of each class; of probabilities, their sums.
    """
    counts = np.array(counts, np.float64)
    present = counts > 0
    weights = np.zeros_like(counts)
    if value == _BALANCED:
        weights[present] = counts.sum() / (present.sum() * counts[present])
    else:
        with np.errstate(divide="ignore"):  # B = 0: all weights are 1
            inverse = -1 / np.expm1(counts[present] * np.log(_beta(value)))
        weights[present] = inverse * (present.sum() / inverse.sum())
    return f"[{','.join(map(repr, weights.tolist()))}]"


def of_classes(features, params):
    """Returns the weights of the classes in the loss.

    Args:
      features: of a batch; those of an evaluation have the weights of padded examples.
      params: hyperparameters.

    Returns:
      float32 `[num_classes]`, or None for no weights.

    Raises:
      ModelError: `class_weights` is invalid, or depends on counts (`from_counts`).
    """
    if EXAMPLE_WEIGHT in features or _value(params) == NONE:
        return None
    return tf.constant(_listed(_value(params), params["num_classes"]))


def of_examples(features, labels, params):
    """Returns the weight of each example: the sum of class weight times probability of the class.

    Args:
      features: see `of_classes`.
      labels: int32 `[batch]`, or float32 `[batch, num_classes]`, probabilities of the classes.
      params: hyperparameters; label smoothing changes the probabilities.

    Returns:
      float32 `[batch]`, or None for no weights.
    """
    weights = of_classes(features, params)
    if weights is None:
        return None
    smoothing = params["label_smoothing"]
    weights = (1 - smoothing) * weights + smoothing * tf.reduce_mean(weights)
    if labels.dtype.is_integer:
        return tf.gather(weights, labels)
    return tf.reduce_sum(labels * weights, axis=-1)  # a TPU rounds factors of a matmul


def _value(params):
    return params.get("class_weights", NONE)  # a model outside this package may lack it


def _beta(value):
    """Returns B of `effective:B`."""
    try:
        beta = strict_flags.to_float(value.partition(":")[2])
    except ValueError:
        beta = -1
    if not 0 <= beta < 1:
        raise ModelError(
            f"class_weights={strict_flags.shown(value)} needs a number in [0, 1), such as "
            f"{_EFFECTIVE}:0.999"
        )
    return beta


def _listed(value, num_classes):
    """Returns the weights of `[1,5,2]`, or of `none`, as float32 `[num_classes]`."""
    if value == NONE:
        return np.ones([num_classes], np.float32)
    what = f"class_weights={strict_flags.shown(value)}"
    if needs_counts(value):
        raise ModelError(f"{what} depends on the examples of each class, which are unknown here")
    if not (value.startswith("[") and value.endswith("]")):
        forms = (NONE, _BALANCED, f"{_EFFECTIVE}:0.999", "[1,5,2]")
        raise ModelError(f"{what} is unknown.{did_you_mean(value, forms)}")
    try:
        weights = [strict_flags.to_float(part) for part in value[1:-1].split(",")]
    except ValueError as error:
        raise ModelError(f"{what} is not a list of numbers such as [1,5,2]") from error
    if len(weights) != num_classes:
        raise ModelError(f"{what} has {len(weights)} weights for {num_classes} classes")
    if min(weights) < 0 or not any(weights):
        raise ModelError(f"{what}: weights must not be below 0, and one must be above 0")
    return np.array(weights, np.float32)
