"""Feeds a model from a data set: training, exact evaluation, prediction, serving, host examples.

A subclass replaces the stages that differ. Training and evaluation run the same stages:

    decode            string [n] of serialized tf.train.Examples -> (features, labels), [n, ...]
    draw, sample      random numbers of a batch of training examples
    transform         one example, if `has_transform`; ops that need it, such as JPEG decoding
    batch_transform   a batch [n, ...] -> (features, labels) of the model
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from common.constants import DROPOUT_SEED, TARGETS
from input_fns import DataError
from input_fns.core import caching, input_context, records, serving
from input_fns.core.input_context import HostShard
from input_fns.core.records import PARALLEL_CALLS, no_autograph
from input_fns.dataset_info import DatasetInfo, Feature, flatten, nest
from input_fns.image import images

# Batch of the evaluation of examples that are transformed one by one.
_BATCH = 64


class RecordPipeline:
    """Feeds any features and labels of a prepared data set; a `pipeline.Pipeline`.

    Raw features are tensors of their dtype and shape, image files uint8 pixels. Names such as
    "objects/boxes" become nested dicts. Labels are a nested dict of the features that
    `data.labels` names, with the class as int32 "label" if there are classes; without such
    features, the class only; of a data set with a target that only, float32 `[batch, n]`.

    Attributes:
      data: the data set.
      cache: "auto", "memory", "none", or a local folder; see `caching`.
      assets: paths of files that a SavedModel must hold.
      has_records: False if the examples are not in shards: they have no file names then, and a
        SavedModel takes no tf.train.Examples.
    """

    data: DatasetInfo
    cache: str = caching.AUTO
    assets: Sequence[str] = ()
    has_records = True
    undecoded: Sequence[str] = ()  # names of features that stay strings: those of host metrics only
    outside = "a value in the shards does not match dataset.json"  # of `data.limits`
    # None, or a method from the elements of `stored` to lengths, int32 [n]: training batches then
    # hold examples of similar length, if the split is in memory.
    group_lengths = None

    def __init__(self, data: DatasetInfo, cache: str = caching.AUTO):
        """Raises `DataError` if an image feature has no static shape."""
        self.data, self.cache = data, cache
        for name, feature in data.features.items():
            if not feature.is_static:
                raise DataError(
                    f"{data.name}: the sizes of feature '{name}' differ. Prepare the data with one "
                    "size, or override RecordPipeline.transform and .features"
                )

    def with_data(self, data: DatasetInfo) -> RecordPipeline:
        """Returns this pipeline for `data`: the same data set with other shards."""
        if dataclasses.is_dataclass(self):
            return dataclasses.replace(self, data=data)  # without cached properties
        pipeline = copy.copy(self)
        pipeline.data = data
        return pipeline

    @property
    def features(self) -> dict[str, Feature]:
        """Features of an example in prediction, as the model gets them."""
        return {
            name: Feature("raw", feature.dtype, feature.shape)
            for name, feature in self.data.features.items()
            if name not in self.data.labels
        }

    @property
    def properties(self) -> Mapping[str, Any]:
        """Properties of the data set by name, such as "num_classes"; those of dataset.json too."""
        found = dict(self.data.properties)
        if self.data.all_class_names:
            found["num_classes"] = len(self.data.all_class_names)
        if self.data.target:
            found.update(self.data.target.properties)
        elif self.data.num_classes:
            found["target"] = TARGETS[0]
        found.update(self.data.kind.properties())
        if "image" in self.features:
            found["image_size"] = tuple(self.features["image"].shape[:2])
        return found

    # Stages.

    def decode(self, serialized: tf.Tensor) -> tuple[dict, Any]:
        """Returns stored features and labels of string `[n]`; image files stay strings.

        Running it raises InvalidArgumentError for a value that is not in `data.limits`.
        """
        stored, label = self._parse(serialized, self.data.features, bool(self.data.num_classes))
        labels = {name: stored.pop(name) for name in self.data.labels}
        if self.data.target:
            return nest(stored), labels["target"]
        if labels and label is not None:
            labels["label"] = label
        elif not labels:
            labels = () if label is None else label
        for values in (stored, labels):
            for name, (lowest, limit) in self.data.limits.items():
                if isinstance(values, dict) and name in values:
                    what = f"{name}: {self.outside}"
                    values[name] = images.checked(values[name], limit, what, lowest)
        return nest(stored), nest(labels) if isinstance(labels, dict) else labels

    def draw(self, count: int, seed: tf.Tensor) -> tf.Tensor:
        """Returns float32 `[count, k]` random numbers, a function of `seed`, int32 `[2]`."""
        del seed
        # One at least: tf.data's parallel batch crashes on tensors without elements.
        return tf.zeros([count, 1])

    def sample(self, numbers: tf.Tensor) -> Any:
        """Returns the random values that the transforms take, nested tensors `[n, ...]`.

        Args:
          numbers: float32 `[n, k]` of `draw`.
        """
        return numbers

    def has_transform(self, spec: Any, training: bool) -> bool:
        """Returns True if `transform` must run; it costs some ops per example.

        Args:
          spec: nested `tf.TensorSpec`s of `decode`'s features and labels.
          training: False in evaluation and prediction.
        """
        del training
        return any(part.dtype == tf.string for part in tf.nest.flatten(spec))

    def transform(self, features: dict, labels: Any, random: Any) -> tuple[dict, Any]:
        """Returns features and labels of one example; decodes image files.

        Args:
          features: nested tensors of one example of `decode`.
          labels: the same.
          random: one row of `sample`; None in evaluation and prediction.
        """
        del random
        return self._decode_files(features, labels)

    def batch_transform(self, features: dict, labels: Any, random: Any) -> tuple[dict, Any]:
        """Returns features and labels as the model gets them.

        Args:
          features: nested tensors `[n, ...]` of `transform` if that runs, else of `decode`.
          labels: the same.
          random: tensors `[n, ...]` of `sample`; None in evaluation and prediction.
        """
        del random
        return features, labels

    # Input functions.

    def train_input_fn(
        self, split: str, seed: int, start_step: int = 0, oversample: float | None = None
    ):
        """Returns an input_fn for training: endless, reshuffled each epoch, augmented.

        Args:
          split: name of the split.
          seed: seed of order and augmentation, which depend on nothing else.
          start_step: global batches to skip, those of the run that is resumed.
          oversample: exponent of oversampling by class; see `class_sampling`. None: none.

        Returns:
          `input_fn(params) -> tf.data.Dataset` of `(features, labels)` in batches of exactly
          `params["batch_size"]`, the rows of one host: see `input_context`. `features` has
          "dropout_seed", int32 `[batch, 2]`.

        Raises:
          DataError: the split does not fit in the memory or on the disk that `cache` names, or an
            order by length needs it in memory.
        """
        plan = self.plan(split)
        if self.group_lengths and not plan.in_memory:
            raise DataError(
                f"--group_by_length needs split '{split}' in memory, but it is read from its files "
                "each epoch. Use --cache=memory if it fits, or remove --group_by_length"
            )

        def input_fn(params):
            host_shard = input_context.from_params(params)
            info = self.data.split(split)
            if plan.in_memory:
                dataset = records.train_from_memory(
                    self.stored(split, plan.decoded),
                    info.num_examples,
                    self.draw,
                    host_shard,
                    seed,
                    start_step,
                    self.group_lengths,
                    None if oversample is None else (self._classes, oversample),
                )
            else:
                dataset = records.train_from_files(
                    self.data.files(split),
                    info.shards,
                    self.decode,
                    self.draw,
                    host_shard,
                    seed,
                    start_step,
                    info.record_bytes,
                    plan.path,
                    None if oversample is None else (self._classes_of(split), oversample),
                )
            return records.prefetched(self._train_examples(dataset, host_shard.batch_size))

        return input_fn

    def eval_input_fn(self, split: str):
        """Returns an input_fn for exact evaluation: every example once, in order.

        Returns:
          `input_fn(params) -> tf.data.Dataset` of `(features, labels)` in batches of exactly
          `params["batch_size"]`, the rows of one host. The final global batch is padded:
          `features["weight"]`, float32 `[batch]`, is 1 for an example and 0 for padding.
        """

        def input_fn(params):
            host_shard = input_context.from_params(params)
            num_examples = self.data.split(split).num_examples
            dataset = self.in_order(split, host_shard)
            return records.pad_final_batch(dataset, host_shard, num_examples)

        return input_fn

    def predict_input_fn(self, split: str):
        """Returns an input_fn for prediction: every example once, in order, without padding.

        Returns:
          `input_fn(params) -> tf.data.Dataset` of features; the final batch may be smaller than
          `params["batch_size"]` (a TPUEstimator pads and trims it).
        """

        def input_fn(params):
            dataset = self.features_in_order(split).rebatch(params["batch_size"])
            return records.with_options(dataset.prefetch(2))

        return input_fn

    def host_input_fn(self, split: str):
        """Returns None: the order of `host_examples` is that of evaluation and prediction."""
        del split

    def host_examples(self, split: str, batch_size: int) -> Iterator[tuple[Any, Any]]:
        """Yields NumPy `(features, labels)` batches: every example once, without padding."""
        return records.iterate(lambda: self.in_order(split).rebatch(batch_size))

    def file_names(self, split: str) -> Iterator[str] | None:
        """Returns the names of the source files of the examples, in order; None without names.

        It reads the shards again: a TPU takes no strings along with the features.
        """
        if not self.has_records:
            return None
        info = self.data.split(split)
        names = records.names(self.data.files(split), info.record_bytes, info.shards)
        first = next(names)
        return (name.decode() for name in itertools.chain([first], names)) if first else None

    @property
    def input_limits(self) -> dict[str, tuple]:
        """`{feature: (lowest, limit)}` of the values of a request; see `serving.checked`."""
        return {name: limits for name, limits in self.data.limits.items() if name in self.features}

    def outputs(self, predictions: dict, features: dict, top_k: int = 0) -> dict[str, tf.Tensor]:
        """Returns the outputs of a signature from the model's predictions and features.

        Args:
          predictions: tensors of the model.
          features: features of the model.
          top_k: see `serving.class_outputs`.
        """
        del features
        return serving.class_outputs(predictions, self.data.all_class_names, top_k)

    def receivers(self, top_k: int = 0) -> dict[str, serving.Receiver]:
        """Returns the serving input receivers by signature: features; tf.train.Examples of records.

        Args:
          top_k: see `serving.class_outputs`.
        """
        outputs = functools.partial(self.outputs, top_k=top_k)

        def first_records(split, count):
            return {serving.EXAMPLES: serving.first_records(self.data.files(split), count)}

        receivers = {
            serving.RAW: serving.Receiver(
                serving.raw_inputs(self.features),
                nest,
                outputs,
                self._first_features,
                self.input_limits,
            )
        }
        if self.has_records:
            receivers[serving.TF_EXAMPLE] = serving.Receiver(
                serving.string_inputs(serving.EXAMPLES),
                self._features_from_records,
                outputs,
                first_records,
                self.input_limits,
            )
        return receivers

    # Data sets in order.

    def plan(self, split: str) -> caching.Plan:
        """Returns how a training split is cached."""
        return caching.plan(self.data, split, self.cache)

    def stored(
        self, split: str, decoded: bool = False, host_shard: HostShard | None = None
    ) -> tf.data.Dataset:
        """Returns `decode` of every example once, in order, in batches of any size.

        Args:
          split: name of the split.
          decoded: decode image files too; all must have one size.
          host_shard: decode the host's rows of each global batch only; None for all rows.
        """
        info, features = self.data.split(split), self.data.features.values()
        parsed = sum(feature.num_bytes for feature in features if not feature.is_image_file)
        size = max(info.record_bytes, parsed)
        dataset = records.in_order(
            self.data.files(split), self.decode, size, info.shards, host_shard
        )
        if not decoded or not RecordPipeline.has_transform(self, dataset.element_spec, True):
            return dataset
        dataset = records.parallel_map(dataset.unbatch(), self._decode_files)
        return dataset.batch(_BATCH, num_parallel_calls=PARALLEL_CALLS)

    def in_order(self, split: str, host_shard: HostShard | None = None) -> tf.data.Dataset:
        """Returns every example once, in order, as evaluation gets it, in batches of any size.

        Args:
          split: name of the split.
          host_shard: return the host's rows of each global batch only; None for all rows.
        """
        dataset = self.stored(split, host_shard=host_shard)
        if self.has_transform(dataset.element_spec, training=False):
            dataset = records.parallel_map(
                dataset.unbatch(), lambda *example: self.transform(*example, None)
            )
            dataset = dataset.batch(_BATCH, num_parallel_calls=PARALLEL_CALLS)
        return records.parallel_map(dataset, lambda *batch: self.batch_transform(*batch, None))

    def features_in_order(self, split: str) -> tf.data.Dataset:
        """Returns the features of `in_order` that prediction gets."""
        names = {name.partition("/")[0] for name in self.features}

        @no_autograph
        def select(features, labels):
            del labels
            return {name: value for name, value in features.items() if name in names}

        pipeline = self
        if not self.data.split(split).has_labels:
            pipeline = self.with_data(self.data.stored_in(split))
        return pipeline.in_order(split).map(select)

    def _train_examples(self, dataset, batch_size):
        """From `((features, labels), numbers)` to batches of features and labels of the model."""

        @no_autograph
        def sample(examples, numbers):
            numbers, seeds = records.split_numbers(numbers)
            return examples, self.sample(numbers), seeds

        def transform_one(example, random, seeds):
            return self.transform(*example, random), random, seeds

        def transform_batch(examples, random, seeds):
            features, labels = self.batch_transform(*examples, random)
            return {**features, DROPOUT_SEED: seeds[DROPOUT_SEED]}, labels

        if not self.has_transform(dataset.element_spec[0], training=True):
            return records.parallel_map(dataset, lambda *batch: transform_batch(*sample(*batch)))
        dataset = records.parallel_map(dataset.map(sample).unbatch(), transform_one)
        dataset = dataset.batch(batch_size, drop_remainder=True, num_parallel_calls=PARALLEL_CALLS)
        return records.parallel_map(dataset, transform_batch)

    # Parts of stages.

    def _classes_of(self, split):
        """Returns the classes of all examples of a split, int `[num_examples]`, read once."""
        found = self.__dict__.setdefault("classes_of_splits", {})
        if split not in found:
            print(f"--oversample: reading the classes of split '{split}'", flush=True)
            batches = records.iterate(lambda: self.stored(split).map(self._classes))
            found[split] = np.concatenate(list(batches))
        return found[split]

    @no_autograph
    def _classes(self, features, labels):
        """Returns the classes of stored examples, int `[n]`."""
        del features
        classes = labels.get("label", ()) if isinstance(labels, dict) else labels
        is_class = tf.is_tensor(classes) and classes.dtype.is_integer and classes.shape.rank == 1
        if not is_class:
            raise DataError(
                f"--oversample needs one class for each example, which {self.data.name} does not "
                "have. Remove --oversample"
            )
        return classes

    def _parse(self, serialized, features, has_labels=False, may_be_empty=False):
        """Returns `{name: [n, ...]}`, image files as strings, and int32 `[n]` classes or None."""
        parse = images.stored_fn(features, has_labels, self.data.num_classes, may_be_empty)
        stored, labels = parse(serialized)
        for name, feature in features.items():
            if not feature.is_image_file and name not in self.undecoded:
                stored[name] = images.decode_raw(stored[name], feature)
        return stored, labels

    @no_autograph
    def _decode_files(self, features, labels):
        def decode(values):
            by_name = flatten(values)
            for name, value in by_name.items():
                if value.dtype == tf.string:
                    by_name[name] = images.decode(value, self.data.features[name])
            return nest(by_name)

        return decode(features), decode(labels) if isinstance(labels, dict) else labels

    def _features_from_records(self, inputs):
        wanted = self.data.features.items()
        stored = {name: feature for name, feature in wanted if name in self.features}
        features, _ = self._parse(inputs[serving.EXAMPLES], stored, may_be_empty=True)
        features = nest(features)
        if self.has_transform(features, training=False):
            output = {name: tf.TensorSpec(f.shape, f.dtype) for name, f in self.features.items()}
            features = tf.map_fn(
                lambda example: self.transform(example, (), None)[0],
                features,
                fn_output_signature=nest(output),
            )
        return self.batch_transform(features, (), None)[0]

    def _first_features(self, split, count):
        first = serving.first_of(lambda: self.features_in_order(split), count)
        return flatten(first)
