"""A prepared data set: what `dataset.json` beside the shards says, and the input_fns over it."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from typing import Any

import tensorflow as tf

from input_fns import DataError, deployment, images, records

FORMAT = 1
FILE_NAME = "dataset.json"


@dataclasses.dataclass(frozen=True)
class Feature:
    """A stored feature: numbers of `dtype` and static `shape`, as raw little-endian bytes."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """Bytes of one example."""
        return math.prod(self.shape) * tf.as_dtype(self.dtype).size


@dataclasses.dataclass(frozen=True)
class Shard:
    """One TFRecord file of a split."""

    name: str
    num_bytes: int
    num_examples: int


@dataclasses.dataclass(frozen=True)
class Split:
    """The shards of a split, in order, and how often each class occurs."""

    label_histogram: tuple[int, ...]
    shards: tuple[Shard, ...]

    @property
    def num_examples(self) -> int:
        """Examples of all shards."""
        return sum(shard.num_examples for shard in self.shards)


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A data set on local disk or gs://, as `prepare_data.py` wrote it."""

    name: str
    data_dir: str
    features: dict[str, Feature]
    class_names: tuple[str, ...]
    splits: dict[str, Split]

    @property
    def num_classes(self) -> int:
        """Number of classes; labels are int32 in [0, num_classes)."""
        return len(self.class_names)

    def split(self, name: str) -> Split:
        """Returns the split called `name`.

        Raises:
          DataError: there is none, or it is empty.
        """
        if name not in self.splits:
            raise DataError(
                f"{self.name} in {self.data_dir} has no split '{name}'; "
                f"it has: {', '.join(self.splits)}"
            )
        if not self.splits[name].num_examples:
            raise DataError(f"split '{name}' of {self.name} in {self.data_dir} has no examples")
        return self.splits[name]

    def train_input_fn(self, split: str, seed: int, start_step: int = 0):
        """Returns an input_fn for training: endless, reshuffled each epoch.

        Args:
          split: name of the split.
          seed: of the shuffle; the order of the examples is a function of it alone.
          start_step: global batches that an earlier run has used up; the order goes on after them.

        Returns:
          `input_fn(params) -> tf.data.Dataset` of `(features, labels)` in batches of exactly
          `params["batch_size"]`: the stored features and int32 `[batch]` labels. With a
          `params["context"]`, as a TPUEstimator gives it, those of this host alone.
        """

        def input_fn(params):
            size = self.split(split).num_examples
            num_bytes = size * sum(feature.num_bytes for feature in self.features.values())
            files, parse, share = self._files(split), self._parse(), deployment.of_params(params)
            if num_bytes <= records.IN_MEMORY_BYTES:
                return records.train_from_memory(files, parse, size, share, seed, start_step)
            return records.train_from_files(files, parse, share, seed)

        return input_fn

    def eval_input_fn(self, split: str):
        """Returns an input_fn for exact evaluation: every example once, in order.

        Returns:
          `input_fn(params) -> tf.data.Dataset` of `(features, labels)` in batches of exactly
          `params["batch_size"]`. The last global batch is padded; `features["weight"]`, float32
          `[batch]`, is 1 for an example and 0 for padding. With a `params["context"]`, as a
          TPUEstimator gives it, those of this host alone.
        """

        def input_fn(params):
            share = deployment.of_params(params)
            return records.evaluate(self._files(split), self._parse(), share)

        return input_fn

    def predict_input_fn(self, split: str):
        """Returns an input_fn for prediction: every example once, in order, no padding.

        Returns:
          `input_fn(params) -> tf.data.Dataset` of features; the last batch may be smaller than
          `params["batch_size"]` (a TPUEstimator pads and trims it by itself).
        """

        def input_fn(params):
            share = deployment.of_params(params)
            dataset = records.predict(self._files(split), self._parse(), share)
            return dataset.map(lambda features, labels: features)

        return input_fn

    def serving_input_receiver_fn(self):
        """Returns the receiver of the raw signature: stored features, any batch size."""
        return images.raw_serving_input_receiver_fn(self.features)

    def _files(self, split: str) -> list[str]:
        return [os.path.join(self.data_dir, shard.name) for shard in self.split(split).shards]

    def _parse(self):
        return images.parse_fn(self.features, self.num_classes)


def load(data_dir: str, name: str) -> Dataset:
    """Reads `dataset.json` in `data_dir` and checks that every shard is there, whole.

    Raises:
      DataError: the folder or its `dataset.json` is missing, belongs to another data set, or names
        a shard that is missing or of another size.
    """
    if not tf.io.gfile.exists(data_dir):
        raise DataError(f"--data_dir={data_dir} does not exist; make it with {_recipe(name)}")
    if not exists(data_dir):
        raise DataError(
            f"--data_dir={data_dir} holds no {FILE_NAME}: not prepared, or stopped half-way; "
            f"run {_recipe(name)}"
        )
    dataset = read(data_dir)
    if dataset.name != name:
        raise DataError(
            f"--data_dir={data_dir} holds the data set '{dataset.name}', not --dataset={name}"
        )
    broken = [line for split in dataset.splits.values() for line in _broken(data_dir, split)]
    if broken:
        raise DataError(
            f"{len(broken)} shard(s) in {data_dir} are not as {FILE_NAME} says: "
            f"{'; '.join(broken[:3])}{'; ...' if broken[3:] else ''}. "
            f"Make them anew with {_recipe(name)} --overwrite"
        )
    return dataset


def exists(data_dir: str) -> bool:
    """Whether `data_dir` holds a complete data set."""
    return tf.io.gfile.exists(os.path.join(data_dir, FILE_NAME))


def to_json(dataset: Dataset) -> str:
    """Returns the text of `dataset.json`."""
    fields = {"format": FORMAT, **dataclasses.asdict(dataset)}
    del fields["data_dir"]
    for name, split in dataset.splits.items():
        fields["splits"][name] = {"num_examples": split.num_examples, **fields["splits"][name]}
    return json.dumps(fields, indent=1) + "\n"


def read(data_dir: str) -> Dataset:
    """Reads `dataset.json` in `data_dir`, without a look at the shards.

    Raises:
      DataError: it is not one that this version of prepare_data.py wrote.
    """
    path = os.path.join(data_dir, FILE_NAME)
    with tf.io.gfile.GFile(path) as file:
        text = file.read()
    try:
        fields = json.loads(text)
        if fields["format"] != FORMAT:
            raise DataError(f"{path} has format {fields['format']}, this version reads {FORMAT}")
        return Dataset(
            name=fields["name"],
            data_dir=data_dir,
            features={key: _feature(value) for key, value in fields["features"].items()},
            class_names=tuple(fields["class_names"]),
            splits={key: _split(value) for key, value in fields["splits"].items()},
        )
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise DataError(f"{path} is not a {FILE_NAME} of prepare_data.py: {error!r}") from error


def _feature(fields: dict[str, Any]) -> Feature:
    return Feature(fields["dtype"], tuple(fields["shape"]))


def _split(fields: dict[str, Any]) -> Split:
    return Split(
        label_histogram=tuple(fields["label_histogram"]),
        shards=tuple(Shard(**shard) for shard in fields["shards"]),
    )


def _broken(data_dir: str, split: Split) -> list[str]:
    lines = []
    for shard in split.shards:
        path = os.path.join(data_dir, shard.name)
        if not tf.io.gfile.exists(path):
            lines.append(f"{shard.name} is missing")
        elif (size := tf.io.gfile.stat(path).length) != shard.num_bytes:
            lines.append(f"{shard.name} has {size} bytes instead of {shard.num_bytes}")
    return lines


def _recipe(name: str) -> str:
    return f"prepare_data.py --dataset={name} --data_dir=..."
