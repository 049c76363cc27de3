"""Walks a shard record by record, past the broken ones, and says what is wrong with each."""

from __future__ import annotations

import dataclasses
import os
import re
import struct
from collections.abc import Iterator

import tensorflow as tf
from tensorflow.python.lib.io import tf_record  # the reader that can go on after a broken record

from input_fns.dataset import Dataset

# Around a record: length (8 bytes), its checksum (4), the data, their checksum (4).
_HEADER, _FOOTER = 12, 4


@dataclasses.dataclass(frozen=True)
class Record:
    """A record of a shard.

    Attributes:
      data: its bytes; None if they cannot be read.
      problem: with the shard, the number of the record and its byte; None if it is a good one.
    """

    data: bytes | None
    problem: str | None


def walk(data: Dataset, path: str) -> Iterator[Record]:
    """Yields every record of a shard, and last the place after which no other can be found.

    That is a length that is broken, or the end of a file that was cut.
    """
    size = tf.io.gfile.stat(path).length
    reader, problem_of = tf_record.tf_record_random_reader(path), _Checker(data)
    offset = number = 0
    while offset < size:
        where = f"{os.path.basename(path)}, record {number} at byte {offset}"
        try:
            record, offset = reader.read(offset)
        except (tf.errors.DataLossError, IndexError) as error:
            yield Record(None, f"{where}: {_reason(error)}")
            following = _after_broken_data(path, offset, error)
            if following is None:
                return
            offset = following
        else:
            problem = problem_of(record)
            yield Record(record, f"{where}: {problem}" if problem else None)
        number += 1


def _reason(error):
    if isinstance(error, IndexError):
        return "truncated record"
    message = error.message.split(" [[")[0]
    return re.sub(r" at \d+", "", message) or "its checksum does not fit"


def _after_broken_data(path, offset, error):
    """Returns where the next record begins; None if the length of this one cannot be trusted."""
    # The reader names the byte where it stopped: that of the data if the length was good.
    if not str(error).startswith(f"corrupted record at {offset + _HEADER}"):
        return None
    with tf.io.gfile.GFile(path, "rb") as file:
        file.seek(offset)
        (length,) = struct.unpack("<Q", file.read(8))
    return offset + _HEADER + length + _FOOTER


class _Checker:
    """Tells what is wrong with a record, if anything."""

    def __init__(self, data):
        self._data = data
        with tf.Graph().as_default():
            self._encoded = tf.compat.v1.placeholder(tf.string, [])
            self._decode = tf.io.decode_image(self._encoded, expand_animations=False)
            self._session = tf.compat.v1.Session()

    def __call__(self, record):
        try:
            stored = tf.train.Example.FromString(record).features.feature
        except Exception:  # protobuf's own, of which there are several implementations
            return "no tf.train.Example"
        for name, feature in self._data.features.items():
            values = stored[name].bytes_list.value if name in stored else []
            if len(values) != 1:
                return f"it has no feature '{name}'"
            if feature.encoding == "raw" and len(values[0]) != feature.num_bytes:
                return f"'{name}' has {len(values[0])} bytes instead of {feature.num_bytes}"
            if feature.is_image_file and not self._decodes(values[0]):
                return f"'{name}' is no whole JPEG or PNG"
        if self._data.num_classes:
            labels = stored["label"].int64_list.value if "label" in stored else []
            if len(labels) != 1 or not 0 <= labels[0] < self._data.num_classes:
                return f"its label {list(labels)} is none of the {self._data.num_classes} classes"
        return None

    def _decodes(self, encoded):
        try:
            self._session.run(self._decode, {self._encoded: encoded})
            return True
        except tf.errors.InvalidArgumentError:
            return False
