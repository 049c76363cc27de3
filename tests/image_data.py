"""Image files of kinds that Pillow does not write: deep PNG, TIFF of any numbers."""

from __future__ import annotations

import struct
import zlib

import numpy as np

_KINDS = {"u": 1, "i": 2, "f": 3}  # SampleFormat
_SHORT, _LONG, _SIGNED_LONG, _FLOAT = 3, 4, 9, 11


# Of each pass of an interlaced PNG: the first row and column, and the steps.
_PASSES = (
    (0, 0, 8, 8),
    (0, 4, 8, 8),
    (4, 0, 8, 4),
    (0, 2, 4, 4),
    (2, 0, 4, 2),
    (0, 1, 2, 2),
    (1, 0, 2, 1),
)


def png(values: np.ndarray, significant_bits: int = 0, is_interlaced: bool = False) -> bytes:
    """Returns a PNG of 16 bits: grey, grey with alpha, RGB or RGBA.

    Args:
      values: uint16 `[height, width]` or `[height, width, channels]`.
      significant_bits: of the chunk sBIT; 0 for none.
      is_interlaced: whether it has the seven passes of Adam7.
    """
    values = np.atleast_3d(values)
    height, width, channels = values.shape
    color_type = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    head = struct.pack(">IIBBBBB", width, height, 16, color_type, 0, 0, is_interlaced)
    parts = [values[y::dy, x::dx] for y, x, dy, dx in _PASSES] if is_interlaced else [values]
    rows = b"".join(
        b"\0" + row.astype(">u2").tobytes() for part in parts for row in part if row.size
    )
    significant = _chunk(b"sBIT", bytes([significant_bits] * channels)) if significant_bits else b""
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", head)
        + significant
        + _chunk(b"IDAT", zlib.compress(rows))
        + _chunk(b"IEND", b"")
    )


def _chunk(name, content):
    checksum = struct.pack(">I", zlib.crc32(name + content))
    return struct.pack(">I", len(content)) + name + content + checksum


def tiff(values: np.ndarray, order="<", is_packed=False, tags=(), photometric=None, planar=1):
    """Returns a TIFF of one strip.

    Args:
      values: any numbers, `[height, width]` or `[height, width, channels]`.
      order: byte order, "<" or ">".
      is_packed: whether it is compressed by zlib.
      tags: `(tag, numbers)` pairs, such as of the range of the values.
      photometric: value of the tag; default: grey or RGB.
      planar: value of the tag PlanarConfiguration.
    """
    height, width, *channels = values.shape
    samples = channels[0] if channels else 1
    strip = values.astype(values.dtype.newbyteorder(order)).tobytes()
    strip = zlib.compress(strip) if is_packed else strip
    entries = [
        (256, [width]),
        (257, [height]),
        (258, [values.dtype.itemsize * 8] * samples),
        (259, [8 if is_packed else 1]),
        (262, [(2 if samples > 2 else 1) if photometric is None else photometric]),
        (273, [8]),
        (277, [samples]),
        (278, [height]),
        (279, [len(strip)]),
        (284, [planar]),
        *([(338, [2])] if samples == 4 else []),
        (339, [_KINDS[values.dtype.kind]] * samples),
        *tags,
    ]
    count = struct.pack(f"{order}H", len(entries))
    start = 8 + len(strip)
    after = start + 2 + 12 * len(entries) + 4
    directory, more = b"", b""
    for tag, numbers in sorted(entries):
        kind, letter = _type_of(numbers)
        content = struct.pack(f"{order}{len(numbers)}{letter}", *numbers)
        if len(content) > 4:
            place = struct.pack(f"{order}I", after + len(more))
            more += content
        else:
            place = content.ljust(4, b"\0")
        directory += struct.pack(f"{order}HHI", tag, kind, len(numbers)) + place
    head = {"<": b"II", ">": b"MM"}[order] + struct.pack(f"{order}HI", 42, start)
    return head + strip + count + directory + b"\0" * 4 + more


def _type_of(numbers):
    if any(isinstance(number, float) for number in numbers):
        return _FLOAT, "f"
    if min(numbers) < 0:
        return _SIGNED_LONG, "i"
    return (_SHORT, "H") if max(numbers) < 2**16 else (_LONG, "I")
