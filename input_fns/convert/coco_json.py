"""Images and objects in the JSON of COCO: boxes, polygons and run lengths."""

from __future__ import annotations

import collections
import dataclasses
import posixpath
from collections.abc import Iterator
from typing import Any

from common import names
from input_fns import DataError
from input_fns.convert.files import read_text
from input_fns.json_fields import Fields, integer, items, loads

NO_IMAGE = "of an image that is not in the file"
REPEATED, SAME_ID = "that occur twice", "with the id of another one"
_MAX_SIDE = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class Image:
    """An image: its number, its path below the folder of the images, its size (0, 0: unknown)."""

    id: int
    file_name: str
    size: tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Annotation:
    """An object.

    Attributes:
      category_id: number of its class.
      box: x, y, width, height, maybe not finite; None without a box.
      area: area of the object, maybe not finite; None if unknown.
      is_crowd: whether it is a group of objects.
      segmentation: as in the file, not checked; None for none.
    """

    category_id: int
    box: tuple[float, ...] | None
    area: float | None
    is_crowd: bool
    segmentation: Any


@dataclasses.dataclass(frozen=True)
class Instances:
    """The content of a file.

    Attributes:
      path: path of the file.
      categories: `{number: class name}`, in the order of the numbers.
      images: all images.
      objects: `{image id: [Annotation]}`.
      left_out: `{reason: annotations that belong to no image, or occur twice}`.
      corrected: `{image id: {reason: annotations}}`.
    """

    path: str
    categories: dict[int, str]
    images: list[Image]
    objects: dict[int, list[Annotation]]
    left_out: dict[str, int]
    corrected: dict[int, dict[str, int]]


def read(path: str, keep_masks: bool) -> Instances:
    """Reads a file, plain, .gz or .xz.

    Args:
      path: local or gs://.
      keep_masks: whether to keep the segmentation of the objects, most of a file.

    Raises:
      DataError: it is missing, not the JSON of COCO's objects, or has an invalid field; ids of
        images or categories, file names of images or class names repeat.
    """
    try:
        text = read_text(path)
        content = Fields(loads(text, is_strict=False, change=None if keep_masks else _drop), "")
        del text
        return _parse(path, content)
    except DataError as error:
        raise DataError(f"{path}: {error}" if path not in str(error) else str(error)) from error


def _drop(value):
    value.pop("segmentation", None)
    return value


def _parse(path, content):
    categories = content.items("categories", _category)
    images = list(content.items("images", _image))
    _require_unique(images, categories)
    categories = dict(sorted(categories))
    annotations = _annotations(content, categories)
    objects, left_out, corrected = _group({image.id for image in images}, annotations)
    return Instances(path, categories, images, objects, left_out, corrected)


def _require_unique(images, categories):
    if not images or not categories:
        raise DataError(f"it has {len(images)} images and {len(categories)} categories")
    for name, found in (
        ("categories", [number for number, _ in categories]),
        ("images", [image.id for image in images]),
    ):
        twice = names.repeated(found)
        if twice:
            raise DataError(f"{name}: the id {twice[0]} is repeated")
    twice = names.repeated(image.file_name for image in images)
    if twice:
        raise DataError(f"images: the file_name {twice[0]!a} is repeated")
    wrong = names.find_class_name_problem([name for _, name in categories])
    if wrong:
        raise DataError(f"categories: {wrong}")


def _category(value, where):
    fields = Fields(value, where)
    return fields.integer("id"), fields.text("name")


def _image(value, where):
    fields = Fields(value, where)
    name = posixpath.normpath(fields.text("file_name").replace("\\", "/"))
    if name.startswith(("/", "../")) or name in (".", ".."):
        raise DataError(f"{where}.file_name {name!a} is outside of the folder of the images")
    height, width = (fields.optional(side, _side) or 0 for side in ("height", "width"))
    return Image(fields.integer("id"), name, (height, width) if height and width else (0, 0))


def _side(value, where):
    return integer(value, where, 0, _MAX_SIDE)


def _annotations(content, categories) -> Iterator[tuple[int, int | None, Annotation]]:
    """Yields (id of the image, id or None, annotation)."""
    for value, where in content.items("annotations", lambda value, where: (value, where)):
        fields = Fields(value, where)
        annotation = Annotation(
            category_id=fields.integer("category_id"),
            box=fields.optional("bbox", _box),
            area=fields.optional("area", _number),
            is_crowd=fields.optional("iscrowd", _crowd) or False,
            segmentation=value.get("segmentation"),
        )
        if annotation.category_id not in categories:
            raise DataError(
                f"{where}.category_id {annotation.category_id} is the id of none of the "
                f"{len(categories)} categories"
            )
        yield fields.integer("image_id"), fields.optional("id", integer), annotation


def _box(value, where):
    found = items(value, where, _number)
    if found and len(found) != 4:
        raise DataError(f"{where} has {len(found)} numbers, and must have 4: x, y, width, height")
    return found or None


def _number(value, where):
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DataError(f"{where} is {str(value)[:40]!a}, and must be a number")
    return float(value)


def _crowd(value, where):
    return bool(integer(int(value) if isinstance(value, bool) else value, where, 0, 1))


def _group(image_ids, annotations):
    """Returns annotations by image, and counts of those that are left out or corrected."""
    objects = collections.defaultdict(list)
    left_out, corrected = collections.Counter(), collections.defaultdict(collections.Counter)
    seen: dict[int, tuple[int, Annotation]] = {}
    for image_id, number, annotation in annotations:
        if image_id not in image_ids:
            left_out[NO_IMAGE] += 1
            continue
        if number is not None:
            first = seen.setdefault(number, (image_id, annotation))
            if first[1] is not annotation and first == (image_id, annotation):
                left_out[REPEATED] += 1
                continue
            if first[1] is not annotation:
                corrected[image_id][SAME_ID] += 1
        objects[image_id].append(annotation)
    return dict(objects), dict(left_out), dict(corrected)
