"""A custom format, read by a function of the user: `--dataset=package.module:FUNCTION`.

    def read(source):
        return RawDataset(
            name="houses",
            class_names=(),
            splits={"train": [{"columns": array, "price": 3.5}, ...], "test": [...]},
            labels=("price",),
            properties={"num_rooms": 7},
        )

`source` is the value of --source.
"""

from __future__ import annotations

import dataclasses
import inspect
import pickle
import tempfile
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from input_fns import DataError
from input_fns.convert.options import Options
from input_fns.convert.source import Broken, RawDataset, RawSplit, Row
from input_fns.core import dataset_json, dataset_parts
from input_fns.dataset_info import Feature, flatten
from input_fns.image.sources import decoded_images

_CLASS = "label"


@dataclasses.dataclass(frozen=True)
class RawExamples(RawSplit):
    """A split of examples: dicts of numbers, arrays, and bytes of image files; nested or not.

    All examples have the same names, dtypes and shapes; image files may differ in size. Python
    numbers are stored as int32 and float32. With classes, "label" is the class, an int.

    Attributes:
      where: place of the examples, for errors.
      examples: sequence of examples; it may read them lazily. Each is read once.
      indices: int64 `[size]`, the examples of this split.
      options: `channels` and `pixel_range` of image files.
      labels: classes, int64 `[size]`, or None without classes.
      known: `{index: row}` of rows that were read before.
      first: features of the first example, once it is read.
    """

    KEYS = ("indices", "labels")
    in_workers = False  # the examples may be any objects

    where: str
    examples: Sequence[Mapping[str, Any]]
    indices: np.ndarray
    options: Options
    labels: np.ndarray | None = None
    known: MutableMapping[int, Row | Broken] = dataclasses.field(default_factory=dict)
    first: dict[str, Feature] = dataclasses.field(default_factory=dict)

    @property
    def num_bytes(self) -> int:
        """Approximate size of the rows, from a sample of them."""
        sample = self.indices[:: max(1, len(self) // 20)].tolist()
        new = {i: self._row(i) for i in sample if i not in self.known}
        if new:
            self.known.update(new)
        rows = [row for row in map(self.known.__getitem__, sample) if isinstance(row, Row)]
        sizes = [sum(map(len, row.values.values())) for row in rows]
        return round(np.mean(sizes) * len(self)) if sizes else 0

    def read(self, i: int) -> Row | Broken:
        """Reads an example, which must have the features of the first one."""
        i = self.indices[i].item()
        row = self.known[i] if i in self.known else self._row(i)
        if isinstance(row, Row):
            self.first.update({} if self.first else row.features)
            self._check_same(i, row.features, self.first)
        return row

    def _row(self, i):
        try:
            return self.to_row(i, self.examples[i])
        except OSError as error:
            return Broken(f"{self.where}[{i}]", str(error))

    def to_row(self, i: int, example: Mapping[str, Any]) -> Row:
        """Returns the row of an example.

        Raises:
          DataError: it is invalid.
          OSError: the bytes of an image are corrupted.
        """
        where = f"{self.where}[{i}]"
        if not isinstance(example, Mapping):
            raise DataError(f"{where} is {type(example).__name__}, and must be a dict of features")
        values, features = {}, {}
        for name, value in flatten(example).items():
            if name == _CLASS and self.labels is not None:
                continue
            values[name], features[name] = _encode(
                value, f"{where}, feature '{name}'", self.options
            )
        problem = dataset_json.find_name_problem(features)
        if not problem and self.labels is not None:
            problem = dataset_json.find_image_problem(features)
        if problem or not features:
            raise DataError(f"{where}: {problem or 'it has no features'}")
        return Row(values, features)

    def _check_same(self, i, features, first):
        if features.keys() != first.keys():
            raise DataError(
                f"{self.where}[{i}] has the features {', '.join(features)}, others "
                f"{', '.join(first)}"
            )
        for name, feature in features.items():
            if feature != first[name] and not (feature.is_image_file and first[name].is_image_file):
                raise DataError(
                    f"{self.where}[{i}], feature '{name}', is {feature.dtype} {list(feature.shape)}"
                    f", in others {first[name].dtype} {list(first[name].shape)}: pad or crop it to "
                    "one shape"
                )


def read(function: Callable[[str], RawDataset], options: Options) -> RawDataset:
    """Returns the data set that the user's function reads, after a check of it.

    Args:
      function: takes --source.
      options: `dataset`, `source`, `channels` and `pixel_range` are used.

    Raises:
      DataError: the function or its result is invalid.
    """
    where = f"--dataset={options.dataset}"
    if not callable(function):
        raise DataError(f"{where} is {type(function).__name__}, and must be a function of --source")
    try:
        inspect.signature(function).bind(options.source)
    except TypeError as error:
        raise DataError(f"{where} must be a function that takes --source: {error}") from error
    except ValueError:  # some built-in functions have no signature
        pass
    raw = function(options.source)
    if not isinstance(raw, RawDataset):
        raise DataError(
            f"{where} returned {type(raw).__name__}, and must return "
            "input_fns.convert.source.RawDataset"
        )
    if not isinstance(raw.splits, Mapping) or not raw.splits:
        raise DataError(f"{where} returned no splits: splits must be a dict of lists of examples")
    for field in ("class_names", "labels"):
        values = getattr(raw, field)
        is_list = isinstance(values, (list, tuple))
        if not is_list or not all(isinstance(value, str) for value in values):
            raise DataError(f"{where} returned {field}={values!a}, and must be a tuple of strings")
    dataset_json.check_properties(raw.properties, f"{where}: properties")
    splits = {
        name: _split(f"{where}: splits[{name!a}]", split, raw, options)
        for name, split in raw.splits.items()
    }
    return dataclasses.replace(
        raw, class_names=tuple(raw.class_names), labels=tuple(raw.labels), splits=splits
    )


def _split(where, split, raw, options):
    if hasattr(split, "take") and hasattr(split, "num_bytes"):
        return split  # a RawSplit
    is_sequence = hasattr(split, "__len__") and hasattr(split, "__getitem__")
    if isinstance(split, (str, bytes, Mapping)) or not (is_sequence or isinstance(split, Iterable)):
        raise DataError(f"{where} is {type(split).__name__}, and must be a sequence of dicts")
    examples = split if is_sequence else list(split)
    found = RawExamples(where, examples, np.arange(len(examples)), options)
    if not raw.class_names:
        return found
    if isinstance(examples, (list, tuple)):
        labels = [_class(f"{where}[{i}]", example) for i, example in enumerate(examples)]
        return dataclasses.replace(found, labels=np.array(labels, np.int64))
    return _with_classes(found)


def _with_classes(split):
    """Returns a split with its classes; the rows are read with them, into a temporary file."""
    labels = np.zeros(len(split), np.int64)
    spool = _Spool()
    split = dataclasses.replace(split, labels=labels, known=spool)
    for i in range(len(split)):
        try:
            example = split.examples[i]
            labels[i] = _class(f"{split.where}[{i}]", example)
            row = split.to_row(i, example)
        except OSError as error:
            row = Broken(f"{split.where}[{i}]", str(error))
        spool.append(row)
    return split


class _Spool(Mapping):
    """Rows in a temporary file, `{index: row}`."""

    def __init__(self):
        self._file = tempfile.TemporaryFile()  # noqa: SIM115, used as long as the split
        self._offsets = []

    def append(self, row):
        self._offsets.append(self._file.tell())
        pickle.dump(row, self._file)

    def __getitem__(self, i):
        self._file.seek(self._offsets[i])
        return pickle.load(self._file)

    def __contains__(self, i):
        return i < len(self)

    def __iter__(self):
        return iter(range(len(self)))

    def __len__(self):
        return len(self._offsets)


def _class(where, example):
    label = example.get(_CLASS) if isinstance(example, Mapping) else None
    if not isinstance(label, (int, np.integer)) or isinstance(label, bool):
        raise DataError(
            f"{where}['{_CLASS}'] is {label!a}, and must be an int, the number of a class"
        )
    return label


def _encode(value, where, options):
    """Returns bytes as they are stored, and their `Feature`."""
    if isinstance(value, bytes):
        try:
            image = decoded_images.read(value, None, options.channels, options.pixel_range)
        except decoded_images.PixelRangeError as error:
            raise decoded_images.named(error, where) from error
        except Exception as error:  # Pillow's decoders raise many types of errors
            raise OSError(f"{where} is not an image file: {error}") from error
        shape = (image.height, image.width, options.channels)
        return image.data, Feature(image.encoding, "uint8", shape)
    if isinstance(value, bool):
        value = np.bool_(value)
    elif isinstance(value, int):
        value = _int32(value, where)
    elif isinstance(value, float):
        value = np.float32(value)
    is_array = isinstance(value, (np.ndarray, np.generic))
    if not is_array or value.dtype.name not in dataset_parts.DTYPES:
        kind = value.dtype.name if hasattr(value, "dtype") else type(value).__name__
        raise DataError(
            f"{where} is {kind}, and must be a number, a NumPy array of numbers, or the bytes of "
            "an image file"
        )
    if np.ma.is_masked(value):
        raise DataError(
            f"{where} has {np.ma.count_masked(value)} masked values, which records do not support. "
            "Fill them with .filled(value), or leave out the example"
        )
    if not value.size:
        raise DataError(f"{where} has the shape {list(value.shape)}: pad it to a static shape")
    stored = value.astype(value.dtype.newbyteorder("<"), copy=False).tobytes()
    return stored, Feature("raw", value.dtype.name, tuple(value.shape))


def _int32(value, where):
    if not -(2**31) <= value < 2**31:
        raise DataError(f"{where} is {value}, not an int32: use np.int64({value}) or fewer digits")
    return np.int32(value)
