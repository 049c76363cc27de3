"""Metadata of a prepared data set, from the `dataset.json` in its folder."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import itertools
import json
import os
import re
from collections.abc import Collection, Mapping
from typing import Any

from common import files, folders
from common.names import counted
from input_fns import DataError, kinds
from input_fns.core import dataset_json
from input_fns.core.dataset_json import FORMAT
from input_fns.core.dataset_parts import Feature, LeftOut, ShardInfo, SplitInfo, flatten, nest
from input_fns.core.json_fields import to_value
from input_fns.core.target import Target
from input_fns.kinds import Kind

__all__ = [
    "FILE_NAME",
    "FORMAT",
    "DatasetInfo",
    "Feature",
    "LeftOut",
    "ShardInfo",
    "SplitInfo",
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
_OFFSETS = re.compile(r'"offsets": \[[\d,\s]+\]')


@dataclasses.dataclass(frozen=True)
class DatasetInfo:
    """A data set on local disk or gs://, as `prepare_data.py` wrote it.

    Attributes:
      name: value of `--dataset`.
      data_dir: folder of the data set.
      features: `{name: Feature}` of each example; "a/b" is the name of a nested feature.
      class_names: class names in the order of the labels; () without classes.
      splits: `{name: SplitInfo}`.
      prepared_with: options of prepare_data.py; {} if unknown.
      labels: names of the features that are labels; the class is not one of them.
      properties: free-form properties that models may read, JSON scalars or lists of them.
      target: what is predicted for each example, if it is not one class; None otherwise.
      kind: kind of the data, with the metadata that only this kind has, such as
        `text.parallel_kind.Text`. If None, it becomes that of images with classes or of records.
      left_out: files and rows of the source that are not examples.
    """

    name: str
    data_dir: str
    features: dict[str, Feature]
    class_names: tuple[str, ...]
    splits: dict[str, SplitInfo]
    prepared_with: dict[str, Any] = dataclasses.field(default_factory=dict)
    labels: tuple[str, ...] = ()
    properties: dict[str, Any] = dataclasses.field(default_factory=dict)
    target: Target | None = None
    kind: Kind | None = None
    left_out: LeftOut = dataclasses.field(default_factory=LeftOut)

    def __post_init__(self):
        """Finds the kind if none is given."""
        object.__setattr__(self, "kind", self.kind or kinds.without_fields(self))

    @property
    def limits(self) -> dict[str, tuple[int, int | tuple[int, ...]]]:
        """The values of features such as ids and places, from `lowest` up to `limit - 1`.

        The values of the dict are `(lowest, limit)`; a limit may be one for each column.
        """
        return self.kind.limits(self)

    @property
    def num_classes(self) -> int:
        """Number of classes; labels are int32 in [0, num_classes)."""
        return len(self.class_names)

    @property
    def all_class_names(self) -> tuple[str, ...]:
        """Class names of examples, boxes or pixels, in the order of the classes."""
        return self.kind.all_class_names(self)

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
        return dataclasses.replace(self, features=features, labels=(), class_names=(), target=None)

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
            f"{counted(len(broken), 'shard')} in {data_dir} not as {FILE_NAME} says: "
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


def to_json(dataset: DatasetInfo) -> str:
    """Returns the text of `dataset.json`."""
    fields = {
        "format": FORMAT,
        "name": dataset.name,
        "features": {name: to_value(feature) for name, feature in dataset.features.items()},
        "class_names": dataset.class_names,
        "splits": {
            name: {"num_examples": split.num_examples, **to_value(split)}
            for name, split in dataset.splits.items()
        },
        "text": None,  # earlier versions read this key of all kinds
        "prepared_with": dataset.prepared_with,
    }
    for name in ("labels", "properties"):
        if getattr(dataset, name):
            fields[name] = getattr(dataset, name)
    if dataset.target:
        fields["target"] = to_value(dataset.target)
    if dataset.kind.name:
        fields[dataset.kind.name] = to_value(dataset.kind)
    if dataset.left_out:
        fields["left_out"] = to_value(dataset.left_out)
    # An index, of up to 64 numbers, on one line.
    text = json.dumps(fields, indent=1)
    return _OFFSETS.sub(lambda found: "".join(found[0].split()).replace(":", ": "), text) + "\n"


def read(data_dir: str) -> DatasetInfo:
    """Reads `dataset.json` in `data_dir`; does not check the shards.

    Raises:
      DataError: the file is missing or invalid.
    """
    path = os.path.join(data_dir, FILE_NAME)
    try:
        data = DatasetInfo(data_dir=data_dir, **dataset_json.parse(files.read_text(path)))
        data.kind.check(data)
        num_classes = len(data.all_class_names)
        if num_classes and data.properties.get("num_classes", num_classes) != num_classes:
            raise DataError(
                f"properties.num_classes is {data.properties['num_classes']}, and class_names has "
                f"{num_classes}"
            )
        return data
    except folders.missing_error(path) as error:
        raise DataError(f"{path} is not there: prepare_data.py writes one") from error
    except ValueError as error:
        raise DataError(f"{path} is not a {FILE_NAME} of prepare_data.py: {error}") from error


def _recipe(name: str) -> str:
    return f"prepare_data.py --dataset={name} --data_dir=..."
