"""Scales images of more than 8 bits, of signed integers or of floats to 8 bits, by their range.

The range is that of black and white: of --pixel_range, or as the file states it. It is never taken
from the pixels of one image, which would give each image another brightness.

Imports no TensorFlow: it runs in many worker processes.
"""

from __future__ import annotations

import dataclasses
import io
import math
import re
import struct
import sys
from typing import Any

import numpy as np
from PIL import Image

from input_fns import DataError

# TIFF tags.
_BITS, _PHOTOMETRIC, _DESCRIPTION, _PLANAR, _SAMPLE_FORMAT = 258, 262, 270, 284, 339
_WHITE_IS_ZERO = 0
# Tags of the lowest and the highest value: SMin/SMaxSampleValue, Min/MaxSampleValue. Some programs
# write those of each image's own pixels: see `Levels.stated`.
_RANGE_TAGS = ((340, 341), (280, 281))
_DNG_RANGE = (50714, 50717)  # BlackLevel, WhiteLevel
_OME_BITS = re.compile(r"<(?:\w+:)?Pixels\b[^>]*\bSignificantBits=[\"'](\d+)[\"']")
_KINDS = {1: "uint", 2: "int", 3: "float"}  # of SampleFormat
_PNG_CHANNELS = {0: 1, 2: 3, 4: 1, 6: 3}  # of a color type, without alpha
_NATIVE = {
    **dict.fromkeys(("I;16S", "I;16BS"), "I;16NS"),
    **dict.fromkeys(("I;32S", "I;32BS"), "I;32NS"),
    **dict.fromkeys(("F;32F", "F;32BF"), "F;32NF"),
}
_ROWS = 256  # that are scaled at a time
_USUAL_BITS = (8, 10, 12, 14, 16, 24, 32)


class PixelRangeError(DataError):
    """The range of the values of an image is unknown.

    Attributes:
      problem: what is wrong.
      example: usual ranges of such values, such as "0,4095 (12 bits)".
      name: name of the file, or "".
    """

    def __init__(self, problem: str, example: str, name: str = ""):
        super().__init__(problem, example, name)
        self.problem, self.example, self.name = problem, example, name

    def __str__(self):
        return (
            f"{self.name}: {self.problem}. Set --pixel_range=LOW,HIGH to the values of black and "
            f"white of all images, such as {self.example}"
        )


@dataclasses.dataclass(frozen=True)
class Levels:
    """Numbers that the pixels of a file are.

    Attributes:
      dtype: "uint16", "int16", "uint32", "int32", "float32" or "int8".
      png_bits: number of significant bits that a PNG states, or 0. They should be the highest bits
        of a value, and many programs leave them in the lowest ones.
      stated: the lowest and the highest value according to the file, or None. They must be the same
        in all images of a data set, or they describe the pixels of one image.
      known: the range according to other metadata, or None.
      is_inverted: whether the lowest value is white.
    """

    dtype: str
    png_bits: int = 0
    stated: tuple[float, float] | None = None
    known: tuple[float, float] | None = None
    is_inverted: bool = False


def levels_of(image: Image.Image, data: bytes) -> Levels | None:
    """Returns the levels of an opened PNG or TIFF; None if they are 0 to 255.

    Args:
      image: an image that is not loaded yet.
      data: its file.
    """
    if image.format == "PNG" and data[24] == 16:
        channels = _PNG_CHANNELS[data[25]]
        return Levels("uint16", png_bits=max(_png_chunk(data, b"sBIT")[:channels], default=0))
    if image.format != "TIFF":
        return None
    tags = image.tag_v2
    bits = max(_numbers(tags.get(_BITS, 1)))
    kind = _KINDS.get(max(_numbers(tags.get(_SAMPLE_FORMAT, 1))), "uint")
    if bits <= 8 and kind == "uint":
        return None
    width = next(size for size in (8, 16, 32) if bits <= size)
    stated = next(filter(None, (_tag_range(tags, pair, kind) for pair in _RANGE_TAGS)), None)
    known = _tag_range(tags, _DNG_RANGE, kind)
    if bits < width:
        known = (0, 2**bits - 1)
    significant = _OME_BITS.search(str(tags.get(_DESCRIPTION, "")))
    if significant and kind == "uint" and 0 < int(significant[1]) <= width:
        known = (0, 2 ** int(significant[1]) - 1)
    is_inverted = tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO
    return Levels(f"{kind}{width}", stated=stated, known=known, is_inverted=is_inverted)


def _png_chunk(data, name):
    """Returns the content of a chunk before the pixels of a PNG; b"" without it."""
    place = 8
    while len(data) - place >= 12 and data[place + 4 : place + 8] != b"IDAT":
        (size,) = struct.unpack_from(">I", data, place)
        if data[place + 4 : place + 8] == name:
            return data[place + 8 : place + 8 + size]
        place += 12 + size
    return b""


def _numbers(value):
    """Returns the values of a tag as floats or ints; rationals may be infinite or NaN."""
    values = value if isinstance(value, tuple) else (value,)
    numbers = (v for v in values if not isinstance(v, (str, bytes)))
    return [v if isinstance(v, int) else float(v) for v in numbers]


def _tag_range(tags, pair, kind):
    """Returns the range of two tags; of unsigned integers the lowest value is 0 without a tag."""
    low, high = (_numbers(tags[tag]) if tag in tags else [] for tag in pair)
    if not high or not (low or kind == "uint"):
        return None
    found = min(low, default=0), max(high)
    return found if all(map(math.isfinite, found)) and found[0] < found[1] else None


def to_eight_bits(
    data: bytes,
    image: Image.Image,
    levels: Levels,
    pixel_range: tuple[float, float] | None,
    formats: tuple[str, ...],
) -> Image.Image:
    """Returns an image of 8 bits per channel, without its alpha channel.

    Args:
      data: the file.
      image: the opened file, not loaded yet; it is loaded.
      levels: see `levels_of`.
      pixel_range: values of black and white, or None: as the file states.
      formats: formats of Pillow to open it with.

    Raises:
      OSError, ValueError, SyntaxError: the file is corrupted, has NaN, or is of a kind that is
        unsupported.
      PixelRangeError: the range of its values is unknown.
    """
    values, mode = _values(data, image, levels, formats)
    if levels.dtype == "float32" and np.isnan(values).any():
        raise ValueError(f"{int(np.isnan(values).sum())} of its pixels are NaN")
    low, high = pixel_range or _range(values, levels)
    pixels = _scaled(values, low, high)
    pixels = 255 - pixels if levels.is_inverted else pixels
    return Image.frombytes(mode, pixels.shape[1::-1], pixels.tobytes())


def _values(data, image, levels, formats):
    """Returns numbers `[height, width]` or `[height, width, channels]`, and the mode of 8 bits."""
    is_color = image.mode in ("RGB", "RGBA", "RGBX", "CMYK")
    if not is_color:
        rawmode = _rawmode(image)
        # Pillow expects the order of the file, and libtiff returns that of the machine.
        is_native = image.tile[0][0] == "libtiff"
        values = _load(image, _NATIVE.get(rawmode, rawmode) if is_native else rawmode)
        if levels.dtype in ("int8", "uint32"):  # Pillow takes them for uint8 and int32
            values = values.view(levels.dtype)
        return values.astype(levels.dtype, copy=False), "L"
    if image.format == "TIFF" and image.tag_v2.get(_PLANAR, 1) != 1:
        raise ValueError(
            "it is a TIFF of 16 bits with separate planes of its colors, which is unsupported; "
            "write it with interleaved colors or as PNG"
        )
    # Pillow keeps one of two bytes. It is the first one with ;16B, the second one with ;16L.
    rawmode = _rawmode(image)
    if rawmode == "LA;16B":  # four bytes, the last two of which are alpha
        first, second = np.moveaxis(_load(image, "RGBA")[..., :2], -1, 0)
        mode, order = "L", "B"
    elif rawmode.endswith((";16B", ";16L", ";16N")) and "a" not in rawmode:
        mode = "CMYK" if image.mode == "CMYK" else "RGB"
        with Image.open(io.BytesIO(data), formats=formats) as again:
            first, second = (
                _load(one, f"{rawmode[:-1]}{byte}")[..., : len(mode)]
                for one, byte in ((image, "B"), (again, "L"))
            )
        order = rawmode[-1]
    else:
        raise ValueError(f"its pixels ({rawmode}) are of an unsupported kind; write it as PNG")
    is_big = order == "B" or (order == "N" and sys.byteorder == "big")
    high, low = (first, second) if is_big else (second, first)
    return high.astype(np.uint16) << 8 | low, mode


def _rawmode(image):
    args = image.tile[0][3]
    return args if isinstance(args, str) else args[0]


def _load(image, rawmode):
    """Returns the bytes of an image that is decoded as `rawmode`."""

    def changed(tile):
        decoder, extents, offset, args = tile
        args = rawmode if isinstance(args, str) else (rawmode, *args[1:])
        new: Any = (decoder, extents, offset, args)
        return type(tile)(*new) if hasattr(tile, "_fields") else new  # a named tuple since 11.1

    image.tile = [changed(tile) for tile in image.tile]
    image.load()
    return np.asarray(image)


def _range(values, levels):
    """Returns the values of black and white that the file states."""
    smallest, largest = values.min().item(), values.max().item()
    stated = levels.stated or levels.known
    if stated:
        if stated[0] <= smallest and largest <= stated[1]:
            return stated
        raise PixelRangeError(
            f"its values are {_shown(smallest, largest)}, and it states the range "
            f"{_shown(*stated)}",
            _example(smallest, largest),
        )
    if levels.dtype.startswith("uint"):
        width = np.dtype(levels.dtype).itemsize * 8
        full = (0, 2**width - 1)
        # Images that are black, or use the highest bit, are of the full range for certain.
        if not largest or largest >= 2 ** (width - 1):
            return full
        if levels.png_bits:
            is_high = _is_in_high_bits(values, levels.png_bits)
            return full if is_high else (0, 2**levels.png_bits - 1)
    kind = levels.dtype.rstrip("0123456789")
    name = {"uint": "unsigned integers", "int": "signed integers", "float": "floats"}[kind]
    raise PixelRangeError(
        f"its pixels are {name} of {levels.dtype[len(kind) :]} bits from "
        f"{_shown(smallest, largest)}, and it does not state which ones are black and white",
        _example(smallest, largest),
    )


def _is_in_high_bits(values, bits):
    """Whether values of uint16 can be those of `bits` bits that were scaled to 16, as in a PNG."""
    if bits >= 16 or values.max() >= 2**bits:
        return True
    unused = 16 - bits
    short = values >> unused
    shifted = short << unused
    scaled = np.round(short * (65535 / (2**bits - 1))).astype(np.uint16)
    repeated = shifted | (shifted >> bits) if bits >= unused else scaled
    return any((values == other).all() for other in (shifted, scaled, repeated))


def _shown(low, high):
    return f"{low:.9g} to {high:.9g}"


def _example(low, high):
    """Returns usual ranges of values from `low` to `high`, for the error."""
    if low < 0:
        return f"{low:.9g},{high:.9g}"
    if high <= 1:
        return "0,1"
    bits = next((bits for bits in _USUAL_BITS if high < 2**bits), 32)
    full = next(width for width in (8, 16, 32) if bits <= width)
    return " or ".join(f"0,{2**b - 1} ({b} bits)" for b in dict.fromkeys((bits, full)))


def _scaled(values, low, high):
    """Returns uint8 of `values`, with 0 for `low` and 255 for `high`, rounded and clipped."""
    if values.dtype.itemsize <= 2 and values.dtype.kind in "ui":
        limits = np.iinfo(values.dtype)
        table = _rounded(np.arange(limits.min, limits.max + 1), low, high)
        return table[values.astype(np.int32) - limits.min]
    scaled = np.empty(values.shape, np.uint8)
    for start in range(0, len(values), _ROWS):  # the float64 of a large image take much memory
        scaled[start : start + _ROWS] = _rounded(values[start : start + _ROWS], low, high)
    return scaled


def _rounded(values, low, high):
    inside = np.clip(values.astype(np.float64), low, high)
    return np.floor((inside - low) * (255 / (high - low)) + 0.5).astype(np.uint8)
