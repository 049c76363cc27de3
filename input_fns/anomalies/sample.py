"""A finding, and the sample of a split that the checks look at."""

from __future__ import annotations

import dataclasses
import io
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
from PIL import Image

from common.names import counted
from input_fns import DataError
from input_fns.core import framing
from input_fns.dataset_info import DatasetInfo, SplitInfo

# Records to read of a split, spread over the shards if these are small, and to decode. They are in
# memory: fewer of large ones.
SIZE, _MAX_BYTES = 512, 2**28
_DECODED = 128
_SPREAD_BYTES = 2**28
# Shares of a sample from which on a finding is an error, or a warning.
MOST, MANY, SOME = 0.9, 0.2, 0.05
_SHOWN = 10


@dataclasses.dataclass(frozen=True)
class Anomaly:
    """A finding: an error if nothing can be learned from the data, else a warning."""

    text: str
    is_error: bool = False

    def __str__(self) -> str:
        return f"{'error' if self.is_error else 'warning'}: {self.text}"


@dataclasses.dataclass(frozen=True)
class Sample:
    """Some examples of a split.

    Attributes:
      data: the data set.
      split: name of the split.
      examples: features of each example as they are stored, and its "name" if it has one.
      files: content of files that are not in the folder of the data set yet.
    """

    data: DatasetInfo
    split: str
    examples: Sequence[Mapping[str, bytes]]
    files: Mapping[str, bytes]

    @property
    def is_train(self) -> bool:
        """Whether the split is trained on: what is an error there is a warning elsewhere."""
        return self.split == "train"

    @property
    def info(self) -> SplitInfo:
        """Metadata of the split."""
        return self.data.splits[self.split]

    @property
    def where(self) -> str:
        """The split, for messages."""
        return f"'{self.split}'{' (a sample)' * (len(self.examples) < self.info.num_examples)}"

    def few(self) -> Sample:
        """Returns a sample of as many examples, evenly spread, as are worth decoding."""
        step = -(-len(self.examples) // _DECODED) or 1
        return dataclasses.replace(self, examples=self.examples[::step])

    def values(self, name: str) -> np.ndarray:
        """Returns a raw feature of all examples, `[examples, *shape]`."""
        return np.stack([self.data.features[name].to_array(each[name]) for each in self.examples])

    def pixels(self, name: str) -> Iterator[np.ndarray | None]:
        """Yields images, of a large JPEG an eighth of its size; None for broken ones."""
        feature = self.data.features[name]
        read = _decode if feature.is_image_file else feature.to_array
        return (read(example[name]) for example in self.examples)

    def names(self) -> list[str]:
        """Returns the names of the source files of the examples; "one" without a name."""
        return [example.get("name", b"one").decode() for example in self.examples]

    def content(self, name: str) -> bytes:
        """Returns the content of another file of the data set."""
        if name in self.files:
            return self.files[name]
        with tf.io.gfile.GFile(os.path.join(self.data.data_dir, name), "rb") as file:
            return file.read()


def read(data: DatasetInfo, split: str, files: Mapping[str, bytes]) -> Sample:
    """Returns a sample of a split that has examples."""
    info = data.splits[split]
    size = min(SIZE, max(1, _MAX_BYTES * info.num_examples // info.num_bytes))
    count = -(-size // len(info.shards))
    found, num_bytes = [], 0
    for shard in info.shards[:: max(1, len(info.shards) // size)]:
        is_spread = info.num_bytes < _SPREAD_BYTES
        stride = max(1, -(-shard.num_examples // count)) if is_spread else 1
        numbers = range(0, shard.num_examples, stride)[:count]
        # Without tf.data: a session of each shard takes longer than all of the records.
        try:
            for record in framing.sample(data.path(shard), numbers, shard):
                num_bytes += len(record)
                if found and num_bytes > _MAX_BYTES:  # of examples of very different sizes
                    break
                stored = tf.train.Example.FromString(record).features.feature
                found.append(
                    {n: f.bytes_list.value[0] for n, f in stored.items() if f.bytes_list.value}
                )
        except framing.FramingError as error:
            raise DataError(f"{data.path(shard)}: {error}") from error
    return Sample(data, split, found[:size], files)


def _decode(stored):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(io.BytesIO(stored), formats=("JPEG", "PNG"))
            image.draft(image.mode, (64, 64))
            return np.asarray(image.convert("RGB" if image.mode == "P" else image.mode))
    except Exception:  # Pillow's decoders raise many types of errors; the inspection reports it
        return None


def listed(names: Sequence[str]) -> str:
    """Returns the first of some names, for messages."""
    return ", ".join([*names[:_SHOWN], *(["..."] if names[_SHOWN:] else [])])


def without(missing: Sequence[str], unit: str) -> Anomaly:
    """Returns the warning about classes of "train" without a single example, box or pixel."""
    classes = counted(len(missing), "class", "classes")
    return Anomaly(f"{classes} without any {unit} in 'train': {listed(missing)}")
