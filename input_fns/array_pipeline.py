"""The input_fns of arrays in memory, of any features and labels: tables, signals, own formats."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import tensorflow as tf

from input_fns import DataError, input_context, records, serving
from input_fns.dataset_info import Dataset, Feature, unstored
from input_fns.records import plain

_BLOCK = 1024


@dataclasses.dataclass(frozen=True)
class ArrayPipeline:
    """A data set of arrays, as a model sees it; a `pipeline.Pipeline`.

    Attributes:
      name: of the data set.
      splits: `{split: (features, labels)}`: `{name: array [size, ...]}` and an array
        `[size, ...]`, of the same names, types and shapes in each.
      class_names: in the order of the labels; () where there are no classes.
    """

    name: str
    splits: Mapping[str, tuple[dict[str, np.ndarray], np.ndarray]]
    class_names: tuple[str, ...] = ()
    assets: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self):
        """Raises `DataError` for arrays that do not fit together."""
        specs = {}
        for split, arrays in self.splits.items():
            self._check_arrays(split, arrays)
            sizes = {len(array) for array in tf.nest.flatten(arrays)}
            if len(sizes) != 1:
                raise DataError(f"{self.name}: the arrays of '{split}' have the sizes {sizes}")
            self._check_classes(split, arrays[1])
            specs[split] = _spec(arrays)
        first = next(iter(specs.values()), None)
        if first is None:
            raise DataError(f"{self.name} has no splits")
        for split, spec in specs.items():
            if spec != first:
                raise DataError(f"{self.name}: split '{split}' is {spec}, others {first}")

    def _check_arrays(self, split, arrays):
        is_pair = isinstance(arrays, tuple) and len(arrays) == 2 and isinstance(arrays[0], dict)
        if not is_pair:
            raise DataError(f"{self.name}: '{split}' should be ({{name: array}}, labels)")
        for name, array in {**arrays[0], "the labels": arrays[1]}.items():
            if (
                not isinstance(array, np.ndarray)
                or not array.ndim
                or array.dtype.kind not in "biuf"
            ):
                raise DataError(
                    f"{self.name}: {name} of '{split}' should be an array of numbers with a row an "
                    "example"
                )

    def _check_classes(self, split, labels):
        if not self.class_names or labels.ndim != 1 or not labels.size:
            return
        if labels.dtype.kind not in "iu":
            raise DataError(
                f"{self.name}: the labels of '{split}' are {labels.dtype}, and those of classes "
                "must be integers"
            )
        last = len(self.class_names) - 1
        if labels.min() < 0 or labels.max() > last:
            raise DataError(
                f"{self.name}: the labels of '{split}' go from {labels.min()} to {labels.max()}, "
                f"those of {last + 1} classes from 0 to {last}"
            )

    @functools.cached_property
    def data(self) -> Dataset:
        """What is known of the data set, which lies in no folder."""
        splits = unstored({name: len(labels) for name, (_, labels) in self.splits.items()})
        return Dataset(self.name, "", self.features, self.class_names, splits)

    @functools.cached_property
    def features(self) -> dict[str, Feature]:
        """What the model sees, `{name: Feature}`."""
        features, _ = next(iter(self.splits.values()))
        return {
            name: Feature("raw", array.dtype.name, array.shape[1:])
            for name, array in features.items()
        }

    def train_input_fn(self, split: str, seed: int, start_step: int = 0):
        """Returns an input_fn for training: see `records.train_from_memory`."""
        size = self.data.split(split).num_examples

        @plain
        def with_seeds(examples, numbers):
            features, labels = examples
            return {**features, **records.split_numbers(numbers)[1]}, labels

        def input_fn(params):
            share = input_context.of_params(params)
            dataset = records.train_from_memory(
                self._in_order(split), size, _draw_nothing, share, seed, start_step
            )
            return records.prefetched(dataset.map(with_seeds))

        return input_fn

    def eval_input_fn(self, split: str):
        """Returns an input_fn for exact evaluation: see `records.evaluate`."""

        def input_fn(params):
            return records.evaluate(self._in_order(split), input_context.of_params(params))

        return input_fn

    def predict_input_fn(self, split: str):
        """Returns an input_fn for prediction: every example once, in order, no padding."""

        def input_fn(params):
            examples = self._in_order(split).map(plain(lambda features, labels: features))
            return records.untuned(examples.rebatch(params["batch_size"]).prefetch(2))

        return input_fn

    def host_input_fn(self, split: str):
        """Returns the input_fn of the predictions that host metrics need."""
        return self.predict_input_fn(split)

    def file_names(self, split: str) -> None:
        """Returns None: an array has no names."""
        del split

    def receivers(self, top_k: int = 0) -> dict[str, serving.Receiver]:
        """Returns the one way into a SavedModel: what the model sees."""

        def outputs(predictions):
            return serving.class_outputs(predictions, self.class_names, top_k)

        def first_examples(split, count):
            return {name: array[:count] for name, array in self.splits[split][0].items()}

        inputs = serving.raw_inputs(self.features)
        return {serving.RAW: serving.Receiver(inputs, dict, outputs, first_examples)}

    def _in_order(self, split):
        """Every example once, in order, in batches of any size."""
        arrays = self.splits[split]

        # By a function, so that the numbers do not become constants of the graph.
        def blocks():
            features, labels = arrays
            for start in range(0, len(labels), _BLOCK):
                rows = slice(start, start + _BLOCK)
                yield {name: array[rows] for name, array in features.items()}, labels[rows]

        return tf.data.Dataset.from_generator(blocks, output_signature=_spec(arrays))


def _spec(arrays):
    return tf.nest.map_structure(
        lambda array: tf.TensorSpec([None, *array.shape[1:]], array.dtype), tuple(arrays)
    )


def _draw_nothing(count, seed):
    del seed
    return tf.zeros([count, 0])
