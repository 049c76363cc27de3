"""Data sets of tensorflow-datasets, an optional dependency.

https://www.tensorflow.org/datasets/catalog/overview lists them. The features of a data set say
which kind of data it is: `READERS` of the modules below. Worker processes read ranges of the
examples, without TensorFlow: `Streamed` their images and recordings, `Tables.in_parts` the others,
which are then in memory.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import operator
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from input_fns import DataError
from input_fns.convert import files
from input_fns.convert.options import Options
from input_fns.convert.runners import Runner
from input_fns.convert.source import Broken, RawDataset, RawSplit, Row
from input_fns.convert.split_names import is_split, split_in, split_names
from input_fns.core import framing

PREFIX = "tfds:"
# The first reader that fits reads the data set.
_MODULES = (
    *("image.sources.tfds_images", "audio.sources.tfds_audio", "tables.sources.tfds_ratings"),
    "text.sources.tfds_texts",
)
# Examples that one process reads at once; a second one starts in seconds.
_PART = 10_000
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
    """The examples of a data set of tensorflow-datasets, which is prepared.

    Attributes:
      name: its name with its version, as `tfds.builder` takes it.
      data_dir: folder of tensorflow-datasets; None for its default.
      splits: `{split: its name in tensorflow-datasets, or several that "+" joins}`.
      runner: runs `in_parts`; worker processes have none.
    """

    name: str
    data_dir: str | None = dataclasses.field(compare=False)
    splits: dict[str, str]
    runner: Runner | None = dataclasses.field(default=None, compare=False)

    def __reduce__(self):
        return Tables, (self.name, self.data_dir, self.splits)

    @property
    def info(self) -> Any:
        """Its `tfds.core.DatasetInfo`."""
        return _builder(self.name, self.data_dir).info

    @property
    def features(self) -> Mapping[str, Any]:
        """Its features."""
        return self.info.features

    def size(self, split: str) -> int:
        """Returns the number of examples of a split here."""
        return sum(self.info.splits[part].num_examples for part in self.splits[split].split("+"))

    def _instruction(self, split, begin, end):
        """Returns the `tfds.core.ReadInstruction` of a range of examples."""
        import tensorflow_datasets as tfds

        found, place = [], 0
        for part in self.splits[split].split("+"):
            size = self.info.splits[part].num_examples
            first, last = max(begin - place, 0), min(end - place, size)
            if first < last:
                found.append(tfds.core.ReadInstruction(part, from_=first, to=last, unit="abs"))
            place += size
        return functools.reduce(operator.add, found)

    def rows(self, split: str, names: Sequence[str], begin: int, end: int) -> Iterator[tuple]:
        """Yields the values of some features of a range of examples; images as files.

        Args:
          split: name of a split here.
          names: names of features; "objects/bbox" is one of the objects.
          begin: number of the first example.
          end: number of the example after the last one.
        """
        if begin == end:
            return
        import tensorflow_datasets as tfds

        is_image = {n: isinstance(f, tfds.features.Image) for n, f in self.features.items()}
        skip = {name: tfds.decode.SkipDecoding() for name in is_image if is_image[name]}
        instruction = self._instruction(split, begin, end)
        for part in self.info.splits[instruction].file_instructions:
            files.record(part.filename)
            read = _records if self.info.file_format.value == "tfrecord" else _other_records
            for record in read(part.filename, part.skip, part.skip + part.take, self.info):
                example = self.features.deserialize_example_np(record, decoders=skip)
                yield tuple(_value(example, name) for name in names)

    def name_of(self, split: str, i: int) -> str:
        """Returns the name of example `i`, which is its path in a split."""
        return f"{self.splits[split]}[{i}]"

    def names(self, split: str, count: int) -> np.ndarray:
        """Returns the names of the first examples, objects `[count]`."""
        return np.array([self.name_of(split, i) for i in range(count)], object)

    def record_bytes(self, split: str) -> int:
        """Returns the mean size of the records of a split."""
        whole = self.info.splits[self.splits[split]]
        return whole.num_bytes // whole.num_examples

    def in_parts(self, split: str, function: Callable, names: Sequence[str]) -> Iterator[Any]:
        """Yields `function(tables, split, names, begin, end)` of each range of a split, in order.

        Worker processes run it if there are several ranges.
        """
        size = self.size(split)
        ranges = [(begin, min(begin + _PART, size)) for begin in range(0, size, _PART)]
        items = [(function, (self, split, names, *each)) for each in ranges]
        yield from self.runner.apply(
            _call, items, lambda item: f"'{split}' of {self.name} was read"
        )

    def columns(self, split: str, names: Sequence[str]) -> list[list]:
        """Returns the values of each of some features, in the order of the examples."""
        found = [[] for _ in names]
        for part in self.in_parts(split, _columns, names):
            for column, values in zip(found, part):
                column.extend(values)
        return found


def _value(example, name):
    if name in example:
        return example[name]
    outer, _, inner = name.partition("/")
    return example[outer][inner]


def _records(path, begin, end, info):
    """Yields a range of the records of a file, whose checksums are checked."""
    with files.open_file(path) as file:
        for number in range(end):
            header = file.read(framing.HEADER)
            size = struct.unpack("<Q", header[:8])[0] if len(header) == framing.HEADER else 0
            if header[8:] != framing.masked_crc32c(header[:8]):
                raise _damaged(path, number, info)
            if number < begin:
                file.seek(size + framing.FOOTER, os.SEEK_CUR)
                continue
            record = file.read(size)
            if file.read(framing.FOOTER) != framing.masked_crc32c(record):
                raise _damaged(path, number, info)
            yield record


def _damaged(path, number, info):
    return DataError(
        f"{path}: record {number} is truncated or damaged. Remove {info.data_dir} to prepare "
        f"{info.name} again"
    )


def _other_records(path, begin, end, info):
    """Yields a range of the records of a file of another format than TFRecord."""
    import tensorflow as tf
    import tensorflow_datasets as tfds

    adapter = tfds.core.file_adapters.ADAPTER_FOR_FORMAT[info.file_format]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        records = adapter.make_tf_data(path).skip(begin).take(end - begin)
        record = tf.compat.v1.data.make_one_shot_iterator(records).get_next()
        for _ in range(begin, end):
            yield session.run(record)


def _call(item):
    function, arguments = item
    return function(*arguments)


def _columns(tables, split, names, begin, end):
    return list(zip(*tables.rows(split, names, begin, end)))


@functools.lru_cache(maxsize=4)
def _builder(name, data_dir):
    import tensorflow_datasets as tfds

    return tfds.builder(name, data_dir=data_dir)


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
    def targets(self) -> np.ndarray | None:
        """See `RawSplit`."""
        return self.examples.targets

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

    def part(self, begin: int, end: int) -> Streamed:
        """See `RawSplit`."""
        return dataclasses.replace(self, examples=self.examples.part(begin, end))

    def read(self, i: int) -> Row | Broken:
        """Reads example `i`; all in order are read many times faster."""
        return next(iter(self.part(i, i + 1)))

    def __iter__(self) -> Iterator[Row | Broken]:
        numbers = [
            int(name[name.rindex("[") + 1 : -1]) for name in self.examples.paths[: len(self)]
        ]
        begin, place = numbers[0], 0
        rows = self.tables.rows(self.split, self.features, begin, numbers[-1] + 1)
        for number, values in enumerate(rows, begin):
            if number == numbers[place]:
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


def read(options: Options, runner: Runner) -> RawDataset:
    """Returns all splits, also those without labels; downloads the data set if needed.

    Args:
      options: `dataset` is "tfds:NAME", such as "tfds:cifar10"; `source` is the data_dir of
        tensorflow-datasets, its default if empty; `task` chooses if the features fit several.
      runner: see `convert.read`.

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
    runner.require_visible(source=str(builder.data_dir))
    versioned = f"{name.partition(':')[0]}:{builder.version}"
    splits = _splits(list(builder.info.splits), options.dataset)
    tables = Tables(versioned, options.source or None, splits, runner)
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
