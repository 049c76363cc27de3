"""Images and objects in the JSON of COCO: boxes, polygons and run lengths.

A single record that is invalid is left out and counted. Numbers and ids may be text, as some tools
write them.
"""

from __future__ import annotations

import collections
import dataclasses
import os
from collections.abc import Callable, Iterator
from typing import Any

from common import names
from input_fns import DataError
from input_fns.convert.files import read_text
from input_fns.convert.loose_values import Identifier, boolean, identifier, integral, number
from input_fns.core.json_fields import Fields, loads, mapping
from input_fns.dataset_info import LeftOut
from input_fns.image.sources import coco_masks

NO_IMAGE = "annotations of an image that is not in the JSON"
REPEATED, SAME_ID = "annotations that occur twice", "with the id of another one"
REPEATED_IMAGE = "images that occur twice in the JSON"
NO_CATEGORY = "annotations of a category that is not in the JSON"
_MAX_SIDE = 2**31 - 1
_NO_SEGMENTATION = coco_masks.pack(None)


@dataclasses.dataclass(frozen=True)
class Image:
    """An image.

    Attributes:
      id: its identifier; see `identifier`.
      stored_id: the id as it is in the file, an integer or text.
      file_name: name of its file, as it is in the file.
      size: height and width; (0, 0) if unknown.
    """

    id: Identifier
    stored_id: Identifier
    file_name: str
    size: tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Annotation:
    """An object.

    Attributes:
      category_id: identifier of its class.
      box: x, y, width, height, maybe not finite; () if it is invalid, None without a box.
      area: area of the object, maybe not finite; None if unknown.
      is_crowd: whether it is a group of objects.
      segmentation: as in the file, not checked; see `coco_masks.pack`.
    """

    category_id: Identifier
    box: tuple[float, ...] | None
    area: float | None
    is_crowd: bool
    segmentation: bytes


@dataclasses.dataclass(frozen=True)
class Category:
    """A class: its identifier, its id as in the file, its name."""

    id: Identifier
    stored_id: Identifier
    name: str


@dataclasses.dataclass(frozen=True)
class Instances:
    """The content of a file.

    Attributes:
      path: path of the file.
      categories: all categories, in the order of their ids.
      images: all images.
      objects: `{image id: [Annotation]}`.
      left_out: images and annotations that are invalid or repeated, or belong to no image.
      corrected: `{image id: {reason: annotations}}`.
    """

    path: str
    categories: list[Category]
    images: list[Image]
    objects: dict[Identifier, list[Annotation]]
    left_out: LeftOut
    corrected: dict[Identifier, dict[str, int]]


class _InvalidError(Exception):
    """Why a record is left out, and a detail for its name."""


def read(path: str, keep_masks: bool) -> Instances:
    """Reads a file, plain, .gz or .xz.

    Args:
      path: local or gs://.
      keep_masks: whether to keep the segmentation of the objects, most of a file.

    Raises:
      DataError: it is missing, or not the JSON of COCO's objects; a category is invalid; ids of
        images or categories, or file names of images, repeat.
    """
    try:
        text = read_text(path)
        content = loads(text, is_strict=False, change=_pack if keep_masks else _drop)
        del text
        _require_lists(content)
        return _parse(path, Fields(content, ""))
    except DataError as error:
        raise DataError(f"{path}: {error}" if path not in str(error) else str(error)) from error


def _require_lists(content):
    """Checks that a file is an object with the lists of COCO."""
    lists = ("images", "annotations", "categories")
    missing = [name for name in lists if not isinstance(content, dict) or name not in content]
    if missing == list(lists):
        raise DataError(
            f"it is not the JSON of COCO, an object with {', '.join(lists)}. Export 'COCO', or "
            "leave it out with --skip"
        )
    if missing:
        raise DataError(
            f"{missing[0]} is missing. The JSON of COCO's instances has the lists "
            f"{', '.join(lists)}"
        )


def _drop(value):
    value.pop("segmentation", None)
    return value


def _pack(value):
    if "segmentation" in value:
        value["segmentation"] = coco_masks.pack(value["segmentation"])
    return value


def _parse(path, content):
    left_out = LeftOut()
    file = os.path.basename(path)
    categories = content.items("categories", _category)
    images = _unique_images(_kept(content, "images", _image, file, left_out), left_out)
    if not images and left_out:
        raise DataError(f"it has no valid image; {'; '.join(left_out.lines())}")
    _check(images, categories)
    categories = sorted(categories, key=lambda one: (isinstance(one.id, str), one.id))
    image_ids = {image.id for image in images}
    known = {one.id for one in categories}

    def annotation(value):
        return _annotation(value, known, image_ids)

    found = _kept(content, "annotations", annotation, file, left_out)
    objects, corrected = _group(found, left_out)
    return Instances(path, categories, images, objects, left_out, corrected)


def _kept(
    content: Fields,
    field: str,
    read_one: Callable[[dict[str, Any]], Any],
    file: str,
    left_out: LeftOut,
) -> Iterator[tuple[str, Any]]:
    """Yields (place, record) of a list; counts those that are invalid."""
    values = content.required(field, _list)
    for place, value in enumerate(values):
        values[place] = None  # frees memory for what is made of it
        try:
            if not isinstance(value, dict):
                raise _InvalidError(f"{field} that are not an object", "")
            found = read_one(value)
        except _InvalidError as error:
            reason, detail = error.args
            shown = f" ({detail})" if detail else ""
            left_out.add(reason, f"{file} {field}[{place}]{shown}")
            continue
        yield f"{file} {field}[{place}]", found


def _list(value, where):
    if not isinstance(value, list):
        raise DataError(f"{where} must be a list")
    return value


def _check(images, categories):
    if not images or not categories:
        raise DataError(f"it has {len(images)} images and {len(categories)} categories")
    for name, found in (
        ("categories", [one.id for one in categories]),
        ("images", [image.id for image in images]),
    ):
        twice = names.repeated(found)
        if twice:
            raise DataError(f"{name}: the id {twice[0]} is repeated")
    twice = names.repeated(image.file_name for image in images)
    if twice:
        raise DataError(f"images: the file_name {twice[0]!a} is repeated")


def _unique_images(found, left_out):
    """Returns the images without exact repetitions."""
    images: dict[Image, None] = {}
    for place, image in found:
        if image in images:
            left_out.add(REPEATED_IMAGE, place)
        images[image] = None
    return list(images)


def _category(value, where):
    values = mapping(value, where)
    number_or_text, name = values.get("id"), values.get("name")
    found = identifier(number_or_text)
    if found is None:
        raise DataError(
            f"{where}.id is {str(number_or_text)[:40]!a}, and must be a number or a line of text"
        )
    name = names.normalized(str(name)) if isinstance(name, (str, int, float)) else name
    wrong = names.find_class_name_problem([name])
    if wrong:
        raise DataError(f"{where}.name: {wrong}")
    return Category(found, _stored(number_or_text, found), name)


def _stored(value, found):
    """Returns an id as in the file, 7.0 as 7."""
    return value if isinstance(value, (int, str)) else found


def _image(value):
    found, name = identifier(value.get("id")), value.get("file_name")
    if found is None:
        raise _InvalidError("images of the JSON without a valid id", "")
    if not names.is_line(name) or not name.strip():
        raise _InvalidError("images of the JSON without a valid file_name", "")
    sides = [integral(value.get(side)) or 0 for side in ("height", "width")]
    is_known = all(0 < side <= _MAX_SIDE for side in sides)
    return Image(found, _stored(value["id"], found), name, tuple(sides) if is_known else (0, 0))


def _annotation(value, known, image_ids):
    """Returns (image id, id or None, `Annotation`)."""
    category, image = (identifier(value.get(name)) for name in ("category_id", "image_id"))
    if category not in known:
        raise _InvalidError(NO_CATEGORY, f"category_id {str(value.get('category_id'))[:40]}")
    if image not in image_ids:
        raise _InvalidError(NO_IMAGE, f"image_id {str(value.get('image_id'))[:40]}")
    is_crowd = boolean(value.get("iscrowd") or False)
    if is_crowd is None:
        raise _InvalidError(
            "annotations whose iscrowd is not 0 or 1", str(value.get("iscrowd"))[:40]
        )
    found = Annotation(
        category_id=category,
        box=_box(value.get("bbox")),
        area=number(value.get("area")),
        is_crowd=is_crowd,
        segmentation=value.get("segmentation", _NO_SEGMENTATION),
    )
    return image, identifier(value.get("id")), found


def _box(value):
    if value is None or value == []:
        return None
    found = tuple(map(number, value)) if isinstance(value, list) else ()
    return found if len(found) == 4 and None not in found else ()


def _group(found, left_out):
    """Returns annotations by image, and counts of those that are corrected."""
    objects, corrected = collections.defaultdict(list), collections.defaultdict(collections.Counter)
    seen: dict[Identifier, tuple[Identifier, Annotation]] = {}
    for place, (image_id, key, annotation) in found:
        if key is not None:
            first = seen.setdefault(key, (image_id, annotation))
            if first[1] is not annotation and _unpacked(*first) == _unpacked(image_id, annotation):
                left_out.add(REPEATED, place)
                continue
            if first[1] is not annotation:
                corrected[image_id][SAME_ID] += 1
        objects[image_id].append(annotation)
    return dict(objects), dict(corrected)


def _unpacked(image_id, annotation):
    """Returns what two annotations are compared by: 1 and 1.0 are equal, but not as bytes."""
    segmentation = coco_masks.unpack(annotation.segmentation)
    return image_id, dataclasses.replace(annotation, segmentation=segmentation)
