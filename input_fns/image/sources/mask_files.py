"""Reads masks of images: the class of each pixel, from files or from objects of COCO.

Imports no TensorFlow: it runs in many worker processes.
"""

from __future__ import annotations

import collections
import dataclasses
import io
import struct
import warnings
from collections.abc import Mapping, Sequence

import numpy as np
from PIL import Image

from common import pictures
from common.names import counted
from input_fns.image.sources import boxes, coco_masks, decoded_images, soft_edges
from input_fns.image.sources.boxes import Notes

# Formats without loss: JPEG would change the classes.
FORMATS = ("PNG", "BMP", "GIF", "TIFF")
EXTENSIONS = (".png", ".bmp", ".gif", ".tif", ".tiff")
_MAX_PIXELS = 10**8
_SHOWN_VALUES = 8
_COLOR_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "RGBX")
SOFT_EDGES = "pixels of soft edges that got the nearer class"


class ColorsError(ValueError):
    """A mask has colors instead of numbers."""


@dataclasses.dataclass(frozen=True)
class Rules:
    """Meaning of the values of masks.

    Attributes:
      class_names: class names in the order of the classes.
      class_of: `{value: class}`, `IGNORED_CLASS` for values to ignore; other values are errors.
      has_colors: whether the values are colors; see `read_values`.
      ends: the lower and the higher value of two classes, between which are soft edges; else ().
      colors: `{number: color}` of the palettes of all masks, of numbers that are known; {} if
        their colors do not matter.
    """

    class_names: tuple[str, ...]
    class_of: Mapping[int, int] = dataclasses.field(default_factory=dict)
    has_colors: bool = False
    ends: tuple[int, ...] = ()
    colors: Mapping[int, int] = dataclasses.field(default_factory=dict)

    def shown(self, value: int) -> str:
        """Returns a value as --mask_values takes it."""
        return f"#{value:06x}" if self.has_colors else str(value)


@dataclasses.dataclass(frozen=True)
class Item:
    """An image and its mask, or objects of which to draw one.

    Attributes:
      path: path of the image.
      mask: path of the mask, or the objects.
      problem: why they cannot be stored; "" if nothing is known before they are read.
    """

    path: str
    mask: str | coco_masks.Objects
    problem: str = ""

    def __str__(self) -> str:
        return self.path


@dataclasses.dataclass(frozen=True)
class StoredMask:
    """A mask as it is stored.

    Attributes:
      png: grey PNG, the class of each pixel, or `IGNORED_CLASS`.
      counts: pixels of each class, int64 `[classes]`.
      notes: what was corrected or left out.
    """

    png: bytes
    counts: np.ndarray
    notes: Notes


def read_mask(
    source: str | coco_masks.Objects, image: decoded_images.StoredImage, rules: Rules
) -> StoredMask:
    """Reads the mask of an image from a file, or draws its objects.

    Raises:
      ValueError: it is missing or invalid.
    """
    try:
        return _read_mask(source, (image.height, image.width), image.orientation, rules)
    except Exception as error:  # Pillow's decoders raise many types of errors.
        name = f"its mask {source}" if isinstance(source, str) else "its objects"
        raise ValueError(f"{name}: {decoded_images.reason_of(error)}") from error


def _read_mask(source, size, orientation, rules):
    notes = Notes()
    if isinstance(source, str):
        classes = read_classes(source, rules, notes)
        must_turn = boxes.must_turn(classes.shape, size, orientation)
    else:
        declared = source.size if any(source.size) else size
        # Before anything is drawn: a JSON may state any size.
        must_turn = boxes.must_turn(declared, size, orientation)
        classes = coco_masks.draw(source, declared, notes)
    if must_turn:
        classes = boxes.turned_mask(classes, orientation)
        notes.corrected[boxes.TURNED] += 1
    classes = np.ascontiguousarray(classes)
    encoded = pictures.areas_to_png(classes)
    return StoredMask(encoded, _num_pixels(classes, len(rules.class_names)), notes)


def read_classes(path: str, rules: Rules, notes: Notes) -> np.ndarray:
    """Returns the class of each pixel of a mask file, uint8 `[height, width]`.

    Raises:
      ValueError: it is invalid, or has other values or colors than `rules`.
    """
    values = read_values(decoded_images.bytes_of(path), rules.has_colors)
    _check_colors(path, rules)
    return _classes(values, rules, notes)


def _num_pixels(classes, num_classes):
    """Returns the number of pixels of each class, int64 `[num_classes]`.

    It adds up areas of equal pixels along the rows, a quarter of the time of np.bincount.
    """
    pixels = classes.ravel()
    starts = np.append(0, np.flatnonzero(pixels[1:] != pixels[:-1]) + 1)
    sizes = np.diff(starts, append=pixels.size)
    return np.bincount(pixels[starts], sizes, num_classes)[:num_classes].astype(np.int64)


def _check_colors(path, rules):
    found = colors_of_numbers(path) if rules.colors else {}
    for number, color in found.items():
        other = rules.colors.get(number, color)
        if color != other:
            raise ValueError(
                f"the number {number} has the color #{color:06x}, and #{other:06x} in other masks. "
                "Name the color of each class with --mask_values"
            )


def read_values(data: bytes, has_colors: bool = False) -> np.ndarray:
    """Returns the values of a mask file, integers `[height, width]`.

    A palette file gives the numbers of the colors in its palette, a file of 1, 2, 4, 8 or 16 bits
    its numbers. A color file whose channels are equal counts as grey.

    Args:
      data: content of the file.
      has_colors: whether the values are colors, 65536 * red + 256 * green + blue, of any file of
        8 bits.

    Raises:
      ColorsError: it has colors, and `has_colors` is False.
      OSError, ValueError, SyntaxError: it is corrupted, or not an image without loss.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            image = Image.open(io.BytesIO(data), formats=FORMATS)
        except OSError as error:
            with Image.open(io.BytesIO(data), formats=decoded_images.FORMATS) as other:
                raise ValueError(
                    f"it is a {other.format}, which changes values; masks are PNG"
                ) from error
        with image:
            if image.width * image.height > _MAX_PIXELS:
                raise ValueError(f"it has {image.width} x {image.height} pixels, too many")
            image.load()
            mode = image.mode
            if has_colors and mode in _COLOR_MODES:
                return _colors(image)
            values = np.asarray(image)
    if mode in ("LA", "La", "RGB", "RGBA", "RGBX"):
        grey = values[..., :1] if mode.startswith("L") else values[..., :3]
        if (grey != grey[..., :1]).any():
            raise ColorsError(
                "it has colors instead of class numbers. Name the color of each class, such as "
                "--mask_values=#000000,#804080"
            )
        return grey[..., 0]
    if values.ndim != 2 or has_colors or not (mode in ("1", "L", "P") or mode.startswith("I")):
        raise ValueError(f"its pixels are of the kind {mode}; masks are palette or grey PNG")
    values = values.astype(np.int64)
    # Pillow stretches grey of 2 and 4 bits to 0 ... 255.
    return values // _stretch(data) if mode == "L" else values


def _colors(image):
    """Returns the color of each pixel as a number."""
    red, green, blue = np.moveaxis(np.asarray(image.convert("RGB")).astype(np.int32), -1, 0)
    colors = red << 16 | green << 8 | blue
    if image.mode == "P" and len(count(colors)[0]) < len(image.getcolors()):
        raise ValueError("its palette has the same color for several numbers")
    return colors


def _stretch(data):
    """Returns the factor by which Pillow multiplies the values of a grey PNG."""
    if data[:8] != b"\x89PNG\r\n\x1a\n":
        return 1
    bits, color_type = struct.unpack_from("BB", data, 24)
    return 255 // (2**bits - 1) if color_type == 0 and bits in (2, 4) else 1


def _classes(values, rules, notes):
    """Returns uint8 classes of the values of a mask."""
    found, counts = count(values)
    class_of = dict(rules.class_of)
    unknown = {v: n for v, n in zip(found, counts) if v not in class_of}
    if unknown and soft_edges.are_soft(values, unknown, rules.ends):
        low, high = rules.ends
        class_of.update({v: class_of[low if 2 * v <= low + high else high] for v in unknown})
        notes.corrected[SOFT_EDGES] += sum(unknown.values())
    elif unknown:
        raise ValueError(_unknown(unknown, rules))
    table = np.zeros([found[-1] + 1], np.uint8)
    table[found] = [class_of[value] for value in found]
    return table[values]


def _unknown(unknown, rules):
    """Returns the error of values that are of no class, `{value: pixels}`."""
    shown = [f"{rules.shown(v)} ({n} pixels)" for v, n in list(unknown.items())[:_SHOWN_VALUES]]
    flat = ""
    if rules.ends:
        flat = ", and they are too many or too large areas for soft edges"
    return (
        f"{counted(len(unknown), 'value')} of no class: {', '.join(shown)}{flat}. Name all "
        "classes with --class_names, or ignore values with --ignored"
    )


def count(values: np.ndarray) -> tuple[list[int], list[int]]:
    """Returns the values of a mask, sorted, and the number of pixels of each."""
    if values.min() >= 0 and values.max() < 2**16:  # faster than sorting the pixels
        counts = np.bincount(values.ravel())
        found = np.flatnonzero(counts)
        return found.tolist(), counts[found].tolist()
    found, counts = np.unique(values, return_counts=True)
    return found.tolist(), counts.tolist()


def count_values(
    paths: Sequence[str], has_colors: bool = False
) -> tuple[collections.Counter, bool]:
    """Returns `{value: pixels}` of mask files, and whether the values are colors.

    They are if one file has colors, or with `has_colors`; see `read_values`. Skips invalid files.
    """
    total: collections.Counter = collections.Counter()
    for path in paths:
        try:
            values = read_values(decoded_images.bytes_of(path), has_colors)
        except ColorsError:
            return count_values(paths, True)
        except Exception:  # Pillow's decoders raise many types of errors.
            continue
        total.update(dict(zip(*count(values))))
    return total, has_colors


def colors_of_numbers(path: str) -> dict[int, int]:
    """Returns `{number: color}` of the palette of a mask, of numbers that it uses.

    {} without a palette, and for an invalid file.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(decoded_images.bytes_of(path)), formats=FORMATS) as image:
                if image.mode != "P" or image.width * image.height > _MAX_PIXELS:
                    return {}
                numbers, _ = count(np.asarray(image))
                palette = image.getpalette() or []
    except Exception:  # Pillow's decoders raise many types of errors.
        return {}
    colors = {number: palette[3 * number : 3 * number + 3] for number in numbers}
    return {n: c[0] << 16 | c[1] << 8 | c[2] for n, c in colors.items() if len(c) == 3}
