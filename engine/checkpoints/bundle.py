"""Reads the tensors of a checkpoint in blocks, with their checksums.

TensorFlow's reader holds a whole tensor in memory, and reads a whole stored partition for a slice
of it. This module needs memory for one block only. The format is that of `tensor_bundle.h`: the
index is a table of `BundleEntryProto` (`tsl/lib/io/table`), the data files hold the values.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import google_crc32c
import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import tensor_bundle_pb2

from common import crc32c

BLOCK_BYTES = 2**22
_FOOTER_BYTES, _MAGIC = 48, 0xDB4775248B80FB57
_TRAILER_BYTES = 5  # of a block of the index: compression and checksum


def entries(checkpoint: str) -> list[tuple[str, tensor_bundle_pb2.BundleEntryProto, str]]:
    """Returns (name of the variable, entry, path of the data file) of what the data files hold.

    A partitioned variable has an entry for each partition.

    Raises:
      ValueError: the index is compressed or invalid.
    """
    with tf.io.gfile.GFile(f"{checkpoint}.index", "rb") as file:
        index = file.read()
    if len(index) < _FOOTER_BYTES or struct.unpack("<Q", index[-8:])[0] != _MAGIC:
        raise ValueError(f"{checkpoint}.index is not an index of a checkpoint")
    footer = index[-_FOOTER_BYTES:]
    _, place = _handle(footer, 0)  # of the meta index, unused
    blocks, _ = _handle(footer, place)
    header, found = tensor_bundle_pb2.BundleHeaderProto(), []
    for _, value in _rows(index, *blocks):
        for key, content in _rows(index, *_handle(value, 0)[0]):
            if not key:
                header.ParseFromString(content)
                continue
            entry = tensor_bundle_pb2.BundleEntryProto.FromString(content)
            if not entry.slices:
                shard = f"{entry.shard_id:05d}-of-{header.num_shards:05d}"
                found.append((_name(key), entry, f"{checkpoint}.data-{shard}"))
    return found


def blocks(entry: tensor_bundle_pb2.BundleEntryProto, path: str) -> Iterator[np.ndarray]:
    """Yields the values of a numeric entry, `[n]`, and compares the checksum at the end.

    Raises:
      ValueError: the file is too short, or the checksum differs.
    """
    dtype = tf.as_dtype(entry.dtype).as_numpy_dtype
    crc, left = 0, entry.size
    with tf.io.gfile.GFile(path, "rb") as file:
        file.seek(entry.offset)
        while left:
            block = file.read(min(left, BLOCK_BYTES))
            if not block:
                raise ValueError(f"{path} ends {left} bytes too early")
            crc = google_crc32c.extend(crc, block)
            left -= len(block)
            yield np.frombuffer(block, dtype)
    if crc32c.masked(crc) != entry.crc32c:
        raise ValueError(f"{path} has a wrong checksum at byte {entry.offset}")


# ---- The index ----


def _varint(content, place):
    value = shift = 0
    while True:
        byte = content[place]
        place += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, place


def _handle(content, place):
    """Returns the (offset, size) of a block, and the place after it."""
    offset, place = _varint(content, place)
    size, place = _varint(content, place)
    return (offset, size), place


def _rows(index, offset, size):
    """Yields the keys and values of a block. A key shares a prefix with the one before."""
    end = offset + size
    if end + _TRAILER_BYTES > len(index) or size < 4:
        raise ValueError("the index of the checkpoint is too short")
    if index[end]:
        raise ValueError("the index of the checkpoint is compressed")
    (num_restarts,) = struct.unpack("<I", index[end - 4 : end])
    place, key = offset, b""
    while place < end - 4 - 4 * num_restarts:
        shared, place = _varint(index, place)
        added, place = _varint(index, place)
        length, place = _varint(index, place)
        key = key[:shared] + index[place : place + added]
        place += added
        yield key, index[place : place + length]
        place += length


def _name(key):
    """Returns the name of a variable from its key, or from that of a partition: 0, name, place."""
    if key[:1] == b"\0":
        key = key[1:].partition(b"\0\1")[0].replace(b"\0\xff", b"\0").replace(b"\xff\0", b"\xff")
    return key.decode()
