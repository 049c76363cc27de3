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
from common.constants import IGNORED_CLASS
from input_fns.convert import boxes, coco_masks, decoded_images
from input_fns.convert.boxes import Notes

# Formats without loss: JPEG would change the classes.
FORMATS = ("PNG", "BMP", "GIF", "TIFF")
EXTENSIONS = (".png", ".bmp", ".gif", ".tif", ".tiff")
_MAX_PIXELS = 10**8
_SHOWN_VALUES = 8


@dataclasses.dataclass(frozen=True)
class Rules:
    """Meaning of the values of masks.

    Attributes:
      class_names: class names in the order of the classes.
      class_of: `{value: class}`, `IGNORED_CLASS` for values to ignore; other values are errors.
    """

    class_names: tuple[str, ...]
    class_of: Mapping[int, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Item:
    """An image and its mask, or objects of which to draw one.

    Attributes:
      path: path of the image.
      mask: path of the mask, or the objects.
    """

    path: str
    mask: str | coco_masks.Objects

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


def read_many(
    items: Sequence[Item],
    rules: Rules,
    channels: int,
    pixel_range: tuple[float, float] | None = None,
) -> list[tuple[decoded_images.StoredImage, StoredMask] | str]:
    """Reads images and masks; returns the reason instead if a file is invalid."""
    return [_read_one(item, rules, channels, pixel_range) for item in items]


def _read_one(item, rules, channels, pixel_range):
    try:
        image = decoded_images.read_file(item.path, None, channels, pixel_range)
    except Exception as error:  # Pillow's decoders raise many types of errors.
        return decoded_images.reason_of(error)
    try:
        return image, _read_mask(item.mask, (image.height, image.width), image.orientation, rules)
    except Exception as error:
        name = f"its mask {item.mask}" if isinstance(item.mask, str) else "its objects"
        return f"{name}: {decoded_images.reason_of(error)}"


def _read_mask(source, size, orientation, rules):
    notes = Notes()
    if isinstance(source, str):
        values = read_values(decoded_images.bytes_of(source))
        classes = _classes(values, rules.class_of)
        declared = classes.shape
    else:
        declared = source.size if any(source.size) else size
        classes = coco_masks.draw(source, declared, notes)
    if boxes.must_turn(declared, size, orientation):
        classes = boxes.turned_mask(classes, orientation)
        notes.corrected[boxes.TURNED] += 1
    counts = np.bincount(classes.ravel(), minlength=IGNORED_CLASS + 1)
    encoded = pictures.to_png(Image.fromarray(np.ascontiguousarray(classes)))
    return StoredMask(encoded, counts[: len(rules.class_names)], notes)


def read_values(data: bytes) -> np.ndarray:
    """Returns the values of a mask file, integers `[height, width]`.

    A palette file gives the numbers of the colors in its palette, a file of 1, 2, 4, 8 or 16 bits
    its numbers. A color file whose channels are equal counts as grey.

    Raises:
      OSError, ValueError, SyntaxError: it is corrupted, not an image without loss, or has colors.
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
            mode, values = image.mode, np.asarray(image)
    if mode in ("LA", "La", "RGB", "RGBA", "RGBX"):
        grey = values[..., :1] if mode.startswith("L") else values[..., :3]
        if (grey != grey[..., :1]).any():
            raise ValueError(
                "it has colors instead of class numbers; write a palette or grey PNG whose values "
                "are the classes"
            )
        return grey[..., 0]
    if values.ndim != 2 or not (mode in ("1", "L", "P") or mode.startswith("I")):
        raise ValueError(f"its pixels are of the kind {mode}; masks are palette or grey PNG")
    values = values.astype(np.int64)
    # Pillow stretches grey of 2 and 4 bits to 0 ... 255.
    return values // _stretch(data) if mode == "L" else values


def _stretch(data):
    """Returns the factor by which Pillow multiplies the values of a grey PNG."""
    if data[:8] != b"\x89PNG\r\n\x1a\n":
        return 1
    bits, color_type = struct.unpack_from("BB", data, 24)
    return 255 // (2**bits - 1) if color_type == 0 and bits in (2, 4) else 1


def _classes(values, class_of):
    """Returns uint8 classes of the values of a mask."""
    found, counts = count(values)
    unknown = [
        f"{value} ({number} pixels)"
        for value, number in zip(found, counts)
        if value not in class_of
    ]
    if unknown:
        raise ValueError(
            f"{len(unknown)} value(s) of no class: {', '.join(unknown[:_SHOWN_VALUES])}. Name all "
            "classes with --class_names, or ignore values with --ignored"
        )
    table = np.zeros([found[-1] + 1], np.uint8)
    table[found] = [class_of[value] for value in found]
    return table[values]


def count(values: np.ndarray) -> tuple[list[int], list[int]]:
    """Returns the values of a mask, sorted, and the number of pixels of each."""
    if values.min() >= 0 and values.max() < 2**16:  # faster than sorting the pixels
        counts = np.bincount(values.ravel())
        found = np.flatnonzero(counts)
        return found.tolist(), counts[found].tolist()
    found, counts = np.unique(values, return_counts=True)
    return found.tolist(), counts.tolist()


def count_values(paths: Sequence[str]) -> collections.Counter:
    """Returns `{value: pixels}` of mask files; skips invalid ones."""
    total: collections.Counter = collections.Counter()
    for path in paths:
        try:
            values = read_values(decoded_images.bytes_of(path))
        except Exception:
            continue
        total.update(dict(zip(*count(values))))
    return total
