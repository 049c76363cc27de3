"""Images with the text files of YOLO: boxes, and outlines of objects as polygons.

    SOURCE/data.yaml     SOURCE/images/SPLIT/*.jpg   SOURCE/labels/SPLIT/*.txt   Ultralytics, CVAT
    SOURCE/data.yaml     SOURCE/SPLIT/images/*.jpg   SOURCE/SPLIT/labels/*.txt   Roboflow
    SOURCE/classes.txt   SOURCE/images/*.jpg         SOURCE/labels/*.txt         Label Studio
    SOURCE/classes.txt   SOURCE/*.jpg                SOURCE/*.txt                LabelImg
    SOURCE/obj.names     SOURCE/obj_train_data/*     SOURCE/train.txt            CVAT, darknet

A line is "class x y width height", the center and the size of a box, or "class x1 y1 x2 y2 ...", a
polygon, in fractions of the width and the height of the upright image.
"""

from __future__ import annotations

import collections
import importlib.util
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from common.constants import IGNORED_CLASS, INSTANCES
from common.names import printable
from input_fns import DataError
from input_fns.convert.files import read_lines
from input_fns.convert.options import Options
from input_fns.convert.source import RawDataset
from input_fns.dataset_info import LeftOut
from input_fns.image.sources import (
    annotated_datasets,
    boxes,
    coco_masks,
    decoded_images,
    yolo_files,
)
from input_fns.image.sources.annotated_images import Boxes
from input_fns.image.sources.boxes import Box, Notes
from input_fns.image.sources.coco_masks import Object, Objects
from input_fns.image.sources.mask_files import Item, Rules

_BACKGROUND = "background"
_NO_TEXT = "images without a text file, as images without objects"
_BAD_LINE, _REPEATED = "lines that are neither a box nor a polygon", "lines that occur twice"
_PIXELS = "with numbers above 2: pixels, not fractions of the image"
_BOX = 4  # numbers of a box; a polygon has six or more
_MAX_FRACTION = 2.0  # a center beside the image is an error of a few pixels


def read(options: Options) -> RawDataset:
    """Returns the data set of `options.task`, one of `common.constants.ANNOTATION_TASKS`.

    Raises:
      DataError: there are no text files, a file is invalid, or a class has no name.
    """
    masks = options.task == "segmentation"
    if options.task != "detection" and not importlib.util.find_spec("pycocotools"):
        raise DataError(
            f"--task={options.task} of yolo needs pycocotools: pip install '.[detection]'"
        )
    left_out = LeftOut()
    layout = yolo_files.find(options, left_out)
    rows = {path: _rows(path, layout.has_keypoints) for path in layout.label_of.values()}
    names, class_of = _classes(layout, rows, options)
    numbers = itertools.count(1)
    make = _objects if masks else _boxes
    images = {
        split: [
            make(path, next(numbers), rows.get(layout.label_of.get(path)), class_of, options)
            for path in paths
        ]
        for split, paths in layout.images.items()
    }
    if masks:
        rules = Rules((_BACKGROUND, *names))
        return annotated_datasets.with_masks(options, rules, images, left_out, layout.unused)
    return annotated_datasets.with_boxes(
        *(options, names, images, list(class_of)),
        image_ids=annotated_datasets.paths_below(options.source, images),
        left_out=left_out,
        left_out_paths=layout.unused,
    )


def _rows(path, has_keypoints) -> tuple[list[tuple[int, Sequence[float]]], Notes]:
    """Returns the class and the numbers of each line of a text file, and what was left out."""
    found: dict[tuple, None] = {}
    notes = Notes()
    for line in read_lines(path):
        words = line.split()
        if not words:
            continue
        try:
            label, *values = map(float, words)
        except ValueError:
            label, values = math.nan, []
        if has_keypoints:
            values = values[:_BOX]
        is_polygon = len(values) > _BOX and len(values) % 2 == 0
        if not label.is_integer() or label < 0 or not (len(values) == _BOX or is_polygon):
            notes.left_out[_BAD_LINE] += 1
        elif not all(map(math.isfinite, values)):
            notes.left_out[boxes.NOT_FINITE] += 1
        elif any(value > _MAX_FRACTION for value in values):
            notes.left_out[_PIXELS] += 1
        elif (key := (int(label), *values)) in found:
            notes.left_out[_REPEATED] += 1
        else:
            found[key] = None
    return [(label, values) for label, *values in found], notes


def _classes(layout, rows, options) -> tuple[tuple[str, ...], Mapping[int, int]]:
    """Returns the class names, and `{number in the text files: class}` in the order of the classes.

    Raises:
      DataError: a number has no name, a name of --class_names is unknown, or there are too many.
    """
    used = {label: path for path, (found, _) in rows.items() for label, _ in found}
    names = layout.names or dict(enumerate(options.class_names))
    where = printable(layout.names_path) if layout.names else "--class_names"
    if not names:
        raise DataError(
            f"--source={options.source} has no names of the classes 0 to {max(used, default=0)}: "
            "no YAML with 'names', classes.txt, obj.names or _darknet.labels. Set --class_names"
        )
    unnamed = next((label for label in used if label not in names), None)
    if unnamed is not None:
        raise DataError(
            f"{printable(used[unnamed])} has an object of class {unnamed}, but {where} has the "
            f"classes {min(names)} to {max(names)}"
        )
    number_of = {name: number for number, name in names.items()}
    unknown = [name for name in options.class_names if name not in number_of]
    if unknown:
        raise DataError(
            f"--class_names: {unknown[0]!a} is not in {where}, which has {', '.join(number_of)}"
        )
    kept = options.class_names or tuple(number_of)
    if options.task == "segmentation":
        kept = tuple(name for name in kept if name != _BACKGROUND)
        if len(kept) >= IGNORED_CLASS:
            raise DataError(f"{len(kept)} classes and the background; masks hold {IGNORED_CLASS}")
    first = 1 if options.task == "segmentation" else 0
    return kept, {number_of[name]: i for i, name in enumerate(kept, first)}


def _outlines(
    rows: Sequence[tuple[int, Sequence[float]]],
    size: tuple[int, int],
    class_of: Mapping[int, int],
    notes: Notes,
) -> Iterator[tuple[int, Sequence[float], list[float]]]:
    """Yields class, corners y0, x0, y1, x1 and the polygon x, y, ... of each object, in pixels.

    The polygon of a box is empty.
    """
    height, width = size
    for label, values in rows:
        if label not in class_of:
            notes.left_out[boxes.OTHER_CLASS] += 1
            continue
        xs = [value * width for value in values[::2]]
        ys = [value * height for value in values[1::2]]
        polygon = [number for point in zip(xs, ys) for number in point]
        corners = (min(ys), min(xs), max(ys), max(xs))
        if len(values) == _BOX:
            (x, w), (y, h), polygon = xs, ys, []
            corners = (y - h / 2, x - w / 2, y + h / 2, x + w / 2)
        yield class_of[label], corners, polygon


def _start(path, labelled):
    """Returns rows, notes, and the size of an image, (0, 0) if it cannot be read."""
    rows, notes = labelled or ([], Notes(corrected=collections.Counter([_NO_TEXT])))
    notes = notes.copy()  # a.jpg and a.png have one text file
    return rows, notes, decoded_images.upright_size(path) if rows else (0, 0)


def _boxes(path, number, labelled, class_of, options):
    rows, notes, size = _start(path, labelled)
    found = []
    for label, corners, polygon in _outlines(rows, size, class_of, notes) if any(size) else ():
        corners = boxes.fix(corners, size, notes)
        if corners is None:
            continue
        outline, area = b"", boxes.area_of(corners)
        if options.task == INSTANCES:
            outline, area = coco_masks.pack([polygon] if polygon else []), boxes.AREA_OF_MASK
        found.append(Box(corners, label, False, area, outline))
    return Boxes(path, size, number, found, notes)


def _objects(path, number, labelled, class_of, options):
    del number, options
    rows, notes, size = _start(path, labelled)
    found = [
        Object(label, False, coco_masks.pack([polygon] if polygon else []))
        for label, _, polygon in (_outlines(rows, size, class_of, notes) if any(size) else ())
    ]
    return Item(path, Objects(size, found, notes))
