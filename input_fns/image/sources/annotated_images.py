"""Splits of images with boxes or masks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from common.names import printable
from input_fns.convert.options import Options
from input_fns.convert.source import Broken, RawSplit, Row
from input_fns.dataset_info import Feature
from input_fns.image.sources import boxes, decoded_images, image_files, mask_files
from input_fns.image.sources.boxes import Box, Notes

NO_SIZE = "of an image whose annotations have no size"


def size_of(path: str, options: Options, notes: Notes) -> tuple[int, int]:
    """Returns the height and width of an image file whose annotations do not state them.

    (0, 0) if it cannot be read: it will not be stored. `notes` gets the reason `NO_SIZE`.
    """
    notes.corrected[NO_SIZE] += 1
    image = _read_image(path, options)
    return (0, 0) if isinstance(image, str) else (image.height, image.width)


def _read_image(path, options):
    """Returns a `decoded_images.StoredImage`, or why there is none."""
    return decoded_images.read_file(path, None, options.channels, options.pixel_range)


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
      masks: paths of the files with its objects, if each image has such files.
    """

    path: str
    size: tuple[int, int]
    image_id: int
    found: Sequence[Box]
    notes: Notes
    problem: str = ""
    masks: Sequence[str] = ()

    def __str__(self) -> str:
        return self.path


class _AnnotatedImages(RawSplit):
    """A split of `items` with a `path` and a `problem`; `_row` returns the row of one."""

    KEYS = ("items",)

    def read(self, i: int) -> Row | Broken:
        """Reads and checks an image and its annotations."""
        item = self.items[i]
        image = item.problem or _read_image(item.path, self.options)
        if isinstance(image, str):
            return Broken(printable(item.path), image)
        try:
            return self._row(item, image)
        except ValueError as error:
            return Broken(printable(item.path), str(error))


@dataclasses.dataclass(frozen=True)
class ImagesWithBoxes(_AnnotatedImages):
    """A split of images with boxes.

    Attributes:
      items: `Boxes` of each image, object `[size]`.
      options: `source`, `channels` and `pixel_range` are used.
      num_classes: number of classes.
      max_boxes: rows of boxes per example.
    """

    items: np.ndarray
    options: Options
    num_classes: int
    max_boxes: int

    @property
    def paths(self) -> list[str]:
        """Paths of the images and of the files with their objects."""
        return [path for item in self.items for path in (item.path, *item.masks)]

    @property
    def num_bytes(self) -> int:
        """Bytes of the images, from a sample, and of the boxes."""
        return (_mean_file_size(self.items) + 25 * self.max_boxes) * len(self)

    def _row(self, item, image):
        return self._boxes_row(item, image, item.found, item.notes.copy())

    def _boxes_row(self, item, image, objects, notes):
        """Returns the row of an image with these `Box`es of `item`."""
        found = boxes.pack(objects, self.max_boxes)
        size, count = (image.height, image.width), len(objects)
        if boxes.must_turn(item.size, size, image.orientation):
            found["boxes"][:count] = boxes.turned(
                found["boxes"][:count], item.size, image.orientation
            )
            notes.corrected[boxes.TURNED] += count
        row = image_files.to_row(image, self.options, item.path)
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
class ImagesWithMasks(_AnnotatedImages):
    """A split of images with masks.

    Attributes:
      items: `mask_files.Item` of each image, object `[size]`.
      options: `source`, `channels` and `pixel_range` are used.
      rules: how to read the masks.
    """

    items: np.ndarray
    options: Options
    rules: mask_files.Rules

    @property
    def paths(self) -> list[str]:
        """Paths of the images and of the files of masks."""
        masks = [item.mask for item in self.items if isinstance(item.mask, str)]
        return [*(item.path for item in self.items), *masks]

    @property
    def num_bytes(self) -> int:
        """Bytes of the images, from a sample; masks are small."""
        return _mean_file_size(self.items) * len(self)

    def _row(self, item, image):
        row = image_files.to_row(image, self.options, item.path)
        mask = mask_files.read_mask(item.mask, image, self.rules)
        feature = Feature("png", "uint8", (image.height, image.width, 1))
        return dataclasses.replace(
            row,
            values={**row.values, "mask": mask.png},
            features={**row.features, "mask": feature},
            counts=mask.counts,
            notes=mask.notes,
        )
