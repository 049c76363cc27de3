"""Objects of images from mask files with the number of an object in each pixel; 0 is background.

The class of an object is

- the class of most of its pixels in a second mask (Pascal VOC: SegmentationClass beside
  SegmentationObject);
- its number // --label_divisor (Cityscapes: 1000 * class + number); smaller numbers of a class are
  groups, which are crowds;
- or the only one of --class_names.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from common import instance_masks
from input_fns import DataError
from input_fns.convert.options import Options
from input_fns.convert.source import RawDataset
from input_fns.dataset_info import LeftOut
from input_fns.image.sources import (
    annotated_datasets,
    coco_masks,
    decoded_images,
    mask_classes,
    mask_files,
)
from input_fns.image.sources.annotated_images import Boxes
from input_fns.image.sources.boxes import OTHER_CLASS, Box, Notes
from input_fns.image.sources.mask_files import Item, Rules

VOID = 255  # of the borders between objects
_VOID_COLOR = 0xE0E0C0  # of 255 in VOC's palette
VOID_PIXELS = "pixels of the number 255, which is above all others, as borders"


@dataclasses.dataclass(frozen=True)
class _Labels:
    """Function from numbers and their pixels to classes, and what it needs.

    Attributes:
      class_names: class names in the order of the classes.
      category_ids: value of each class in the source.
      of: `(path of the mask, numbers, pixels of each) -> class of each, -1 for none, and whether
        it is a crowd`; pixels are places in the columns of the mask, one after the other.
    """

    class_names: Sequence[str]
    category_ids: Sequence[int]
    of: Callable[[str, np.ndarray, Sequence[np.ndarray], tuple[int, int]], tuple]


def to_dataset(
    options: Options,
    images: Mapping[str, Sequence[Item]],
    left_out_paths: Mapping[str, str],
    left_out: LeftOut,
    class_mask_of: Callable[[str], str] | None = None,
) -> RawDataset:
    """Returns the data set of images and their masks of numbers.

    Args:
      options: `class_names`, `mask_values`, `ignored`, `label_divisor` and `max_boxes` are used.
      images: `{split: images and paths of their masks}`.
      left_out_paths: see `annotated_datasets.with_boxes`.
      left_out: likewise.
      class_mask_of: path of the mask of classes for the path of a mask of numbers; None without.

    Raises:
      DataError: the classes are unknown, or do not fit the masks.
    """
    if class_mask_of:
        labels = _of_class_masks(options, images, class_mask_of)
    else:
        labels = _of_numbers(options)
    ignored = _ignored(options, bool(class_mask_of))
    items = [item for each in images.values() for item in each]

    def read(number, item):
        masks = [item.mask, *([class_mask_of(item.mask)] if class_mask_of else [])]
        try:
            return dataclasses.replace(_objects(item, number, labels, ignored), masks=masks)
        except Exception as error:  # Pillow's decoders raise many types of errors.
            reason = f"its mask {item.mask}: {decoded_images.reason_of(error)}"
            return Boxes(item.path, (0, 0), number, [], Notes(), reason, masks)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = iter(list(pool.map(read, range(1, 1 + len(items)), items)))
    read_images = {split: [next(found) for _ in each] for split, each in images.items()}
    return annotated_datasets.with_boxes(
        options,
        labels.class_names,
        read_images,
        labels.category_ids,
        annotated_datasets.paths_below(options.source, read_images),
        left_out=left_out,
        left_out_paths=left_out_paths,
    )


def _of_numbers(options):
    """Returns the labels of numbers alone."""
    names, divisor = options.class_names, options.label_divisor
    if not divisor:
        if len(names) != 1 or options.mask_values:
            raise DataError(
                "masks with numbers of objects need their class, as --class_names=person; of "
                "several classes --label_divisor, as 1000 for Cityscapes, with the number of each "
                "class as --mask_values"
            )
        return _Labels(names, [1], lambda path, numbers, *_: (numbers * 0, numbers < 0))
    values = options.mask_values
    if len(names) != len(values) or not names or not all(v.isdecimal() for v in values):
        raise DataError(
            f"--label_divisor={divisor} needs --class_names and --mask_values with the number of "
            f"each class, such as 24,26; there are {len(names)} names and {len(values)} values"
        )
    values = list(map(int, values))
    label_of = {value: label for label, value in enumerate(values)}

    def labels(path, numbers, *_):
        del path
        is_group = numbers < divisor
        of_class = np.where(is_group, numbers, numbers // divisor).tolist()
        return np.array([label_of.get(value, -1) for value in of_class], int), is_group

    return _Labels(names, values, labels)


def _of_class_masks(options, images, class_mask_of):
    """Returns the labels of a second mask; the first of its classes is the background."""
    rules = mask_classes.find(
        options,
        {
            split: [Item(item.path, class_mask_of(item.mask)) for item in items]
            for split, items in images.items()
        },
    )
    if rules.class_of.get(0) != 0:
        raise DataError(
            "the first of --class_names must be the background, of the value 0 or #000000"
        )
    value_of = {label: value for value, label in rules.class_of.items()}

    def labels(path, numbers, pixels, size):
        classes = _class_mask(class_mask_of(path), rules, size)
        # Of the classes only: the background and ignored pixels are at the border of objects.
        counts = [np.bincount(classes[at], minlength=256)[1:VOID] for at in pixels]
        found = [int(count.argmax()) if count.any() else -1 for count in counts]
        return np.array(found, int), numbers < 0

    names = rules.class_names[1:]
    return _Labels(names, [value_of[label] for label in range(1, 1 + len(names))], labels)


def _class_mask(path, rules: Rules, size):
    """Returns the classes of the columns of a mask, uint8 `[pixels]`."""
    classes = mask_files.read_classes(path, rules, Notes())
    if classes.shape != size:
        shapes = [f"{width} x {height}" for height, width in (classes.shape, size)]
        raise ValueError(f"{path} has {shapes[0]} pixels, and the mask of objects {shapes[1]}")
    return classes.T.ravel()


def _ignored(options, is_voc):
    """Returns the values without an object, `{whether they are colors: values}`.

    None as the numbers: 255 is one only if others are not. Names of classes are of the mask of
    classes.
    """
    if not options.ignored:
        return {False: {VOID}, True: {_VOID_COLOR}} if is_voc else {False: None, True: set()}
    found = {False: set(), True: set()}
    for entry in options.ignored:
        if not is_voc or entry.isdecimal() or entry.startswith("#"):
            value, is_color = mask_classes.parse_value("ignored", entry)
            found[is_color].add(value)
    return found


def _objects(item, number, labels, ignored):
    """Returns the `Boxes` of an image."""
    data = decoded_images.bytes_of(item.mask)
    try:
        values, without_object = mask_files.read_values(data), ignored[False]
    except mask_files.ColorsError:
        values, without_object = mask_files.read_values(data, True), ignored[True]
    notes, size = Notes(), values.shape
    columns = values.T.ravel()
    places = np.flatnonzero(columns)
    places = places[np.argsort(columns[places], kind="stable")]
    numbers, starts = np.unique(columns[places], return_index=True)
    pixels = np.split(places, starts[1:]) if len(numbers) else []
    is_object = ~np.isin(numbers, sorted(without_object or ()))
    # A border between objects, if no mask counts so far: numbers of objects are consecutive.
    if (
        without_object is None
        and len(numbers) > 1
        and numbers[-1] == VOID
        and numbers[-2] < VOID - 1
    ):
        is_object[-1] = False
        notes.corrected[VOID_PIXELS] += len(pixels[-1])
    pixels = [at for at, is_one in zip(pixels, is_object) if is_one]
    found = []
    classes, is_crowd = labels.of(item.mask, numbers[is_object], pixels, size)
    for at, label, crowd in zip(pixels, classes.tolist(), is_crowd.tolist()):
        if label >= 0:
            found.append(Box(_corners(at, size), label, crowd, float(len(at)), _outline(at, size)))
        elif not crowd:
            notes.left_out[OTHER_CLASS] += 1
    return Boxes(item.path, size, number, found, notes, item.problem)


def _corners(places, size):
    """Returns y0, x0, y1, x1 of the box around pixels, sorted places in columns."""
    rows = places % size[0]
    first, last = int(places[0]) // size[0], int(places[-1]) // size[0]
    return float(rows.min()), float(first), float(rows.max() + 1), float(last + 1)


def _outline(places, size):
    """Returns the packed run lengths of pixels, sorted places in columns."""
    breaks = np.flatnonzero(np.diff(places) != 1) + 1
    starts = places[np.append(0, breaks)]
    ends = places[np.append(breaks - 1, len(places) - 1)] + 1
    bounds = np.concatenate([[0], np.stack([starts, ends], axis=1).ravel(), [size[0] * size[1]]])
    return coco_masks.pack(instance_masks.rle_of_runs(np.diff(bounds), size))
