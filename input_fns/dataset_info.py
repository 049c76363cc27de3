"""Metadata of a prepared data set, from the `dataset.json` in its folder."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import itertools
import os
from collections.abc import Collection, Mapping
from typing import Any

from common import files, folders
from input_fns import DataError
from input_fns.core import dataset_json
from input_fns.core.dataset_json import FORMAT, to_json
from input_fns.core.dataset_parts import (
    Annotations,
    AnnotationsSplit,
    Audio,
    Clicks,
    Feature,
    LeftOut,
    Ratings,
    ShardInfo,
    SplitInfo,
    Text,
    TextSplit,
    WordPiece,
    WordPieceSplit,
    flatten,
    nest,
)

__all__ = [
    "FILE_NAME",
    "FORMAT",
    "Annotations",
    "AnnotationsSplit",
    "Audio",
    "Clicks",
    "DatasetInfo",
    "Feature",
    "LeftOut",
    "Ratings",
    "ShardInfo",
    "SplitInfo",
    "Text",
    "TextSplit",
    "WordPiece",
    "WordPieceSplit",
    "broken_shards",
    "exists",
    "find_file_problem",
    "flatten",
    "load",
    "nest",
    "read",
    "splits_without_files",
    "to_json",
]
FILE_NAME = "dataset.json"
_PARALLEL_REQUESTS = 32  # to gs://
# Features of WordPiece text that hold places in a row, and those that are 0 or 1.
_PLACES = ("masked_lm_positions", "start_positions", "end_positions")
_FLAGS = ("input_mask", "segment_ids", "masked_lm_weights", "next_sentence_labels")


@dataclasses.dataclass(frozen=True)
class DatasetInfo:
    """A data set on local disk or gs://, as `prepare_data.py` wrote it.

    Attributes:
      name: value of `--dataset`.
      data_dir: folder of the data set.
      features: `{name: Feature}` of each example; "a/b" is the name of a nested feature.
      class_names: class names in the order of the labels; () without classes.
      splits: `{name: SplitInfo}`.
      text: metadata of parallel text, else None.
      prepared_with: options of prepare_data.py; {} if unknown.
      labels: names of the features that are labels; the class is not one of them.
      properties: free-form properties that models may read, JSON scalars or lists of them.
      wordpiece: metadata of WordPiece text, else None.
      annotations: metadata of boxes or masks of images, else None.
      ratings: metadata of interactions of users and items, else None.
      clicks: metadata of click logs, else None.
      audio: metadata of recordings, else None.
      left_out: files and rows of the source that are not examples.
    """

    name: str
    data_dir: str
    features: dict[str, Feature]
    class_names: tuple[str, ...]
    splits: dict[str, SplitInfo]
    text: Text | None = None
    prepared_with: dict[str, Any] = dataclasses.field(default_factory=dict)
    labels: tuple[str, ...] = ()
    properties: dict[str, Any] = dataclasses.field(default_factory=dict)
    wordpiece: WordPiece | None = None
    annotations: Annotations | None = None
    ratings: Ratings | None = None
    clicks: Clicks | None = None
    audio: Audio | None = None
    left_out: LeftOut = dataclasses.field(default_factory=LeftOut)

    @property
    def limits(self) -> dict[str, tuple[int, int | tuple[int, ...]]]:
        """`{feature: (lowest, limit)}` of features with values in [lowest, limit): ids, places.

        A limit may be one for each column.
        """
        if self.text:
            return dict.fromkeys(self.features, (0, self.text.vocab_size))
        if self.ratings:
            return {"user": (0, self.ratings.num_users), "item": (0, self.ratings.num_items)}
        if self.clicks:
            return {"categories": (0, self.clicks.table_rows)}
        if self.audio:
            tokens = {"tokens": (0, self.audio.vocab_size)} if self.audio.vocabulary else {}
            return {"num_samples": (1, self.audio.max_samples + 1), **tokens}
        if not self.wordpiece:
            return {}
        max_length = self.wordpiece.max_length
        limits = {
            **dict.fromkeys(("input_ids", "masked_lm_ids"), self.wordpiece.vocab_size),
            **dict.fromkeys(_PLACES, max_length),
            **dict.fromkeys(_FLAGS, 2),
        }
        found = {name: (0, limits[name]) for name in self.features if name in limits}
        if self.wordpiece.task == "token_classification":
            found["tag_ids"] = -1, self.properties["num_tags"]  # -1: no word starts there
        return found

    @property
    def num_classes(self) -> int:
        """Number of classes; labels are int32 in [0, num_classes)."""
        return len(self.class_names)

    @property
    def has_only_images(self) -> bool:
        """Whether an example is an image and its class, as `image_pipeline` feeds."""
        kinds = (self.text, self.wordpiece, self.annotations, self.ratings, self.clicks, self.audio)
        is_plain = not any(kinds) and not self.labels and self.num_classes > 0
        return is_plain and set(self.features) == {"image"}

    @property
    def all_class_names(self) -> tuple[str, ...]:
        """Class names of the images, of their boxes or of their pixels, in the order of classes."""
        return self.annotations.class_names if self.annotations else self.class_names

    def split(self, name: str) -> SplitInfo:
        """Returns the split called `name`.

        Raises:
          DataError: the split is missing or empty.
        """
        if name not in self.splits:
            raise DataError(
                f"{self.name} in {self.data_dir} has no split '{name}'; "
                f"it has: {', '.join(self.splits)}"
            )
        if not self.splits[name].num_examples:
            raise DataError(f"split '{name}' of {self.name} in {self.data_dir} has no examples")
        return self.splits[name]

    def stored_in(self, split: str) -> DatasetInfo:
        """Returns the data set as a split stores it: without labels if the split has none."""
        if self.splits[split].has_labels:
            return self
        features = {name: f for name, f in self.features.items() if name not in self.labels}
        return dataclasses.replace(self, features=features, labels=(), class_names=())

    def files(self, split: str) -> list[str]:
        """Returns the paths of the shards of a split, in order."""
        return [self.path(shard) for shard in self.split(split).shards]

    def path(self, shard: ShardInfo) -> str:
        """Returns the path of a shard."""
        return shard.path or os.path.join(self.data_dir, shard.name)


def splits_without_files(sizes: Mapping[str, int]) -> dict[str, SplitInfo]:
    """Returns splits that are not stored in files, from `{name: number of examples}`."""
    return {name: SplitInfo((), (ShardInfo("", 0, size),)) for name, size in sizes.items()}


def load(
    data_dir: str, name: str, splits: Collection[str] | None = None, repaired_split: str = ""
) -> DatasetInfo:
    """Reads `dataset.json` in `data_dir` and checks the names and sizes of the shards.

    Args:
      data_dir: folder of the data set.
      name: expected name of the data set.
      splits: splits whose shards are checked; None for all.
      repaired_split: split whose shards may have any size; see `repair`.

    Raises:
      DataError: the folder or its `dataset.json` is missing, belongs to another data set, or names
        a shard that is missing or has another size or checksum.
    """
    if not folders.exists(data_dir):
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
    if broken and read(data_dir) != dataset:  # prepare_data.py --overwrite has just replaced it
        return load(data_dir, name, splits, repaired_split)
    if broken:
        raise DataError(
            f"{len(broken)} shard(s) in {data_dir} are not as {FILE_NAME} says: "
            f"{'; '.join(broken[:3])}{'; ...' if broken[3:] else ''}. "
            f"Prepare the data set again with {_recipe(name)} --overwrite"
        )
    return dataset


def broken_shards(
    dataset: DatasetInfo, splits: Collection[str] | None = None, any_size_in: str = ""
) -> list[str]:
    """Returns one line for each shard that is missing or has the wrong size.

    Args:
      dataset: the data set.
      splits: splits whose shards are checked; None for all.
      any_size_in: split whose shards may have any size.
    """
    shards = [
        (shard, name == any_size_in)
        for name, split in dataset.splits.items()
        if splits is None or name in splits
        for shard in split.shards
    ]
    find = functools.partial(find_file_problem, dataset)
    if not folders.is_remote(dataset.data_dir):
        return [line for line in itertools.starmap(find, shards) if line]
    with concurrent.futures.ThreadPoolExecutor(_PARALLEL_REQUESTS) as pool:
        return [line for line in pool.map(lambda shard: find(*shard), shards) if line]


def find_file_problem(dataset: DatasetInfo, shard: ShardInfo, any_size: bool = False) -> str | None:
    """Returns what is wrong with a shard's name or size, None if nothing; does not read it."""
    path = dataset.path(shard)
    if not shard.is_named_by_content:
        return f"{shard.name} is not the name of records with crc32 {shard.crc32:08x}"
    try:
        size = folders.num_bytes(path)  # one request, if remote
    except (folders.missing_error(path), NotADirectoryError):
        return f"{shard.name} is missing"
    if not folders.is_remote(path) and not folders.is_file(path):
        return f"{shard.name} is not a file"
    if size != shard.num_bytes and not any_size:
        return f"{shard.name} has {size} bytes instead of {shard.num_bytes}"
    return None


def exists(data_dir: str) -> bool:
    """Whether `data_dir` holds a complete data set."""
    return folders.exists(os.path.join(data_dir, FILE_NAME))


def read(data_dir: str) -> DatasetInfo:
    """Reads `dataset.json` in `data_dir`; does not check the shards.

    Raises:
      DataError: the file is missing or invalid.
    """
    path = os.path.join(data_dir, FILE_NAME)
    try:
        return DatasetInfo(data_dir=data_dir, **dataset_json.parse(files.read_text(path)))
    except folders.missing_error(path) as error:
        raise DataError(f"{path} is not there: prepare_data.py writes one") from error
    except ValueError as error:
        raise DataError(f"{path} is not a {FILE_NAME} of prepare_data.py: {error}") from error


def _recipe(name: str) -> str:
    return f"prepare_data.py --dataset={name} --data_dir=..."
