"""Reads a shard record by record and reports corrupted records."""

from __future__ import annotations

import dataclasses
import os
import re
import struct
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from tensorflow.python.lib.io import tf_record  # continues after a corrupted record

from input_fns.core.framing import FOOTER, HEADER
from input_fns.dataset_info import DatasetInfo

_MAX_LENGTH = 2**31  # of a tf.train.Example; TensorFlow allocates any length


@dataclasses.dataclass(frozen=True)
class Record:
    """A record of a shard.

    Attributes:
      data: the bytes; None if unreadable.
      problem: description with shard, record number and byte offset; None if valid.
    """

    data: bytes | None
    problem: str | None


def walk(data: DatasetInfo, path: str) -> Iterator[Record]:
    """Yields every record of a shard, up to a corrupted length or a truncated end."""
    size = tf.io.gfile.stat(path).length
    reader, problem_of = tf_record.tf_record_random_reader(path), _Checker(data)
    offset = number = 0
    with tf.io.gfile.GFile(path, "rb") as file:
        while offset < size:
            where = f"{os.path.basename(path)}, record {number} at byte {offset}"
            file.seek(offset)
            header = file.read(HEADER)
            length = struct.unpack("<Q", header[:8])[0] if len(header) == HEADER else 0
            if length > _MAX_LENGTH:
                yield Record(None, f"{where}: corrupted record")
                return
            try:
                record, following = reader.read(offset)
            except (tf.errors.DataLossError, IndexError) as error:
                yield Record(None, f"{where}: {_reason(error)}")
                # The reader reports the offset of the data if the length was valid. If it was
                # not, the next record cannot be found.
                if not str(error).startswith(f"corrupted record at {offset + HEADER}"):
                    return
                following = offset + HEADER + length + FOOTER
            else:
                problem = problem_of(record)
                yield Record(record, f"{where}: {problem}" if problem else None)
            offset, number = following, number + 1


def _reason(error):
    if isinstance(error, IndexError):
        return "truncated record"
    message = error.message.split(" [[")[0].split("' failed")[0]
    return re.sub(r" at \d+", "", message) or "its checksum does not fit"


class _Checker:
    """Checks the contents of records."""

    def __init__(self, data):
        self._data, self._limits = data, data.limits
        with tf.Graph().as_default():
            self._encoded = tf.compat.v1.placeholder(tf.string, [])
            self._decode = tf.io.decode_image(self._encoded, expand_animations=False)
            self._statistics = data.kind.statistics(data)
            if self._statistics:
                self._stored = {
                    name: tf.compat.v1.placeholder(tf.string, [1]) for name in data.features
                }
                self._facts = self._statistics.facts(self._stored)
            self._session = tf.compat.v1.Session()

    def __call__(self, record):
        try:
            stored = tf.train.Example.FromString(record).features.feature
        except Exception:  # differs between implementations of protobuf
            return "no tf.train.Example"
        for name, feature in self._data.features.items():
            values = stored[name].bytes_list.value if name in stored else []
            if len(values) != 1:
                return f"it has no feature '{name}'"
            if not (feature.is_image_file or feature.fits(len(values[0]))):
                most = "up to " * (feature.encoding == "unpadded")
                return f"'{name}' has {len(values[0])} bytes instead of {most}{feature.num_bytes}"
            if feature.is_image_file and not self._decodes(values[0]):
                return f"'{name}' is not a complete JPEG or PNG"
            lowest, limit = self._limits.get(name, (0, 0))
            if limit and not _are_within(values[0], feature, lowest, limit):
                return f"'{name}' has values outside of {lowest} to {np.max(limit) - 1}"
        if self._data.num_classes:
            labels = stored["label"].int64_list.value if "label" in stored else []
            if len(labels) != 1 or not 0 <= labels[0] < self._data.num_classes:
                return f"its label {list(labels)} is none of the {self._data.num_classes} classes"
        return self._statistics_problem(stored) if self._statistics else None

    def _statistics_problem(self, stored):
        fed = {self._stored[name]: list(stored[name].bytes_list.value) for name in self._stored}
        try:
            found = self._session.run(self._facts, fed)
        except tf.errors.InvalidArgumentError:
            return "its image or mask has another size or other channels than dataset.json says"
        example = {name: values[0] for name, values in found.items()}
        return self._statistics.find_problem(example)

    def _decodes(self, encoded):
        try:
            self._session.run(self._decode, {self._encoded: encoded})
            return True
        except tf.errors.InvalidArgumentError:
            return False


def _are_within(encoded, feature, lowest, limit):
    numbers = feature.to_array(encoded)
    return numbers.min() >= lowest and bool((numbers < limit).all())
