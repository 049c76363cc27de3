"""The framing of TFRecord files, without TensorFlow: records with their lengths and checksums.

A record is its length (8 bytes), the masked CRC-32C of that (4), the data and their masked CRC-32C
(4): tensorflow/core/lib/io/record_writer.h. Worker processes write shards with it, because the
import of TensorFlow takes seconds and hundreds of megabytes in each.
"""

from __future__ import annotations

import functools
import struct
import zlib
from collections.abc import Sequence

import numpy as np

from common import files, folders

HEADER, FOOTER = 12, 4
FRAMING_BYTES = HEADER + FOOTER
_MAX_OFFSETS = 64  # of the index of a shard
_MASK_DELTA = 0xA282EAD8
_POLYNOMIAL = 0x82F63B78  # of Castagnoli, reflected


class FramingError(ValueError):
    """A record extends past the end of its shard."""


def index(offsets: Sequence[int]) -> tuple[int, ...]:
    """Returns the index of a shard, up to 64 of the byte offsets of all its records."""
    return tuple(offsets[:: -(-len(offsets) // _MAX_OFFSETS)])


def scan(path: str, stride: int = 1) -> tuple[int, int, tuple[int, ...]]:
    """Reads a shard without TensorFlow, which crashes on a length of 2**60.

    Returns:
      The number of records, the crc32 of the concatenated records, and the byte offset of every
      `stride`-th record.

    Raises:
      FramingError: a record extends past the end of the file.
    """
    size = folders.num_bytes(path)
    offset = count = crc32 = 0
    offsets = []
    with files.open_bytes(path) as file:
        while offset < size:
            header = file.read(HEADER)
            length = struct.unpack("<Q", header[:8])[0] if len(header) == HEADER else size
            if HEADER + length + FOOTER > size - offset:
                raise FramingError(f"truncated record at byte {offset}")
            if count % stride == 0:
                offsets.append(offset)
            crc32 = zlib.crc32(file.read(length), crc32)
            file.read(FOOTER)
            offset += HEADER + length + FOOTER
            count += 1
    return count, crc32, tuple(offsets)


def frame(records: Sequence[bytes]) -> bytes:
    """Returns records as they are stored in a file. Records of similar lengths are faster."""
    lengths = [struct.pack("<Q", len(record)) for record in records]
    framed = []
    for length, length_crc, record, crc in zip(
        lengths, _masked_crc32c(lengths), records, _masked_crc32c(records)
    ):
        framed += [length, length_crc, record, crc]
    return b"".join(framed)


def _masked_crc32c(records):
    """Returns the masked checksum of each record of at least 4 bytes, 4 bytes each."""
    crc = crc32c(records)
    masked = (crc >> 15 | crc << 17) + np.uint32(_MASK_DELTA)
    return [value.tobytes() for value in masked.astype("<u4")]


def crc32c(records: Sequence[bytes]) -> np.ndarray:
    """Returns the CRC-32C of each record of at least 4 bytes, uint32 `[records]`.

    A CRC is linear over GF(2), and zeros before the data do not change one that starts with 0. So
    words of 32 bits are padded in front, and the first half of them is folded into the second half
    with the operator that appends as many zeros, until one word is left.
    """
    lengths = np.fromiter(map(len, records), np.int64, len(records))
    width = -(-lengths.max() // 4)
    padded = bytearray(b"".join(record.rjust(4 * width, b"\0") for record in records))
    # Of each record: the CRC begins with ones.
    start_of = 4 * width * np.arange(1, 1 + len(records)) - lengths
    np.frombuffer(padded, np.uint8)[start_of[:, np.newaxis] + np.arange(4)] ^= 0xFF
    words = np.frombuffer(padded, "<u4").astype(np.uint32, copy=False).reshape(-1, width)
    while width > 1:
        power = int(width - 1).bit_length() - 1
        count = width - (1 << power)
        words[:, width - count :] ^= _append_zeros(words[:, :count], power)
        words, width = words[:, count:], 1 << power
    return ~_append_zeros(words[:, 0], 0)


def _append_zeros(words, power):
    """Returns CRCs after 2 ** power words of zeros."""
    low, high = _tables(power)
    # Of all ways to look up numbers in NumPy, the fastest.
    found = low.take((words & 0xFFFF).astype(np.intp), mode="clip")
    found ^= high.take((words >> 16).astype(np.intp), mode="clip")
    return found


@functools.cache
def _tables(power):
    """Returns the CRC of each 16 low and each 16 high bits after 2 ** power words of zeros."""
    if power:
        return tuple(_append_zeros(table, power - 1) for table in _tables(power - 1))
    crc = np.arange(2**16, dtype=np.uint32)
    both = np.stack([crc, crc << 16])
    for _ in range(32):
        both = (both >> 1) ^ (both & 1) * np.uint32(_POLYNOMIAL)
    return tuple(both)
