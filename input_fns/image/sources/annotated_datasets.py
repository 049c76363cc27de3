"""Data sets of images with boxes or masks, from their splits."""

from __future__ import annotations

import collections
import dataclasses
import json
from collections.abc import Mapping, Sequence

import numpy as np

from common import folders
from common.constants import INSTANCES
from common.names import printable
from input_fns import DataError
from input_fns.convert.options import Options
from input_fns.convert.source import RawDataset, content_name
from input_fns.dataset_info import LeftOut
from input_fns.image.annotated_kind import Annotations, box_labels
from input_fns.image.sources import boxes, mask_files
from input_fns.image.sources.annotated_images import Boxes, ImagesWithBoxes, ImagesWithMasks
from input_fns.image.sources.image_files import name_in
from input_fns.image.sources.instances import ImagesWithInstances

# More boxes in one image are rather an error than objects: the rows of all examples get as long.
_MAX_BOXES = 1024
_ABOVE_MAX = "above max_boxes"


def with_boxes(
    options: Options,
    class_names: Sequence[str],
    images: Mapping[str, Sequence[Boxes]],
    category_ids: Sequence[int | str],
    image_ids: Sequence[int | str] = (),
    *,
    left_out: LeftOut,
    left_out_paths: Mapping[str, str],
) -> RawDataset:
    """Returns a data set with boxes, of `options.task`. The writer counts what it stores.

    Args:
      options: options of the converter.
      class_names: class names in the order of the classes.
      images: `{split: images}`.
      category_ids: the id of each class in the source, for files of detections.
      image_ids: the id in the source of the images 1, 2, ..., or their names by `paths_below`;
        () if their numbers are these ids.
      left_out: annotations that belong to no image.
      left_out_paths: `{path: reason}` of files that are not used.

    Raises:
      DataError: "train" has no box, or an image has too many.
    """
    _require_one_split(images)
    max_boxes, most = 1, None
    for item in (item for items in images.values() for item in items):
        if len(item.found) > max_boxes:
            max_boxes, most = len(item.found), item
    if options.max_boxes:
        max_boxes = options.max_boxes
        images = {
            split: [_limited(item, max_boxes) for item in items] for split, items in images.items()
        }
    elif max_boxes > _MAX_BOXES:
        raise DataError(
            f"{printable(most.path)} has {max_boxes} boxes, and all images get as many rows. "
            "Set --max_boxes to keep the largest ones of each image"
        )
    _require_boxes(options, images, left_out)
    task = INSTANCES if options.task == INSTANCES else "detection"
    make = ImagesWithInstances if task == INSTANCES else ImagesWithBoxes
    splits = {
        split: make(_objects(items), options, len(class_names), max_boxes)
        for split, items in images.items()
    }
    files, properties = {}, {"category_ids": list(category_ids)}
    if image_ids:
        content = json.dumps(list(image_ids)).encode()
        properties["image_ids"] = content_name("image_ids.json", content)
        files = {properties["image_ids"]: content}
    return RawDataset(
        options.dataset,
        (),
        splits,
        files=files,
        labels=tuple(box_labels(task, max_boxes)),
        properties=properties,
        kind=Annotations(task, tuple(class_names), max_boxes, {}),
        left_out=left_out,
        left_out_paths=dict(left_out_paths),
    )


def paths_below(source: str, images: Mapping[str, Sequence[Boxes]]) -> list[int | str]:
    """Returns the path below the source of each image, or its number if it cannot be stored."""
    return [
        item.image_id if item.problem else name_in(source, item.path)
        for items in images.values()
        for item in items
    ]


def _require_boxes(options, images, left_out):
    """Checks that "train" has a box."""
    if "train" not in images or any(item.found for item in images["train"]):
        return
    reasons = sum((item.notes.left_out for item in images["train"]), collections.Counter())
    reasons.update(left_out.counts)
    listed = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
    hint = ""
    if boxes.EMPTY in reasons:
        hint = ". Coordinates must be pixels, not fractions of the image"
    skipped = [item for item in images["train"] if item.problem]
    if skipped:
        hint += f"; {len(skipped)} images are skipped, the first is {printable(skipped[0].path)}: "
        hint += skipped[0].problem
    raise DataError(
        f"no image of the split 'train' of {options.source} has a valid box; left out: "
        f"{listed or 'nothing'}{hint}"
    )


def _require_one_split(images):
    """Checks that no image is in two splits, which would train on what is evaluated."""
    seen: dict[object, tuple[str, str]] = {}
    for split, items in images.items():
        for item in items:
            if item.problem:
                continue
            first, path = seen.setdefault(folders.identity(item.path), (split, item.path))
            if first != split:
                raise DataError(
                    f"{printable(item.path)} is in the split '{split}', and as {printable(path)} "
                    f"in '{first}'"
                )


def _limited(item, max_boxes):
    if len(item.found) <= max_boxes:
        return item
    item.notes.left_out[_ABOVE_MAX] += len(item.found) - max_boxes
    return dataclasses.replace(item, found=boxes.largest(item.found, max_boxes))


def with_masks(
    options: Options,
    rules: mask_files.Rules,
    images: Mapping[str, Sequence[mask_files.Item]],
    left_out: LeftOut,
    left_out_paths: Mapping[str, str],
) -> RawDataset:
    """Returns a data set for segmentation; see `with_boxes`."""
    _require_one_split(images)
    splits = {
        split: ImagesWithMasks(_objects(items), options, rules) for split, items in images.items()
    }
    return RawDataset(
        options.dataset,
        (),
        splits,
        labels=("mask",),
        kind=Annotations("segmentation", rules.class_names, 0, {}),
        left_out=left_out,
        left_out_paths=dict(left_out_paths),
    )


def _objects(items):
    found = np.empty([len(items)], object)
    found[:] = items
    return found
