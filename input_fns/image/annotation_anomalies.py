"""Boxes and masks of images."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from common.constants import CLIPPED, IGNORED_CLASS
from input_fns.anomalies.sample import MANY, MOST, SOME, Anomaly, Sample, listed, without
from input_fns.dataset_info import DatasetInfo


def of_counts(data: DatasetInfo) -> Iterator[Anomaly]:
    """Yields anomalies of the boxes or pixels of each split, which dataset.json counts."""
    has_boxes = data.kind.has_boxes
    stored = sum(sum(found.counts) for found in data.kind.splits.values())
    for reason, count in data.left_out.counts.items():
        if has_boxes and reason.startswith("annotations ") and count > MANY * (stored + count):
            yield Anomaly(f"{count} {reason} are left out, {stored} boxes are stored")
    for split, found in data.kind.splits.items():
        yield from (_of_boxes if has_boxes else _of_pixels)(data, split, found)


def _of_boxes(data, split, found):
    total = sum(found.counts)
    if not total:
        yield Anomaly(f"'{split}' has no box{_reasons(found)}", is_error=split == "train")
        return
    missing = _missing(data, found)
    if missing and split == "train":
        yield without(missing, "box")
    for reason, count in found.left_out.items():
        if count > MANY * (total + count):
            yield Anomaly(f"{count} boxes of '{split}' are left out, {total} are stored: {reason}")
    clipped = found.corrected.get(CLIPPED, 0)
    if clipped > MANY * total:
        yield Anomaly(
            f"{clipped} of {total} boxes of '{split}' reached out of their image. They may be of "
            "another size of it, have x and y swapped, or be corners instead of width and height",
        )


def _of_pixels(data, split, found):
    names, missing = data.kind.class_names, _missing(data, found)
    if len(missing) == len(names):
        yield Anomaly(
            f"'{split}' has no pixel of a class: all are ignored{_reasons(found)}",
            is_error=split == "train",
        )
    elif len(missing) == len(names) - 1:
        (only,) = (name for name in names if name not in missing)
        yield Anomaly(
            f"all pixels of '{split}' have the class '{only}' or are ignored, and none "
            f"{listed(missing)}{_reasons(found)}",
            is_error=split == "train",
        )
    elif missing and split == "train":
        yield without(missing, "pixel")


def _missing(data, found):
    return [name for name, count in zip(data.kind.class_names, found.counts) if not count]


def _reasons(found):
    return "".join(f"; left out: {count} {reason}" for reason, count in found.left_out.items())


def of_boxes(sample: Sample) -> Iterator[Anomaly]:
    """Yields boxes that are all crowds, or whose coordinates seem to be fractions."""
    is_box = sample.values("classes") >= 0
    boxes, crowd = sample.values("boxes")[is_box], sample.values("is_crowd")[is_box]
    if not len(boxes):
        return
    if crowd.mean() > MOST:
        share = f"all {len(boxes)}" if crowd.all() else f"{crowd.mean():.0%} of the"
        yield Anomaly(
            f"{share} boxes of {sample.where} are a crowd (iscrowd=1) or difficult, which are "
            "neither trained on nor evaluated. If they are single objects, set iscrowd or "
            "<difficult> to 0: CVAT writes iscrowd=1 for masks",
            is_error=bool(crowd.all()) and sample.is_train,
        )
    # Fractions of the image are all in its first pixel. The center, width and height of YOLO, read
    # as the corner and the size, reach into the second one.
    tiny = ((boxes[:, 2:] - boxes[:, :2]) < 1).all(axis=1)
    first = (boxes <= 1).all(axis=1) | tiny & (boxes <= 2).all(axis=1)
    if first.mean() > MANY:
        place = "first pixel" if (boxes[first] <= 1).all() else "first two pixels"
        yield Anomaly(
            f"{first.mean():.0%} of the boxes of {sample.where} are inside the {place} of "
            "their image: their coordinates may be fractions. Write them in pixels",
            is_error=sample.is_train,
        )
    elif tiny.mean() > SOME:
        yield Anomaly(f"{tiny.mean():.0%} of the boxes of {sample.where} are smaller than a pixel")


def of_masks(sample: Sample) -> Iterator[Anomaly]:
    """Yields masks that are ignored but for a few pixels."""
    masks = sample.few().pixels("mask")
    shares = [(mask == IGNORED_CLASS).mean() for mask in masks if mask is not None]
    if shares and MOST < np.mean(shares) < 1:
        yield Anomaly(f"{np.mean(shares):.1%} of the pixels of {sample.where} are ignored")
