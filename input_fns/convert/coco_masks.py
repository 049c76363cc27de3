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
BAD_PART, TOO_LONG = "with a part that is not a polygon", "with a polygon that is too long"
NO_PIXEL = "without a pixel"
FRACTIONS = "inside of the first pixel, as fractions of the image are"
# pycocotools walks along a polygon in steps of a fifth of a pixel and keeps them all in memory.
_STEPS_PER_PIXEL, _MAX_STEPS = 5, 10**7


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
    shapes = []
    for each in objects.found:
        shape = _shape(each.segmentation, size, notes)
        if shape is not None and not shape[0]:
            notes.left_out[NO_PIXEL] += 1
        elif shape is not None:
            shapes.append((each, *shape))
    classes = np.zeros(size, np.uint8)
    # One mask of bools at a time: an image may have hundreds of objects and 10^8 pixels.
    for each, _, pixels in sorted(shapes, key=lambda shape: (not shape[0].is_crowd, -shape[1])):
        classes[pixels()] = IGNORED_CLASS if each.is_crowd else each.label
    return classes


def _shape(segmentation, size, notes):
    """Returns the area of an object and a function that returns its pixels; None without any.

    The pixels are bool `[height, width]`.
    """
    if isinstance(segmentation, dict) and segmentation:
        counts = _run_lengths(segmentation, size)
        return sum(counts[1::2]), lambda: _fill(counts, size)
    polygons, is_whole = _polygons(segmentation)
    if not polygons:
        notes.left_out[NO_MASK] += 1
        return None
    if not all(np.isfinite(polygon).all() for polygon in polygons):
        notes.left_out[NOT_FINITE] += 1
        return None
    if max(polygon.max() for polygon in polygons) <= 1:
        notes.left_out[FRACTIONS] += 1
        return None
    if not is_whole:
        notes.corrected[BAD_PART] += 1
    height, width = size
    inside = [np.clip(polygon, 0, (width, height)) for polygon in polygons]
    if any((a != b).any() for a, b in zip(inside, polygons)):
        notes.corrected[CLIPPED] += 1
    if sum(map(_num_steps, inside)) > _MAX_STEPS:
        notes.left_out[TOO_LONG] += 1
        return None
    from pycocotools import mask as coco_mask  # an optional dependency

    points = [polygon.ravel().tolist() for polygon in inside]
    encoded = coco_mask.merge(coco_mask.frPyObjects(points, height, width))
    return int(coco_mask.area(encoded)), lambda: coco_mask.decode(encoded) > 0


def _num_steps(polygon):
    """Returns the number of points that pycocotools makes of a polygon `[points, 2]`."""
    sides = np.abs(np.diff(polygon, axis=0, append=polygon[:1])).max(axis=1)
    return _STEPS_PER_PIXEL * sides.sum() + len(polygon)


def _polygons(value):
    """Returns the polygons of an object, float64 `[points, 2]`, and whether all are valid.

    Besides a list of polygons `[x0, y0, x1, y1, ...]`, one polygon is valid, and points `[x, y]`
    in a polygon: COCO has no polygons of one point.
    """
    value = value if isinstance(value, (list, tuple)) else []
    if _has_points(value) or not any(isinstance(part, (list, tuple)) for part in value):
        value = [value] if value else []
    found = [_polygon(part) for part in value]
    valid = [polygon for polygon in found if polygon is not None]
    return valid, len(valid) == len(found)


def _has_points(value):
    """Whether a value is a list of points `[x, y]`."""
    pairs = [isinstance(point, (list, tuple)) and len(point) == 2 for point in value]
    return bool(pairs) and all(pairs)


def _polygon(value):
    """Returns at least three points `[points, 2]` of numbers; None for anything else."""
    if isinstance(value, (list, tuple)) and _has_points(value):
        value = [x for point in value for x in point]
    if not isinstance(value, (list, tuple)) or len(value) < 6 or len(value) % 2:
        return None
    try:
        is_valid = all(isinstance(v, (int, float, str)) for v in value) and "_" not in str(value)
        return np.array([float(v) for v in value]).reshape(-1, 2) if is_valid else None
    except (ValueError, OverflowError):
        return None


def decode_run_lengths(rle: dict[str, Any], size: tuple[int, int]) -> np.ndarray:
    """Returns the pixels of run lengths (RLE), bool `[height, width]`.

    Args:
      rle: "size", `[height, width]`, and "counts": the lengths of runs of zeros and ones in turn,
        down the columns, as a list or as COCO's compressed string.
      size: height and width of the image.

    Raises:
      ValueError: they are invalid, or of another size.
    """
    return _fill(_run_lengths(rle, size), size)


def _run_lengths(rle, size):
    """Returns checked run lengths; see `decode_run_lengths`."""
    found = rle.get("size")
    if found != list(size):
        raise ValueError(f"run lengths of the size {str(found)[:40]} in an image of {list(size)}")
    counts = rle.get("counts")
    if isinstance(counts, str):
        counts = _decompress(counts)
    is_valid = isinstance(counts, list) and all(
        isinstance(count, (int, float)) and not isinstance(count, bool) and count >= 0
        for count in counts
    )
    if not is_valid or sum(counts) != math.prod(size) or any(c != int(c) for c in counts):
        raise ValueError(f"run lengths that do not add up to {math.prod(size)} pixels")
    return [int(count) for count in counts]


def _fill(counts, size):
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
