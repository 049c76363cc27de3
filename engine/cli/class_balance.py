"""Balances classes: weights that depend on the training split, and checks of --oversample."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import tensorflow as tf

from common.errors import UsageError
from input_fns import DataError
from input_fns.core import inspection
from input_fns.pipeline import Pipeline
from models.layers import class_weights

_BATCH = 1024
_SHOWN = 10  # classes of a line


def with_class_weights(
    params: dict[str, Any], pipeline: Pipeline, split: str, prints: bool
) -> dict[str, Any]:
    """Returns `params` with the weights of the classes in place of `balanced` or `effective:B`.

    Args:
      params: all hyperparameters; those of other models are returned as they are.
      pipeline: the pipeline of the training.
      split: the training split.
      prints: whether to print the weights.

    Raises:
      UsageError: the examples of the split do not have classes.
    """
    value = params.get("class_weights")
    if not isinstance(value, str) or not class_weights.needs_counts(value):
        return params
    found = class_weights.from_counts(value, _counts(pipeline, split, params["num_classes"], value))
    if prints:
        print(f"class_weights={value} of split '{split}': {_line(found, pipeline)}", flush=True)
    return {**params, "class_weights": found}


def check_oversample(value: str, pipeline: Pipeline, params: dict[str, Any]) -> None:
    """Raises `UsageError` if --oversample does not fit the data set or the hyperparameters."""
    if not value:
        return
    if "oversample" not in inspect.signature(pipeline.train_input_fn).parameters:
        raise UsageError(
            f"--oversample={value}: the input pipeline of {pipeline.data.name} does not support it"
            ". Remove --oversample"
        )
    weights = params.get("class_weights")
    if isinstance(weights, str) and class_weights.needs_counts(weights):
        raise UsageError(
            f"--oversample={value} and class_weights={weights} both balance the classes. Use one "
            "of them, or list the weights, such as class_weights=[1,5,2]"
        )


def _counts(pipeline, split, num_classes, value):
    """Returns the number of examples of each class, `[num_classes]`.

    Of several labels, an example counts for each of its classes; of probabilities, by parts.
    """
    histogram = pipeline.data.split(split).label_histogram
    if histogram:
        return histogram
    print(f"class_weights={value}: reading the labels of split '{split}' to count them", flush=True)
    counts = np.zeros(num_classes)
    for _, labels in _examples(pipeline, split, value):
        labels = labels.get("label", ()) if isinstance(labels, dict) else labels
        labels = np.asarray(labels)
        if labels.ndim == 1 and labels.dtype.kind in "iu":
            counts += np.bincount(labels, minlength=num_classes)
        elif labels.shape[1:] == (num_classes,) and labels.dtype.kind == "f":
            counts += labels.sum(axis=0, dtype=np.float64)  # several labels, probabilities
        else:
            raise UsageError(
                f"class_weights={value}: the examples of split '{split}' do not have classes. List "
                "the weights, such as class_weights=[1,5,2]"
            )
    return counts


def _examples(pipeline, split, value):
    """Yields batches; a broken record is one error."""
    try:
        yield from pipeline.host_examples(split, _BATCH)
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError) as error:
        problem = next(iter(inspection.problems(pipeline.data, [split])), error.message)
        raise DataError(
            f"{problem}. class_weights={value} reads all labels, before --skip_bad_records: repair "
            "the data set, or list the weights, such as class_weights=[1,5,2]"
        ) from error


def _line(found, pipeline):
    numbers = [float(number) for number in found[1:-1].split(",")]
    names = pipeline.data.class_names or tuple(map(str, range(len(numbers))))
    named = [f"{name} {number:.3g}" for name, number in zip(names, numbers)]
    if len(named) <= _SHOWN:
        return ", ".join(named)
    order = np.argsort(numbers)
    return f"from {named[order[0]]} to {named[order[-1]]}"
