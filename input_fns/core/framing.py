"""The framing of TFRecord files, without TensorFlow: records with their lengths and checksums.

A record is its length (8 bytes), the masked CRC-32C of that (4), the data and their masked CRC-32C
(4): tensorflow/core/lib/io/record_writer.h. Worker processes write shards with it, because the
import of TensorFlow takes seconds and hundreds of megabytes in each.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import google_crc32c
import numpy as np

from common import crc32c, files, folders

if TYPE_CHECKING:
    from input_fns.core.dataset_parts import ShardInfo

HEADER, FOOTER = 12, 4
FRAMING_BYTES = HEADER + FOOTER
_MAX_OFFSETS = 64  # of the index of a shard


class FramingError(ValueError):
    """A record extends past the end of its shard, or has another checksum."""


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


def sample(path: str, numbers: Iterable[int], shard: ShardInfo) -> Iterator[bytes]:
    """Yields the records with these numbers, in ascending order, of a valid shard.

    Raises:
      FramingError: a record extends past the end of the file, or has another checksum.
    """
    place = following = 0  # of the next record: its byte offset, and its number
    with files.open_bytes(path) as file:
        for number in numbers:
            indexed = number // shard.stride
            if shard.offsets and indexed * shard.stride > following:
                place, following = shard.offsets[indexed], indexed * shard.stride
            while following <= number:
                file.seek(place)
                header = file.read(HEADER)
                if len(header) < HEADER:
                    raise FramingError(f"truncated record at byte {place}")
                (length,) = struct.unpack("<Q", header[:8])
                place, following = place + HEADER + length + FOOTER, following + 1
            record = file.read(length)
            if file.read(FOOTER) != masked_crc32c(record):
                raise FramingError(f"corrupted record {number}")
            yield record


def frame(records: bytes, count: int = 1) -> bytes:
    """Returns joined records of one size, `count` of them, as they are stored in a file."""
    size = len(records) // count
    length = struct.pack("<Q", size)
    header = length + masked_crc32c(length)
    if count == 1:
        return b"".join([header, records, masked_crc32c(records)])
    framed = np.empty([count, size + FRAMING_BYTES], np.uint8)
    framed[:, :HEADER] = np.frombuffer(header, np.uint8)
    framed[:, HEADER:-FOOTER] = np.frombuffer(records, np.uint8).reshape(count, size)
    parts = (records[begin : begin + size] for begin in range(0, len(records), size))
    crcs = np.fromiter(map(google_crc32c.value, parts), np.uint64, count)
    framed[:, -FOOTER:] = crc32c.masked(crcs).astype("<u4")[:, None].view(np.uint8)
    return framed.tobytes()


def masked_crc32c(data: bytes) -> bytes:
    """Returns the checksum of a length or of a record."""
    return struct.pack("<I", crc32c.masked(google_crc32c.value(data)))
