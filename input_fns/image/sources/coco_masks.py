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
from input_fns.image.sources.boxes import CLIPPED, NOT_FINITE, Notes

NO_MASK = "without a polygon or run lengths"
BAD_PART, TOO_LONG = "with a part that is not a polygon", "with a polygon that is too long"
NO_PIXEL = "without a pixel"
FRACTIONS = "inside of the first pixel, as fractions of the image are"
# pycocotools walks along a polygon in steps of a fifth of a pixel and keeps them all in memory.
_STEPS_PER_PIXEL, _MAX_STEPS = 5, 10**7
_MERGED = 16  # parts of an object that are joined at once
# Characters of a run in COCO's string: a difference of two runs has up to 33 bits, 5 in each.
_MAX_CHARACTERS = 7


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
      size: height and width of the mask.
      notes: counts of what is corrected or left out; gets those of `objects`, too.

    Raises:
      ValueError: run lengths are invalid, or are of another size.
    """
    notes.corrected.update(objects.notes.corrected)
    notes.left_out.update(objects.notes.left_out)
    shapes = []
    for each in objects.found:
        shape = _shape(each.segmentation, size, notes)
        if shape is not None and not _area(shape):
            notes.left_out[NO_PIXEL] += 1
        elif shape is not None:
            shapes.append((each, shape))
    columns = np.zeros(math.prod(size), np.uint8)  # one after the other, as run lengths are
    # Run by run: an image may have thousands of objects and 10^8 pixels.
    for each, counts in sorted(shapes, key=lambda shape: (not shape[0].is_crowd, -_area(shape[1]))):
        _paint(columns, counts, IGNORED_CLASS if each.is_crowd else each.label)
    return np.ascontiguousarray(columns.reshape(size[::-1]).T)


def _area(counts):
    return int(counts[1::2].sum())


def _paint(columns, counts, value):
    """Sets the runs of ones."""
    bounds = np.cumsum(counts)
    for start, end in zip(bounds[::2].data, bounds[1::2].data):
        columns[start:end] = value


def _shape(segmentation, size, notes):
    """Returns the run lengths of an object, int64 `[runs]`; None without a valid shape."""
    if isinstance(segmentation, dict) and segmentation:
        return _run_lengths(segmentation, size)
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
    encoded = coco_mask.frPyObjects(points, height, width)
    while len(encoded) > 1:  # in groups: one by one takes quadratic time
        groups = range(0, len(encoded), _MERGED)
        encoded = [coco_mask.merge(encoded[i : i + _MERGED]) for i in groups]
    return _decompress(encoded[0]["counts"])


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


def _run_lengths(rle, size):
    """Returns checked run lengths, int64 `[runs]`, of zeros and ones in turn, down the columns.

    Args:
      rle: "size", `[height, width]`, and "counts", a list or COCO's compressed string.
      size: height and width of the image.

    Raises:
      ValueError: they are invalid, or of another size.
    """
    found = rle.get("size")
    if found != list(size):
        raise ValueError(f"run lengths of the size {str(found)[:40]} in an image of {list(size)}")
    counts = rle.get("counts")
    num_pixels = math.prod(size)
    if isinstance(counts, str):
        counts = _decompress(counts.encode(errors="replace"))
    elif isinstance(counts, list) and set(map(type, counts)) <= {int, float}:
        # An integer may be above all floats.
        counts = np.array([max(-1, min(count, num_pixels + 1)) for count in counts], np.float64)
    else:
        counts = np.array([-1])
    is_valid = ((counts >= 0) & (counts <= num_pixels) & (counts == np.floor(counts))).all()
    if not is_valid or counts.sum() != num_pixels:
        raise ValueError(f"run lengths that do not add up to {num_pixels} pixels")
    return counts.astype(np.int64)


def _decompress(text):
    """Returns the run lengths of COCO's string, int64 `[runs]`, maybe negative.

    It is LEB128 of 5 bits in a character, differences to the last but one. Source: rleFrString in
    maskApi.c of pycocotools.
    """
    bits = np.frombuffer(text, np.uint8).astype(np.int64) - 48
    lasts = np.flatnonzero(bits & 32 == 0)
    firsts = np.append(0, lasts[:-1] + 1)
    if not ((bits >= 0) & (bits < 64)).all() or (lasts - firsts >= _MAX_CHARACTERS).any():
        raise ValueError("a string of run lengths that is not COCO's")
    if not len(bits) or lasts[-1:].tolist() != [len(bits) - 1]:
        raise ValueError("a string of run lengths that ends too early")
    places = np.arange(len(bits)) - np.repeat(firsts, lasts - firsts + 1)
    counts = np.add.reduceat((bits & 31) << 5 * places, firsts)
    counts -= (bits[lasts] & 16) << 1 + 5 * (lasts - firsts)  # the sign
    for first in (1, 2):
        counts[first::2] = np.cumsum(counts[first::2])
    return counts
