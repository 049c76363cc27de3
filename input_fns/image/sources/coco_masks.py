"""Draws the objects of COCO, polygons and run lengths (RLE), into a mask of classes.

Files are untrusted: all numbers are checked before pycocotools, which is written in C, gets them.
Imports no TensorFlow: it runs in many worker processes.
"""

from __future__ import annotations

import dataclasses
import marshal
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from common.constants import IGNORED_CLASS
from input_fns.image.sources.boxes import CLIPPED, NOT_FINITE, Notes

NO_MASK = "without a polygon or run lengths"
BAD_PART, TOO_LONG = "with a part that is not a polygon", "with a polygon that is too long"
NO_PIXEL = "without a pixel"
FRACTIONS = "inside the first pixel, as fractions of the image are"
# pycocotools walks along a polygon in steps of a fifth of a pixel and keeps them all in memory.
_STEPS_PER_PIXEL, _MAX_STEPS = 5, 10**7
# pycocotools leaves out what is beside the image, but walks along it, and with integers of 32 bits.
_FAR = 4  # sides of an image: further outside a polygon is cut
_LARGEST = 1e15
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
        not checked; see `pack`.
    """

    label: int
    is_crowd: bool
    segmentation: bytes


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


def pack(segmentation: Any) -> bytes:
    """Returns a value of JSON as bytes, a third of its memory, for worker processes to unpack."""
    return marshal.dumps(segmentation, 2)  # version 2: equal values have equal bytes


def unpack(segmentation: bytes) -> Any:
    """Returns the value that `pack` was given."""
    return marshal.loads(segmentation)


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
    found, shapes = [], []
    for each in objects.found:
        shape = _shape(each.segmentation, size, notes)
        if shape is not None:
            found.append(each)
            shapes.append(shape)
    texts = iter(_decompress([shape for shape in shapes if isinstance(shape, bytes)]))
    to_draw = []
    for each, shape in zip(found, shapes):
        counts = next(texts) if isinstance(shape, bytes) else shape
        area = int(counts[1::2].sum())
        if area:
            to_draw.append((not each.is_crowd, -area, each, np.cumsum(counts)))
        else:
            notes.left_out[NO_PIXEL] += 1
    columns = np.zeros(math.prod(size), np.uint8)  # one after the other, as run lengths are
    # Run by run: an image may have thousands of objects and 10^8 pixels.
    for *_, each, bounds in sorted(to_draw, key=lambda one: one[:2]):
        value = IGNORED_CLASS if each.is_crowd else each.label
        for start, end in zip(bounds[::2].tolist(), bounds[1::2].tolist()):
            columns[start:end] = value
    return np.ascontiguousarray(columns.reshape(size[::-1]).T)


def pixels(segmentation: bytes, size: tuple[int, int], notes: Notes) -> np.ndarray | None:
    """Returns the pixels of an object, bool `[height, width]`; None if it has none.

    Args:
      segmentation: see `pack`.
      size: height and width of the image.
      notes: counts of what is corrected or left out.

    Raises:
      ValueError: see `draw`.
    """
    shape = _shape(segmentation, size, notes)
    if shape is None:
        return None
    (counts,) = _decompress([shape]) if isinstance(shape, bytes) else (shape,)
    if not counts[1::2].sum():
        notes.left_out[NO_PIXEL] += 1
        return None
    flat = np.repeat(np.arange(len(counts)) % 2 == 1, counts)
    return flat.reshape(size[::-1]).T


def _shape(packed, size, notes):
    """Returns the run lengths of an object, as COCO's string or int64 `[runs]`; None without."""
    segmentation = unpack(packed)
    if isinstance(segmentation, dict) and segmentation:
        return _run_lengths(segmentation, size)
    return _encode(segmentation, size, notes)


def _encode(segmentation, size, notes):
    """Returns the pixels of polygons as COCO's string; None without a valid one."""
    polygons, is_whole = _polygons(segmentation)
    if not polygons:
        notes.left_out[NO_MASK] += 1
        return None
    if not all(all(map(math.isfinite, polygon)) for polygon in polygons):
        notes.left_out[NOT_FINITE] += 1
        return None
    if max(map(max, polygons)) <= 1:
        notes.left_out[FRACTIONS] += 1
        return None
    if not is_whole:
        notes.corrected[BAD_PART] += 1
    height, width = size
    if not all(_is_within(polygon, size) for polygon in polygons):
        notes.corrected[CLIPPED] += 1
        polygons = [
            polygon if _is_within(polygon, size, _FAR * max(size)) else _clipped(polygon, size)
            for polygon in polygons
        ]
        polygons = [polygon for polygon in polygons if polygon]
    if not polygons:
        notes.left_out[NO_PIXEL] += 1
        return None
    if _is_too_long(polygons, size):
        notes.left_out[TOO_LONG] += 1
        return None
    from pycocotools import mask as coco_mask  # an optional dependency

    encoded = coco_mask.frPyObjects(polygons, height, width)
    while len(encoded) > 1:  # in groups: one by one takes quadratic time
        groups = range(0, len(encoded), _MERGED)
        encoded = [coco_mask.merge(encoded[i : i + _MERGED]) for i in groups]
    return encoded[0]["counts"]


def _is_within(polygon, size, margin=0.0):
    """Whether a polygon reaches at most `margin` pixels out of the image."""
    xs, ys = polygon[::2], polygon[1::2]
    height, width = size
    lowest, right, bottom = min(*xs, *ys), max(xs), max(ys)
    return lowest >= -margin and right <= width + margin and bottom <= height + margin


def _clipped(polygon, size):
    """Returns the part of a polygon in the image; [] without one.

    Each border cuts off what is beyond it (Sutherland and Hodgman 1974, Reentrant Polygon
    Clipping).
    """
    polygon = np.clip(polygon, -_LARGEST, _LARGEST).tolist()  # differences are finite
    points = list(zip(polygon[::2], polygon[1::2]))
    for axis, border, sign in ((0, 0, 1), (0, size[1], -1), (1, 0, 1), (1, size[0], -1)):
        kept = []
        for before, point in zip([*points[-1:], *points[:-1]], points):
            was_inside, is_inside = (sign * (each[axis] - border) >= 0 for each in (before, point))
            if was_inside != is_inside:
                part = (border - before[axis]) / (point[axis] - before[axis])
                cut = [a + part * (b - a) for a, b in zip(before, point)]
                cut[axis] = float(border)
                kept.append(tuple(cut))
            if is_inside:
                kept.append(point)
        points = kept
    return [value for point in points for value in point] if len(points) > 2 else []


def _is_too_long(polygons, size):
    """Whether pycocotools would make more than `_MAX_STEPS` points of polygons in an image."""
    longest = (1 + 2 * _FAR) * max(size)
    if sum(map(len, polygons)) // 2 * (_STEPS_PER_PIXEL * longest + 1) <= _MAX_STEPS:
        return False
    steps = 0
    for polygon in polygons:
        points = np.array(polygon).reshape(-1, 2)
        sides = np.abs(np.diff(points, axis=0, append=points[:1])).max(axis=1)
        steps += _STEPS_PER_PIXEL * sides.sum() + len(points)
    return steps > _MAX_STEPS


def _polygons(value):
    """Returns the polygons of an object, lists x0, y0, x1, y1, ..., and whether all are valid.

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
    """Returns the numbers of at least three points, as a list; None for anything else."""
    if isinstance(value, (list, tuple)) and _has_points(value):
        value = [x for point in value for x in point]
    if not isinstance(value, (list, tuple)) or len(value) < 6 or len(value) % 2:
        return None
    types = set(map(type, value))
    if types == {float}:
        return value
    if not types <= {int, float, bool, str} or any("_" in v for v in value if isinstance(v, str)):
        return None
    try:
        return list(map(float, value))
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
        (counts,) = _decompress([counts.encode(errors="replace")])
    elif isinstance(counts, list) and set(map(type, counts)) <= {int, float}:
        # An integer may be above all floats.
        counts = np.array([max(-1, min(count, num_pixels + 1)) for count in counts], np.float64)
    else:
        counts = np.array([-1])
    is_valid = ((counts >= 0) & (counts <= num_pixels) & (counts == np.floor(counts))).all()
    if not is_valid or counts.sum() != num_pixels:
        raise ValueError(f"run lengths that do not add up to {num_pixels} pixels")
    return counts.astype(np.int64)


def _decompress(texts):
    """Returns the run lengths of each of COCO's strings, int64 `[runs]`, maybe negative.

    It is LEB128 of 5 bits in a character, differences to the last but one. Source: rleFrString in
    maskApi.c of pycocotools.
    """
    if not texts:
        return []
    ends = np.cumsum(list(map(len, texts)))
    bits = np.frombuffer(b"".join(texts), np.uint8).astype(np.int64) - 48
    lasts = np.flatnonzero(bits & 32 == 0)
    firsts = np.append(0, lasts[:-1] + 1)
    if not ((bits >= 0) & (bits < 64)).all() or (lasts - firsts >= _MAX_CHARACTERS).any():
        raise ValueError("a string of run lengths that is not COCO's")
    if not all(texts) or (bits[ends - 1] & 32).any():
        raise ValueError("a string of run lengths that ends too early")
    places = np.arange(len(bits)) - np.repeat(firsts, lasts - firsts + 1)
    counts = np.add.reduceat((bits & 31) << 5 * places, firsts)
    counts -= (bits[lasts] & 16) << 1 + 5 * (lasts - firsts)  # the sign
    found = np.split(counts, np.searchsorted(lasts, ends[:-1]))
    for each in found:
        for first in (1, 2):
            each[first::2] = np.cumsum(each[first::2])
    return found
