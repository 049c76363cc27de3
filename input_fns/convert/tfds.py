"""Data sets of tensorflow-datasets, an optional dependency.

https://www.tensorflow.org/datasets/catalog/overview lists them. The features of a data set say
which kind of data it is: `READERS` of the modules below. `Streamed` reads images and recordings in
order, in one process; texts and annotations are in memory.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from input_fns import DataError
from input_fns.convert import files
from input_fns.convert.options import Options
from input_fns.convert.source import Broken, RawDataset, RawSplit, Row
from input_fns.convert.split_names import is_split, split_in, split_names

PREFIX = "tfds:"
# The first reader that fits reads the data set.
_MODULES = (
    *("image.sources.tfds_images", "audio.sources.tfds_audio", "tables.sources.tfds_ratings"),
    "text.sources.tfds_texts",
)
# Options of all kinds of data, and those that only decide which reader fits.
_COMMON = "dataset name source task validation_fraction test_fraction seed text_columns languages"


@dataclasses.dataclass(frozen=True)
class Reader:
    """A kind of data that `tfds` reads.

    Attributes:
      task: value of --task that chooses it.
      what: the kind, for messages.
      needs: the features that it needs, for messages.
      takes: names of `Options` that it uses, separated by spaces.
      find: returns the names of the features in their roles, `{role: name}`, or None if the
        features do not fit; `find(features, options)`.
      read: returns the `RawDataset`; `read(tables, roles, options)`, without a source.
    """

    task: str
    what: str
    needs: str
    takes: str
    find: Callable[[Mapping[str, Any], Options], dict[str, str] | None]
    read: Callable[[Tables, dict[str, str], Options], RawDataset]


@dataclasses.dataclass(frozen=True)
class Tables:
    """The examples of a builder.

    Attributes:
      builder: builder of tensorflow-datasets, prepared.
      splits: `{split: its name in the builder}`.
    """

    builder: Any
    splits: dict[str, str]

    @property
    def features(self) -> Mapping[str, Any]:
        """The features of the builder."""
        return self.builder.info.features

    def rows(self, split: str, names: Sequence[str]) -> Iterator[tuple]:
        """Yields the values of some features of each example; images as files.

        Args:
          split: name of a split here.
          names: names of features; "objects/bbox" is one of the objects.
        """
        import tensorflow_datasets as tfds

        is_image = {n: isinstance(f, tfds.features.Image) for n, f in self.features.items()}
        skip = {name: tfds.decode.SkipDecoding() for name in names if is_image.get(name)}
        config = tfds.ReadConfig(interleave_cycle_length=1)  # deterministic order

        def chosen(example):
            found = []
            for name in names:
                value = example.get(name)
                if value is None:
                    outer, _, inner = name.partition("/")
                    value = example[outer][inner]
                found.append(value)
            return tuple(found)

        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            dataset = self.builder.as_dataset(
                split=self.splits[split], decoders=skip, read_config=config, shuffle_files=False
            )
            values = tf.compat.v1.data.make_one_shot_iterator(
                dataset.map(chosen).prefetch(64)
            ).get_next()
            while True:
                try:
                    yield session.run(values)
                except tf.errors.OutOfRangeError:
                    return

    def name_of(self, split: str, i: int) -> str:
        """Returns the name of example `i`, which is its path in a split."""
        return f"{self.splits[split]}[{i}]"

    def names(self, split: str, count: int) -> np.ndarray:
        """Returns the names of the first examples, objects `[count]`."""
        return np.array([self.name_of(split, i) for i in range(count)], object)

    def record_bytes(self, split: str) -> int:
        """Returns the mean size of the records of a split."""
        whole = self.builder.info.splits[self.splits[split]]
        return whole.num_bytes // whole.num_examples

    def columns(self, split: str, names: Sequence[str]) -> list[tuple]:
        """Returns the values of each of some features, in the order of the examples."""
        return list(zip(*self.rows(split, names))) or [() for _ in names]


@dataclasses.dataclass(frozen=True)
class Streamed(RawSplit):
    """A split whose images or recordings are read from a builder, in its order.

    Attributes:
      tables: the examples.
      split: name of the split in `tables`.
      features: names of the features that are files.
      examples: the split without the contents of the files; its `paths` are those of
        `Tables.name_of`.
      with_files: returns a part of one example with these values of `features`.
      num_file_bytes: mean size of an example if it is that of a record of the builder, else 0.
    """

    tables: Tables
    split: str
    features: tuple[str, ...]
    examples: RawSplit
    with_files: Callable[[RawSplit, tuple], RawSplit | Broken]
    num_file_bytes: int = 0

    @property
    def labels(self) -> np.ndarray | None:
        """See `RawSplit`."""
        return self.examples.labels

    @property
    def groups(self) -> np.ndarray | None:
        """See `RawSplit`."""
        return self.examples.groups

    @property
    def has_labels(self) -> bool:
        """See `RawSplit`."""
        return self.examples.has_labels

    @property
    def num_bytes(self) -> int:
        """Approximate size of the rows."""
        return self.num_file_bytes * len(self) or self.examples.num_bytes

    def __len__(self) -> int:
        return len(self.examples)

    def take(self, indices: Sequence[int]) -> Streamed:
        """Returns the split of these examples; they come in the order of the builder."""
        return dataclasses.replace(self, examples=self.examples.take(np.sort(indices)))

    def __iter__(self) -> Iterator[Row | Broken]:
        names, place = list(self.examples.paths), 0
        for i, values in enumerate(self.tables.rows(self.split, self.features)):
            if place < len(names) and names[place] == self.tables.name_of(self.split, i):
                part = self.with_files(self.examples.part(place, place + 1), values)
                yield part if isinstance(part, Broken) else part.read(0)
                place += 1


def with_content(part: Any, values: tuple) -> Any:
    """Returns a part of one file, `paths`, with its content; see `Streamed.with_files`."""
    paths = np.array([None], object)
    paths[0] = files.Content(part.paths[0], values[0])
    return dataclasses.replace(part, paths=paths)


def of_class(features: Mapping[str, Any], kind: str, usual: Sequence[str] = ()) -> str:
    """Returns the name of the feature of a class of `tfds.features`, or "".

    Args:
      features: the features.
      kind: name of the class.
      usual: names of which the first one counts; without one of them, the only feature counts.
    """
    import tensorflow_datasets as tfds

    found = [n for n, f in features.items() if isinstance(f, getattr(tfds.features, kind))]
    named = [name for name in usual if name in found]
    return (named or (found if len(found) == 1 else [""]))[0]


def read(options: Options) -> RawDataset:
    """Returns all splits, also those without labels; downloads the data set if needed.

    Args:
      options: `dataset` is "tfds:NAME", such as "tfds:cifar10"; `source` is the data_dir of
        tensorflow-datasets, its default if empty; `task` chooses if the features fit several.

    Raises:
      DataError: the package is not installed, the features do not fit, or an option does not fit
        to the kind of data.
    """
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise DataError(
            f"--dataset={options.dataset} needs the extra tfds: pip install '.[tfds]' ({error})"
        ) from error
    name = options.dataset[len(PREFIX) :]
    try:
        builder = tfds.builder(name, data_dir=options.source or None)
    except tfds.core.DatasetNotFoundError as error:  # its message has hundreds of lines
        raise DataError(
            f"{options.dataset}: tensorflow-datasets {tfds.__version__} has no data set {name}"
        ) from error
    reader, roles = _find_reader(builder.info.features, options)
    _require_used(reader, options)
    used = ", ".join(f"{name} ({role})" for role, name in roles.items())
    files.note(f"{options.dataset} is read as {reader.what}: {used}")
    builder.download_and_prepare()
    tables = Tables(builder, _splits(list(builder.info.splits), options.dataset))
    return reader.read(tables, roles, dataclasses.replace(options, source=""))


def _find_reader(features, options):
    """Returns the reader that fits, with the names of the features in their roles."""
    readers = [
        reader
        for module in _MODULES
        for reader in importlib.import_module(f"input_fns.{module}").READERS
    ]
    # The default of --task fits to data sets of other kinds, too.
    readers.sort(key=lambda reader: reader.task != options.task)
    is_default = options.task == Options("").task
    for reader in readers:
        roles = reader.find(features, options) if hasattr(features, "items") else None
        if roles and (is_default or reader.task == options.task):
            return reader, roles
    there = ", ".join(
        f"{name} ({type(feature).__name__})" for name, feature in getattr(features, "items", dict)()
    )
    needed = "; ".join(
        f"{reader.what}: {reader.needs}"
        for reader in readers
        if is_default or reader.task == options.task
    )
    raise DataError(
        f"{options.dataset} has the features {there or type(features).__name__}, which are of no "
        f"kind of data that --task={options.task} reads. They need {needed}. Write a function that "
        "reads them: --dataset=package.module:FUNCTION"
    )


def _require_used(reader, options):
    """Checks that options which the reader does not use have their defaults."""
    used = {*_COMMON.split(), *reader.takes.split()}
    for field in dataclasses.fields(Options):
        if field.name not in used and getattr(options, field.name) != field.default:
            raise DataError(
                f"--{field.name} has no effect on {options.dataset}, which is read as "
                f"{reader.what}. Remove it"
            )


def _splits(names, where):
    """Returns `{split: name in the builder}`; parts of "train", of LibriSpeech, are joined."""
    parts = [name for name in names if split_in(name) == "train" and not is_split(name)]
    if len(parts) < 2 or any(is_split(name) and split_in(name) == "train" for name in names):
        return split_names(names, where)
    others = [name for name in names if name not in parts]
    return {"train": "+".join(parts), **split_names(others, where)}
