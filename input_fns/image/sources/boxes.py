"""Boxes of objects: corrects or leaves out the invalid ones, counts and packs the others.

Coordinates are continuous: pixel i reaches from i to i + 1. Imports no TensorFlow.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from common.constants import CLIPPED
from common.names import counted
from input_fns.image.annotated_kind import Annotations, AnnotationsSplit
from input_fns.image.sources.decoded_images import TRANSPOSED

# Thinner boxes have no pixel, and the logarithm of their size would dominate a loss.
MIN_SIDE = 0.1
_CLIPPED_PIXELS = 0.5  # that a box must lose to be counted
# Reasons in dataset.json.
SWAPPED, NO_AREA = "with swapped corners", "without a valid area"
NOT_FINITE, EMPTY, OUTSIDE = "not finite", "of zero width or height", "outside of the image"
TURNED = "turned by EXIF orientation"
OTHER_CLASS = "of a class that is not in --class_names"
# EXIF orientations that transpose an image, then mirror it horizontally or vertically.
_MIRRORED, _FLIPPED = (2, 3, 6, 7), (3, 4, 7, 8)


@dataclasses.dataclass
class Notes:
    """Counts of annotations that were corrected or left out, by reason."""

    corrected: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    left_out: collections.Counter = dataclasses.field(default_factory=collections.Counter)

    def copy(self) -> Notes:
        """Returns a copy that can be changed."""
        return Notes(self.corrected.copy(), self.left_out.copy())


class Counts:
    """Adds up the annotations of the rows of a split, as they are written."""

    # Names to print for each reason.
    _SHOWN = 3

    def __init__(self, annotations: Annotations, left_out: Mapping[str, int] | None = None):
        """Starts with the annotations that have no image, `{reason: number}`."""
        self._kind, self._names = annotations, annotations.class_names
        self._counts = np.zeros([annotations.num_classes], np.int64)
        self._num_images = 0
        self._notes = Notes(left_out=collections.Counter(left_out or {}))
        self._examples: dict[str, list[str]] = {}

    def add(self, row) -> None:
        """Adds a `source.Row` that is stored."""
        named = {reason: [row.name] for reason in (*row.notes.corrected, *row.notes.left_out)}
        self._add(1, row.counts, row.notes, named)

    def update(self, other: Counts) -> None:
        """Adds the counts of the next rows."""
        self._add(other._num_images, other._counts, other._notes, other._examples)

    def _add(self, num_images, counts, notes, examples):
        self._num_images += num_images
        self._counts += counts
        self._notes.corrected.update(notes.corrected)
        self._notes.left_out.update(notes.left_out)
        for reason, named in examples.items():
            self._examples[reason] = [*self._examples.get(reason, ()), *named][: self._SHOWN]

    @property
    def examples(self) -> dict[str, list[str]]:
        """Names of some images, by the reason why an annotation was corrected or left out."""
        return self._examples

    def restore(self, found: AnnotationsSplit, examples: Mapping[str, list[str]]) -> None:
        """Adds the counts of rows that were written before."""
        notes = Notes(collections.Counter(found.corrected), collections.Counter(found.left_out))
        self._add(found.num_images, np.array(found.counts, np.int64), notes, examples)

    def as_split(self) -> AnnotationsSplit:
        """Returns the metadata of the split."""
        return AnnotationsSplit(
            self._num_images,
            tuple(self._counts.tolist()),
            dict(sorted(self._notes.corrected.items())),
            dict(sorted(self._notes.left_out.items())),
        )

    def lines(self) -> Iterator[str]:
        """Yields lines to print: counts, first images of each reason, classes without objects."""
        described = self.as_split()
        yield described.describe(self._kind.task)
        for reason in (*described.corrected, *described.left_out):
            if reason in self._examples:
                yield f"{reason}, for example: {', '.join(self._examples[reason])}"
        empty = [name for name, count in zip(self._names, described.counts) if not count]
        if empty:
            what = "box" if self._kind.has_boxes else "pixel"
            classes = counted(len(empty), "class", "classes")
            yield f"{classes} without a {what}: {', '.join(empty[:20])}"


AREA_OF_MASK = 0.0  # stands for the number of pixels of its mask


@dataclasses.dataclass(frozen=True)
class Box:
    """A valid box.

    Attributes:
      corners: y0, x0, y1, x1 in pixels of the image.
      label: class.
      is_crowd: whether it is not trained on: a crowd (COCO) or difficult (VOC).
      area: area of the object in pixels; `AREA_OF_MASK` of an object with an outline.
      outline: polygons or run lengths of the object, see `coco_masks.pack`; b"" without a mask.
    """

    corners: tuple[float, float, float, float]
    label: int
    is_crowd: bool
    area: float
    outline: bytes = b""


def fix(
    corners: Sequence[float], size: tuple[float, float], notes: Notes, origin: float = 0.0
) -> tuple[float, float, float, float] | None:
    """Returns a valid box, or None if nothing is left of it; counts what it does in `notes`.

    Args:
      corners: y0, x0, y1, x1; of any order, inside or outside of the image, finite or not.
      size: height and width of the image.
      notes: counts.
      origin: subtracted from y0 and x0: 1 if corners are numbers of pixels and the first one is 1;
        a box of equal corners is a pixel then.
    """
    if not all(map(math.isfinite, corners)):
        notes.left_out[NOT_FINITE] += 1
        return None
    y0, x0, y1, x1 = corners
    is_swapped = y0 > y1 or x0 > x1
    y0, y1, x0, x1 = min(y0, y1) - origin, max(y0, y1), min(x0, x1) - origin, max(x0, x1)
    if y1 - y0 < MIN_SIDE or x1 - x0 < MIN_SIDE:
        notes.left_out[EMPTY] += 1
        return None
    if is_swapped:
        notes.corrected[SWAPPED] += 1
    height, width = size
    inside = (max(y0, 0.0), max(x0, 0.0), min(y1, height), min(x1, width))
    if inside[2] - inside[0] < MIN_SIDE or inside[3] - inside[1] < MIN_SIDE:
        notes.left_out[OUTSIDE] += 1
        return None
    # Annotation tools round fractions: less is not a fault.
    if max(abs(a - b) for a, b in zip(inside, (y0, x0, y1, x1))) >= _CLIPPED_PIXELS:
        notes.corrected[CLIPPED] += 1
    return inside


def area_of(corners: Sequence[float]) -> float:
    """Returns the area of y0, x0, y1, x1."""
    y0, x0, y1, x1 = corners
    return (y1 - y0) * (x1 - x0)


def largest(found: Sequence[Box], count: int) -> list[Box]:
    """Returns the `count` boxes of the largest areas, in their order."""
    by_area = sorted(range(len(found)), key=lambda i: -area_of(found[i].corners))
    return [found[i] for i in sorted(by_area[:count])]


def turned(corners: np.ndarray, size: tuple[int, int], orientation: int) -> np.ndarray:
    """Returns boxes `[n, 4]` of a stored image, for the image with its EXIF orientation applied.

    Args:
      corners: y0, x0, y1, x1, float32 `[n, 4]`.
      size: height and width of the stored image.
      orientation: 1 to 8.
    """
    (height, width), (y0, x0, y1, x1) = size, np.split(corners, 4, axis=1)
    if orientation in TRANSPOSED:
        (height, width), (y0, x0, y1, x1) = (width, height), (x0, y0, x1, y1)
    if orientation in _MIRRORED:
        x0, x1 = width - x1, width - x0
    if orientation in _FLIPPED:
        y0, y1 = height - y1, height - y0
    return np.concatenate([y0, x0, y1, x1], axis=1)


def turned_mask(mask: np.ndarray, orientation: int) -> np.ndarray:
    """Returns a mask `[height, width]` of a stored image, with its EXIF orientation applied."""
    mask = mask.T if orientation in TRANSPOSED else mask
    mask = mask[:, ::-1] if orientation in _MIRRORED else mask
    return mask[::-1] if orientation in _FLIPPED else mask


def must_turn(declared: tuple[int, int], upright: tuple[int, int], orientation: int) -> bool:
    """Returns whether annotations refer to the image before its EXIF orientation was applied.

    Args:
      declared: height and width of the image that the annotations state; (0, 0) if unknown.
      upright: height and width of the image with its orientation applied.
      orientation: EXIF orientation of the file, 1 to 8.

    Raises:
      ValueError: the annotations state another size.
    """
    # Most tools that draw annotations apply the orientation, so that is what a size means that
    # does not tell: of a square image, or of one turned by 180 degrees.
    if declared in ((0, 0), upright):
        return False
    if orientation in TRANSPOSED and declared == upright[::-1]:
        return True
    raise ValueError(
        f"it has {upright[1]} x {upright[0]} pixels (width x height), and its annotations are of "
        f"{declared[1]} x {declared[0]}"
    )


def pack(found: Iterable[Box], num_rows: int) -> dict[str, np.ndarray]:
    """Returns boxes as `[num_rows, ...]` arrays; padding has class -1 and zeros."""
    found = list(found)
    boxes = np.zeros([num_rows, 4], np.float32)
    classes = np.full([num_rows], -1, np.int32)
    is_crowd = np.zeros([num_rows], np.uint8)
    areas = np.zeros([num_rows], np.float32)
    if found:
        count = len(found)
        boxes[:count] = [box.corners for box in found]
        classes[:count] = [box.label for box in found]
        is_crowd[:count] = [box.is_crowd for box in found]
        areas[:count] = [box.area for box in found]
    return {"boxes": boxes, "classes": classes, "is_crowd": is_crowd, "areas": areas}
