"""Splits of images with boxes or masks, and the data sets that they make."""

from __future__ import annotations

import collections
import dataclasses
import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from common import folders
from common.names import printable
from input_fns import DataError
from input_fns.convert import boxes, decoded_images, image_files, mask_files
from input_fns.convert.boxes import Box, Notes
from input_fns.convert.source import Broken, Options, RawDataset, Row
from input_fns.convert.writer import content_name
from input_fns.dataset_info import Annotations, Feature, LeftOut

LABELS_OF_BOXES = ("boxes", "classes", "is_crowd", "areas", "image_id")
# More boxes in one image are rather an error than objects: the rows of all examples get as long.
_MAX_BOXES = 1024
_ABOVE_MAX = "above max_boxes"


NO_SIZE = "of an image whose annotations have no size"


def size_of(path: str, options: Options, notes: Notes) -> tuple[int, int]:
    """Returns the height and width of an image file whose annotations do not state them.

    Args:
      path: local or gs://.
      options: options of the converter.
      notes: gets the reason `NO_SIZE`.

    Returns:
      (0, 0) if it cannot be read: it will not be stored.
    """
    notes.corrected[NO_SIZE] += 1
    (image,) = _reader(options)([path])
    return (0, 0) if isinstance(image, str) else (image.height, image.width)


def _reader(options):
    """Returns a function that maps paths to `decoded_images.StoredImage`s, or to reasons."""
    return functools.partial(decoded_images.read_many, image_size=None, channels=options.channels)


def _mean_file_size(items):
    """Returns the mean size in bytes of the images, from a sample."""
    sample = [item.path for item in items[:: max(1, len(items) // 1000)] if not item.problem]
    return image_files.mean_file_size(sample) if sample else 0


@dataclasses.dataclass(frozen=True)
class Boxes:
    """The boxes of an image.

    Attributes:
      path: path of the image.
      size: height and width of the image according to the annotations; (0, 0) if unknown.
      image_id: number of the image, unique in the data set.
      found: its boxes.
      notes: what was corrected and left out.
      problem: why the image cannot be stored; "" if nothing is known before it is read.
    """

    path: str
    size: tuple[int, int]
    image_id: int
    found: Sequence[Box]
    notes: Notes
    problem: str = ""

    def __str__(self) -> str:
        return self.path


@dataclasses.dataclass(frozen=True)
class ImagesWithBoxes:
    """A `RawSplit` of images with boxes.

    Attributes:
      items: `Boxes` of each image, object `[size]`.
      options: `source`, `channels` and `workers` are used.
      num_classes: number of classes.
      max_boxes: rows of boxes per example.
    """

    items: np.ndarray
    options: Options
    num_classes: int
    max_boxes: int
    labels: None = None
    groups: None = None

    def __len__(self) -> int:
        return len(self.items)

    @property
    def paths(self) -> list[str]:
        """Paths of the images."""
        return [item.path for item in self.items]

    @property
    def num_bytes(self) -> int:
        """Bytes of the images, from a sample, and of the boxes."""
        return (_mean_file_size(self.items) + 25 * self.max_boxes) * len(self)

    def take(self, indices: Sequence[int]) -> ImagesWithBoxes:
        """Returns the split of these examples, in the order of the indices."""
        return dataclasses.replace(self, items=self.items[indices])

    def __iter__(self) -> Iterator[Row | Broken]:
        whole = [item.path for item in self.items if not item.problem]
        images = image_files.each(_reader(self.options), whole, self.options.workers)
        for item in self.items:
            try:
                image = item.problem or next(images)[1]
                if isinstance(image, str):
                    raise ValueError(image)
                yield self._row(item, image)
            except ValueError as error:
                yield Broken(printable(item.path), str(error))

    def _row(self, item, image):
        found = boxes.pack(item.found, self.max_boxes)
        size, count = (image.height, image.width), len(item.found)
        notes = item.notes.copy()
        if boxes.must_turn(item.size, size, image.orientation):
            found["boxes"][:count] = boxes.turned(
                found["boxes"][:count], item.size, image.orientation
            )
            notes.corrected[boxes.TURNED] += count
        row = image_files.to_row(
            image, self.options.channels, image_files.name_in(self.options.source, item.path)
        )
        found["image_id"] = np.array(item.image_id, np.int64)
        values = {
            name: array.astype(array.dtype.newbyteorder("<")) for name, array in found.items()
        }
        features = {
            name: Feature("raw", array.dtype.name, array.shape) for name, array in found.items()
        }
        return dataclasses.replace(
            row,
            values={**row.values, **{name: array.tobytes() for name, array in values.items()}},
            features={**row.features, **features},
            counts=np.bincount(found["classes"][:count], minlength=self.num_classes),
            notes=notes,
        )


@dataclasses.dataclass(frozen=True)
class ImagesWithMasks:
    """A `RawSplit` of images with masks.

    Attributes:
      items: `mask_files.Item` of each image, object `[size]`.
      options: `source`, `channels` and `workers` are used.
      rules: how to read the masks.
    """

    items: np.ndarray
    options: Options
    rules: mask_files.Rules
    labels: None = None
    groups: None = None

    def __len__(self) -> int:
        return len(self.items)

    @property
    def paths(self) -> list[str]:
        """Paths of the images and of the files of masks."""
        masks = [item.mask for item in self.items if isinstance(item.mask, str)]
        return [*(item.path for item in self.items), *masks]

    @property
    def num_bytes(self) -> int:
        """Bytes of the images, from a sample; masks are small."""
        return _mean_file_size(self.items) * len(self)

    def take(self, indices: Sequence[int]) -> ImagesWithMasks:
        """Returns the split of these examples, in the order of the indices."""
        return dataclasses.replace(self, items=self.items[indices])

    def __iter__(self) -> Iterator[Row | Broken]:
        channels = self.options.channels
        read = functools.partial(
            mask_files.read_many, rules=self.rules, read_images=_reader(self.options)
        )
        items = list(self.items)
        for item, result in image_files.each(read, items, self.options.workers):
            if isinstance(result, str):
                yield Broken(printable(item.path), result)
                continue
            image, mask = result
            row = image_files.to_row(
                image, channels, image_files.name_in(self.options.source, item.path)
            )
            feature = Feature("png", "uint8", (image.height, image.width, 1))
            yield dataclasses.replace(
                row,
                values={**row.values, "mask": mask.png},
                features={**row.features, "mask": feature},
                counts=mask.counts,
                notes=mask.notes,
            )


def with_boxes(
    options: Options,
    class_names: Sequence[str],
    images: Mapping[str, Sequence[Boxes]],
    category_ids: Sequence[int | str],
    image_ids: Sequence[int | str] = (),
    left_out: LeftOut | None = None,
    left_out_paths: Mapping[str, str] = MappingProxyType({}),
) -> RawDataset:
    """Returns a data set for detection.

    Args:
      options: options of the converter.
      class_names: class names in the order of the classes.
      images: `{split: images}`.
      category_ids: the id of each class in the source, for files of detections.
      image_ids: the id in the source of the images 1, 2, ...; () if their numbers are these ids.
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
    left_out = left_out or LeftOut()
    _require_boxes(options, images, left_out)
    splits = {
        split: ImagesWithBoxes(_objects(items), options, len(class_names), max_boxes)
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
        labels=LABELS_OF_BOXES,
        properties=properties,
        annotations=_annotations("detection", class_names, max_boxes),
        left_out=left_out,
        left_out_paths=dict(left_out_paths),
    )


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
    left_out: LeftOut | None = None,
    left_out_paths: Mapping[str, str] = MappingProxyType({}),
) -> RawDataset:
    """Returns a data set for segmentation; see `with_boxes`."""
    _require_one_split(images)
    return RawDataset(
        options.dataset,
        (),
        {
            split: ImagesWithMasks(_objects(items), options, rules)
            for split, items in images.items()
        },
        labels=("mask",),
        annotations=_annotations("segmentation", rules.class_names, 0),
        left_out=left_out or LeftOut(),
        left_out_paths=dict(left_out_paths),
    )


def _annotations(task, class_names, max_boxes):
    """Returns metadata without counts: the writer counts what it stores."""
    return Annotations(task, tuple(class_names), max_boxes, {})


def _objects(items):
    found = np.empty([len(items)], object)
    found[:] = items
    return found
