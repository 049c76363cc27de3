"""Arrays in memory with any features and labels: tables, signals, custom formats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from common.constants import DROPOUT_SEED, EXAMPLE_WEIGHT
from input_fns import DataError
from input_fns.core import caching, records
from input_fns.core.input_context import HostShard
from input_fns.dataset_info import DatasetInfo, Feature, flatten, splits_without_files
from input_fns.record_pipeline import RecordPipeline

_BLOCK = 1024


class ArrayPipeline(RecordPipeline):
    """Feeds NumPy arrays."""

    has_records = False

    def __init__(
        self,
        name: str,
        splits: Mapping[str, tuple[dict[str, Any], Any]],
        class_names: tuple[str, ...] = (),
        properties: Mapping[str, Any] | None = None,
    ):
        """Checks that the arrays fit together.

        Args:
          name: name of the data set.
          splits: `{split: (features, labels)}`: a dict of arrays `[size, ...]`, and one array or a
            dict of them, with the same names, dtypes and shapes in each split. Dicts may be nested.
          class_names: class names in the order of the labels; () without classes.
          properties: properties that models may read by name, besides "num_classes".

        Raises:
          DataError: the arrays differ in size, or the splits in their names, dtypes or shapes; or
            a name is invalid.
        """
        if not splits:
            raise DataError(f"{name} has no splits")
        specs = {split: _spec(name, split, splits[split], class_names) for split in splits}
        first = next(iter(specs.values()))
        for split, spec in specs.items():
            if spec != first:
                raise DataError(f"{name}: split '{split}' is {spec}, others {first}")
        features = {
            feature: Feature("raw", spec.dtype.name, tuple(spec.shape.as_list()[1:]))
            for feature, spec in flatten(first[0]).items()
        }
        sizes = {split: len(tf.nest.flatten(arrays)[0]) for split, arrays in splits.items()}
        self.splits = splits
        self.data = DatasetInfo(
            name,
            "",
            features,
            tuple(class_names),
            splits_without_files(sizes),
            properties=dict(properties or {}),
        )

    def plan(self, split: str) -> caching.Plan:
        """Returns that the split is in memory."""
        return caching.Plan(in_memory=True)

    def stored(
        self, split: str, decoded: bool = False, host_shard: HostShard | None = None
    ) -> tf.data.Dataset:
        """Returns every example once, in order, in batches of any size; see `RecordPipeline`."""
        del decoded
        self.data.split(split)
        arrays = self.splits[split]

        # A generator: arrays as tensors would become constants of the graph.
        def blocks():
            for start in range(0, len(tf.nest.flatten(arrays)[0]), _BLOCK):
                rows = slice(start, start + _BLOCK)
                # Copies: tensors share the memory of aligned arrays, and kernels that XLA compiled
                # wrote into labels.
                yield tf.nest.map_structure(lambda array: array[rows].copy(), arrays)  # noqa: B023

        dataset = tf.data.Dataset.from_generator(blocks, output_signature=_specs(arrays))
        return records.select_host_rows(dataset, host_shard)


def _spec(name, split, arrays, class_names):
    """Returns the nested `tf.TensorSpec`s of a split's arrays, after a check of them."""
    is_pair = isinstance(arrays, tuple) and len(arrays) == 2 and isinstance(arrays[0], dict)
    if not is_pair:
        raise DataError(f"{name}: '{split}' must be ({{name: array}}, labels)")
    features, labels = arrays
    _check_names(name, split, features)
    if isinstance(labels, dict):
        _check_names(name, split, labels)
    for feature in (EXAMPLE_WEIGHT, DROPOUT_SEED):
        if feature in features:
            raise DataError(
                f"{name}: the feature '{feature}' of '{split}' has the name of one that the input "
                "pipeline adds. Rename it"
            )
    by_name = labels if isinstance(labels, dict) else {"the labels": labels}
    for key, array in [*flatten(features).items(), *flatten(by_name).items()]:
        is_array = isinstance(array, np.ndarray) and array.ndim
        if not is_array or array.dtype.kind not in "biuf":
            raise DataError(
                f"{name}: {key} of '{split}' must be an array of numbers with one row per example"
            )
        if array.dtype.itemsize > 8:
            raise DataError(
                f"{name}: {key} of '{split}' is {array.dtype}, which TensorFlow does not support. "
                "Use .astype(np.float32)"
            )
        if np.ma.is_masked(array):
            raise DataError(
                f"{name}: {key} of '{split}' has {np.ma.count_masked(array)} masked values, which "
                "tensors do not support. Fill them with .filled(value), or leave out the examples"
            )
    sizes = {len(array) for array in tf.nest.flatten(arrays)}
    if len(sizes) != 1:
        raise DataError(f"{name}: the arrays of '{split}' have the sizes {sizes}")
    if class_names and isinstance(labels, np.ndarray) and labels.ndim == 1 and labels.size:
        _check_classes(name, split, labels, len(class_names) - 1)
    return _specs(arrays)


def _check_names(name, split, arrays):
    """Raises `DataError` for a name that `flatten` cannot join with those of nested dicts."""
    for key, value in arrays.items():
        if not isinstance(key, str):
            raise DataError(f"{name}: the name {key!r} of '{split}' is not a string. Rename it")
        if "/" in key:
            raise DataError(
                f"{name}: '{key}' of '{split}' has a '/', which separates the names of nested "
                "dicts. Rename it"
            )
        if isinstance(value, Mapping):
            _check_names(name, split, value)


def _check_classes(name, split, labels, last):
    if labels.dtype.kind not in "iu":
        raise DataError(
            f"{name}: the labels of '{split}' are {labels.dtype}; classes must be integers"
        )
    if labels.min() < 0 or labels.max() > last:
        raise DataError(
            f"{name}: the labels of '{split}' are from {labels.min()} to {labels.max()}; those of "
            f"{last + 1} classes must be from 0 to {last}"
        )


def _specs(arrays):
    return tf.nest.map_structure(
        lambda array: tf.TensorSpec([None, *array.shape[1:]], array.dtype), arrays
    )
