"""A prepared data set: what `dataset.json` beside the shards says."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from input_fns import DataError

FORMAT = 2
FILE_NAME = "dataset.json"
# Of token ids: what fills a row up, and the end of a sentence; as `models.seq2seq` has them.
PAD, EOS = 0, 1


@dataclasses.dataclass(frozen=True)
class Feature:
    """A stored feature, one string an example.

    Attributes:
      encoding: "raw": the numbers, little-endian; "jpeg" or "png": a file of that kind; "image":
        some of both.
      dtype: of the decoded tensor.
      shape: of the decoded tensor, one example; None where it differs between examples.
    """

    encoding: str
    dtype: str
    shape: tuple[int | None, ...]

    @property
    def is_image_file(self) -> bool:
        """Whether it must be decoded by more than a look at its bytes."""
        return self.encoding in ("jpeg", "png", "image")

    @property
    def is_static(self) -> bool:
        """Whether all examples are of one shape."""
        return None not in self.shape

    @property
    def num_bytes(self) -> int:
        """Bytes of one decoded example of a static shape."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclasses.dataclass(frozen=True)
class Shard:
    """One TFRecord file of a split.

    Attributes:
      name: in the folder of the data set, or a path.
      num_bytes: of the file.
      num_examples: in it.
      crc32: of its records, one after the other; 0 where it is not known.
    """

    name: str
    num_bytes: int
    num_examples: int
    crc32: int = 0


@dataclasses.dataclass(frozen=True)
class Split:
    """A split as it was written.

    Attributes:
      label_histogram: how often each class occurs; empty where examples have no class, and of a
        split that was repaired.
      shards: in order.
      broken: `(name, reason)` of each example of the source that could not be stored.
    """

    label_histogram: tuple[int, ...]
    shards: tuple[Shard, ...]
    broken: tuple[tuple[str, str], ...] = ()

    @property
    def num_examples(self) -> int:
        """Examples of all shards."""
        return sum(shard.num_examples for shard in self.shards)

    @property
    def num_bytes(self) -> int:
        """Bytes of all shards."""
        return sum(shard.num_bytes for shard in self.shards)

    @property
    def record_bytes(self) -> int:
        """Bytes of one record, about."""
        return self.num_bytes // self.num_examples


@dataclasses.dataclass(frozen=True)
class TextSplit:
    """Sentences and tokens of a split; the end of a sentence is a token.

    Attributes:
      pairs: of sentences.
      source_tokens: of all sources.
      target_tokens: of all targets.
      left_out: how many pairs were, by reason.
    """

    pairs: int
    source_tokens: int
    target_tokens: int
    left_out: dict[str, int] = dataclasses.field(default_factory=dict)

    def describe(self, num_rows: int, max_length: int) -> str:
        """Returns a line about the split, which fills so many rows of that many tokens."""
        full = max(self.source_tokens, self.target_tokens) / (num_rows * max_length)
        line = (
            f"{self.pairs} pairs, {self.source_tokens} + {self.target_tokens} tokens, in "
            f"{num_rows} rows of {max_length}, {full:.0%} full"
        )
        left_out = ", ".join(f"{count} {reason}" for reason, count in self.left_out.items())
        return f"{line}; left out: {left_out}" if left_out else line


@dataclasses.dataclass(frozen=True)
class Text:
    """What the token ids of a data set of text mean.

    Attributes:
      languages: of source and target.
      vocabulary: name of the file of SentencePiece beside the shards.
      vocab_size: number of ids.
      max_length: of a row, in tokens.
      splits: by name.
    """

    languages: tuple[str, ...]
    vocabulary: str
    vocab_size: int
    max_length: int
    splits: dict[str, TextSplit]


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A data set on local disk or gs://, as `prepare_data.py` wrote it.

    Attributes:
      name: what `--dataset` calls it.
      data_dir: its folder.
      features: of each example.
      class_names: in the order of the labels; () where examples have no class.
      splits: by name.
      text: of a data set of text, else None.
      prepared_with: what prepare_data.py was asked for, {} where that is not known.
    """

    name: str
    data_dir: str
    features: dict[str, Feature]
    class_names: tuple[str, ...]
    splits: dict[str, Split]
    text: Text | None = None
    prepared_with: dict[str, Any] = dataclasses.field(default_factory=dict)

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

    def files(self, split: str) -> list[str]:
        """Returns the paths of the shards of a split, in order."""
        return [self.path(shard) for shard in self.split(split).shards]

    def path(self, shard: Shard) -> str:
        """Returns the path of a shard."""
        return shard.name if "://" in shard.name else os.path.join(self.data_dir, shard.name)


def unstored(sizes: Mapping[str, int]) -> dict[str, Split]:
    """Returns the splits of a data set that lies in no files, `{name: number of examples}`."""
    return {name: Split((), (Shard("", 0, size),)) for name, size in sizes.items()}


def load(
    data_dir: str, name: str, splits: Collection[str] | None = None, repaired_split: str = ""
) -> Dataset:
    """Reads `dataset.json` in `data_dir` and checks that the shards are there, whole.

    Args:
      data_dir: the folder.
      name: of the data set that it should hold.
      splits: whose shards are checked; None: all.
      repaired_split: its shards may have another size: see `repair`.

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
    broken = broken_shards(dataset, splits, repaired_split)
    if broken:
        raise DataError(
            f"{len(broken)} shard(s) in {data_dir} are not as {FILE_NAME} says: "
            f"{'; '.join(broken[:3])}{'; ...' if broken[3:] else ''}. "
            f"Make them anew with {_recipe(name)} --overwrite"
        )
    return dataset


def broken_shards(
    dataset: Dataset, splits: Collection[str] | None = None, any_size_in: str = ""
) -> list[str]:
    """Returns a line for each shard that is missing or of another size than it was written with.

    Args:
      dataset: the data set.
      splits: whose shards are looked at; None: all.
      any_size_in: a split whose shards may be of another size.
    """
    lines = (
        problem_of_file(dataset, shard, any_size=name == any_size_in)
        for name, split in dataset.splits.items()
        if splits is None or name in splits
        for shard in split.shards
    )
    return [line for line in lines if line]


def problem_of_file(dataset: Dataset, shard: Shard, any_size: bool = False) -> str | None:
    """Returns what is wrong with the file of a shard, seen from outside."""
    path = dataset.path(shard)
    if not tf.io.gfile.exists(path):
        return f"{shard.name} is missing"
    size = tf.io.gfile.stat(path).length
    if size != shard.num_bytes and not any_size:
        return f"{shard.name} has {size} bytes instead of {shard.num_bytes}"
    return None


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
      DataError: it is missing, or not one that this version of prepare_data.py wrote.
    """
    path = os.path.join(data_dir, FILE_NAME)
    try:
        with tf.io.gfile.GFile(path) as file:
            text = file.read()
    except tf.errors.NotFoundError as error:
        raise DataError(f"{path} is not there: prepare_data.py writes one") from error
    try:
        fields = json.loads(text)
        if fields["format"] != FORMAT:
            raise DataError(
                f"{path} has format {fields['format']}, this version reads {FORMAT}: make it anew "
                "with prepare_data.py"
            )
        return Dataset(
            name=fields["name"],
            data_dir=data_dir,
            features={key: _feature(value) for key, value in fields["features"].items()},
            class_names=tuple(fields["class_names"]),
            splits={key: _split(value) for key, value in fields["splits"].items()},
            text=_text(fields.get("text")),
            prepared_with=fields.get("prepared_with", {}),
        )
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise DataError(f"{path} is not a {FILE_NAME} of prepare_data.py: {error!r}") from error


def _feature(fields: dict[str, Any]) -> Feature:
    return Feature(fields["encoding"], fields["dtype"], tuple(fields["shape"]))


def _text(fields: dict[str, Any] | None) -> Text | None:
    if fields is None:
        return None
    splits = {name: TextSplit(**split) for name, split in fields.pop("splits").items()}
    return Text(languages=tuple(fields.pop("languages")), splits=splits, **fields)


def _split(fields: dict[str, Any]) -> Split:
    return Split(
        label_histogram=tuple(fields["label_histogram"]),
        shards=tuple(Shard(**shard) for shard in fields["shards"]),
        broken=tuple((name, reason) for name, reason in fields["broken"]),
    )


def _recipe(name: str) -> str:
    return f"prepare_data.py --dataset={name} --data_dir=..."
