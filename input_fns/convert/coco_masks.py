"""Draws the objects of COCO, polygons and run lengths (RLE), into a mask of classes.

Files are untrusted: all numbers are checked before pycocotools, which is written in C, gets them.
Imports no TensorFlow: it runs in many worker processes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from common.constants import IGNORED_CLASS
from input_fns.convert.boxes import CLIPPED, NOT_FINITE, Notes

NO_MASK = "without a polygon or run lengths"


@dataclasses.dataclass(frozen=True)
class Object:
    """An object of an image.

    Attributes:
      label: class.
      is_crowd: whether its pixels are ignored.
      segmentation: list of polygons `[x0, y0, x1, y1, ...]`, or run lengths `{"size", "counts"}`;
        not checked.
    """

    label: int
    is_crowd: bool
    segmentation: Any


@dataclasses.dataclass(frozen=True)
class Objects:
    """The objects of an image.

    Attributes:
      size: height and width of the image that they refer to; (0, 0) if unknown.
      found: its objects.
      notes: what was left out before.
    """

    size: tuple[int, int]
    found: Sequence[Object]
    notes: Notes


def draw(objects: Objects, size: tuple[int, int], notes: Notes) -> np.ndarray:
    """Returns the class of each pixel, uint8 `[height, width]`; class 0 is the background.

    Crowds become `IGNORED_CLASS`. Smaller objects are drawn over larger ones.

    Args:
      objects: the objects.
      size: height and width.
      notes: counts of what is corrected or left out; gets those of `objects`, too.

    Raises:
      ValueError: run lengths are invalid, or are of another size.
    """
    notes.corrected.update(objects.notes.corrected)
    notes.left_out.update(objects.notes.left_out)
    masks = []
    for each in objects.found:
        mask = _mask(each.segmentation, size, notes)
        if mask is not None:
            masks.append((each.is_crowd, mask.sum(), each.label, mask))
    classes = np.zeros(size, np.uint8)
    for is_crowd, _, label, mask in sorted(masks, key=lambda found: (not found[0], -found[1])):
        classes[mask] = IGNORED_CLASS if is_crowd else label
    return classes


def _mask(segmentation, size, notes):
    """Returns the pixels of an object, bool `[height, width]`, or None without any."""
    if isinstance(segmentation, dict):
        return decode_run_lengths(segmentation, size)
    polygons = segmentation if isinstance(segmentation, (list, tuple)) else []
    polygons = [polygon for polygon in polygons if _is_polygon(polygon)]
    if not polygons:
        notes.left_out[NO_MASK] += 1
        return None
    if not all(math.isfinite(value) for polygon in polygons for value in polygon):
        notes.left_out[NOT_FINITE] += 1
        return None
    from pycocotools import mask as coco_mask  # an optional dependency

    height, width = size
    inside = [
        np.clip(np.array(polygon, float).reshape(-1, 2), 0, (width, height)).ravel()
        for polygon in polygons
    ]
    if any((a != b).any() for a, b in zip(inside, polygons)):
        notes.corrected[CLIPPED] += 1
    encoded = coco_mask.frPyObjects([polygon.tolist() for polygon in inside], height, width)
    return coco_mask.decode(encoded).any(axis=2)


def _is_polygon(value):
    """Whether a value is a list of at least three points."""
    return (
        isinstance(value, (list, tuple))
        and len(value) >= 6
        and len(value) % 2 == 0
        and all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in value)
    )


def decode_run_lengths(rle: dict[str, Any], size: tuple[int, int]) -> np.ndarray:
    """Returns the pixels of run lengths (RLE), bool `[height, width]`.

    Args:
      rle: "size", `[height, width]`, and "counts": the lengths of runs of zeros and ones in turn,
        down the columns, as a list or as COCO's compressed string.
      size: height and width of the image.

    Raises:
      ValueError: they are invalid, or of another size.
    """
    found = rle.get("size")
    if found != list(size):
        raise ValueError(f"run lengths of the size {str(found)[:40]} in an image of {list(size)}")
    counts = rle.get("counts")
    if isinstance(counts, str):
        counts = _decompress(counts)
    is_valid = isinstance(counts, list) and all(
        isinstance(count, int) and not isinstance(count, bool) and count >= 0 for count in counts
    )
    if not is_valid or sum(counts) != math.prod(size):
        raise ValueError(f"run lengths that do not add up to {math.prod(size)} pixels")
    pixels = np.repeat(np.arange(len(counts)) % 2 == 1, counts)
    return pixels.reshape(size[::-1]).T


def _decompress(text):
    """Returns the run lengths of COCO's string: LEB128 of 5 bits, differences to the last but one.

    Source: rleFrString in maskApi.c of pycocotools.
    """
    counts: list[int] = []
    value = shift = 0
    for character in text:
        bits = ord(character) - 48
        if not 0 <= bits < 64 or shift > 60:
            raise ValueError("a string of run lengths that is not COCO's")
        value |= (bits & 31) << shift
        shift += 5
        if bits & 32:
            continue
        if bits & 16:
            value -= 1 << shift
        counts.append(value + counts[-2] if len(counts) > 2 else value)
        value = shift = 0
    if shift:
        raise ValueError("a string of run lengths that ends too early")
    return counts
