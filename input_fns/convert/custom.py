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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from input_fns import DataError, dataset_json
from input_fns.convert import decoded_images
from input_fns.convert.source import Broken, Options, RawDataset, Row
from input_fns.dataset_info import Feature, flatten

_CLASS = "label"


@dataclasses.dataclass(frozen=True)
class RawExamples:
    """A `RawSplit` of examples: dicts of numbers, arrays, and bytes of image files; nested or not.

    All examples have the same names, dtypes and shapes; image files may differ in size. Python
    numbers are stored as int32 and float32. With classes, "label" is the class, an int.

    Attributes:
      where: place of the examples, for errors.
      examples: sequence of examples; it may read them lazily.
      indices: int64 `[size]`, the examples of this split.
      options: `channels` of image files.
      labels: classes, int64 `[size]`, or None without classes.
    """

    where: str
    examples: Sequence[Mapping[str, Any]]
    indices: np.ndarray
    options: Options
    labels: np.ndarray | None = None
    groups: None = None

    @property
    def num_bytes(self) -> int:
        """Approximate size of the rows, from a sample of them."""
        sample = self.indices[:: max(1, len(self) // 20)]
        sizes = [sum(map(len, self._row(i).values.values())) for i in sample]
        return round(np.mean(sizes) * len(self)) if sizes else 0

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[Row | Broken]:
        first: dict[str, Feature] = {}
        for i in self.indices:
            try:
                row = self._row(i)
            except OSError as error:
                yield Broken(f"{self.where}[{i}]", str(error))
                continue
            first = first or row.features
            self._check_same(i, row.features, first)
            yield row

    def take(self, indices: Sequence[int]) -> RawExamples:
        """Returns the split of these examples, in the order of the indices."""
        labels = None if self.labels is None else self.labels[indices]
        return dataclasses.replace(self, indices=self.indices[indices], labels=labels)

    def _row(self, i):
        example = self.examples[i]
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
      options: `dataset`, `source` and `channels` are used.

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
    labels = _classes(where, examples) if raw.class_names else None
    return RawExamples(where, examples, np.arange(len(examples)), options, labels)


def _classes(where, examples):
    labels = []
    for i in range(len(examples)):
        label = examples[i].get(_CLASS) if isinstance(examples[i], Mapping) else None
        if not isinstance(label, (int, np.integer)) or isinstance(label, bool):
            raise DataError(
                f"{where}[{i}]['{_CLASS}'] is {label!a}, and must be an int, the number of a class"
            )
        labels.append(label)
    return np.array(labels, np.int64)


def _encode(value, where, options):
    """Returns bytes as they are stored, and their `Feature`."""
    if isinstance(value, bytes):
        try:
            image = decoded_images.read(value, None, options.channels)
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
    if not is_array or value.dtype.name not in dataset_json.DTYPES:
        kind = value.dtype.name if hasattr(value, "dtype") else type(value).__name__
        raise DataError(
            f"{where} is {kind}, and must be a number, a NumPy array of numbers, or the bytes of "
            "an image file"
        )
    if not value.size:
        raise DataError(f"{where} has the shape {list(value.shape)}: pad it to a static shape")
    stored = value.astype(value.dtype.newbyteorder("<"), copy=False).tobytes()
    return stored, Feature("raw", value.dtype.name, tuple(value.shape))


def _int32(value, where):
    if not -(2**31) <= value < 2**31:
        raise DataError(f"{where} is {value}, not an int32: use np.int64({value}) or fewer digits")
    return np.int32(value)
