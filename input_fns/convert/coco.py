"""Images with the JSON of COCO: boxes for detection, or masks of classes for segmentation.

    SOURCE/annotations/instances_train2017.json   SOURCE/train2017/*.jpg     COCO
    SOURCE/train/_annotations.coco.json           SOURCE/train/*.jpg         Roboflow
    SOURCE/boxes.json                             SOURCE/images/*.jpg        one split

--annotations and --image_folder name files and folders of other layouts.
"""

from __future__ import annotations

import importlib.util
import os
import re

import tensorflow as tf

from common import folders
from common.constants import IGNORED_CLASS
from common.names import printable
from input_fns import DataError
from input_fns.convert import annotated_images, boxes, coco_json
from input_fns.convert.annotated_images import Boxes
from input_fns.convert.boxes import Box, Notes
from input_fns.convert.coco_masks import Object, Objects
from input_fns.convert.mask_files import Item, Rules
from input_fns.convert.source import Options, RawDataset
from input_fns.convert.split_names import is_split, split_names

_JSON = re.compile(r".+\.json(\.gz|\.xz)?")
_BACKGROUND = "background"
_NO_BOX, _OTHER_CLASS = "without a box", "of a class that is not in --class_names"
# Images whose files are looked for to find the folder.
_PROBED = 5


def read(options: Options) -> RawDataset:
    """Returns the data set of `options.task`: "detection" or "segmentation".

    Raises:
      DataError: a file is missing or invalid, or the files of two splits have other classes.
    """
    masks = options.task == "segmentation"
    if masks and not importlib.util.find_spec("pycocotools"):
        raise DataError("--task=segmentation of COCO needs pycocotools: pip install '.[detection]'")
    found = {
        split: coco_json.read(path, masks) for split, path in _annotation_files(options).items()
    }
    categories = _categories(found)
    names = _class_names(categories, options)
    class_of = {n: names.index(name) for n, name in categories.items() if name in names}
    roots = {split: _image_folder(options, split, one) for split, one in found.items()}
    notes = {split: dict(one.left_out) for split, one in found.items()}
    make = _objects if masks else _boxes
    images = {
        split: [make(image, one, roots[split], class_of) for image in one.images]
        for split, one in found.items()
    }
    if masks:
        return annotated_images.with_masks(options, Rules(names), images, notes)
    ids = {name: number for number, name in categories.items()}
    return annotated_images.with_boxes(options, names, images, notes, [ids[name] for name in names])


def _annotation_files(options):
    """Returns `{split: path of its JSON}`."""
    if options.annotations:
        given = dict(_given_file(entry, len(options.annotations)) for entry in options.annotations)
        if len(given) < len(options.annotations):
            raise DataError("--annotations has two files of one split. Write SPLIT=FILE")
        return given
    source = options.source
    if not folders.is_folder(source):
        raise DataError(f"--source={source} is not a folder")
    inside = [name for name in folders.names(source) if not name.startswith(".")]
    places = [name for name in inside if name.lower() == "annotations"]
    groups = [
        [path for name in places for path in _json_files(os.path.join(source, name))],
        [path for name in inside if is_split(name) for path in _json_files(f"{source}/{name}")],
        _json_files(source),
    ]
    found = next(filter(None, groups), [])
    instances = [path for path in found if os.path.basename(path).startswith("instances_")]
    found = instances or found
    if not found:
        raise DataError(
            f"--source={source} has no JSON of COCO: annotations/*.json, SPLIT/*.json or *.json. "
            "Name it with --annotations"
        )
    split_of = {path: _split_in(path, source) for path in found}
    if len(found) == 1 and not split_of[found[0]]:
        split_of = {found[0]: "train"}
    nameless = [path for path, split in split_of.items() if not split]
    if nameless:
        raise DataError(
            f"{nameless[0]}: the name has no split, such as train. Name the files with "
            "--annotations=train=FILE,validation=FILE"
        )
    by_name: dict[str, str] = {}
    for path, split in split_of.items():
        if by_name.setdefault(split, path) != path:
            raise DataError(
                f"{by_name[split]} and {path} are both of the split '{split}'. Choose one with "
                "--annotations"
            )
    names = split_names(by_name, f"--source={source}")
    return {ours: by_name[name] for ours, name in names.items()}


def _given_file(entry, count):
    split, equals, path = entry.partition("=")
    if not equals:
        split, path = _split_in(entry, ""), entry
        split = split or ("train" if count == 1 else "")
    if not split:
        raise DataError(f"--annotations={entry} has no split in its name. Write SPLIT={entry}")
    (ours,) = split_names([split], f"--annotations={entry}")
    return ours, path


def _json_files(folder):
    return [os.path.join(folder, name) for name in folders.names(folder) if _JSON.fullmatch(name)]


def _split_in(path, source):
    """Returns the split in the name of a file or of its folder below `source`, or ""."""
    stem = os.path.basename(path).partition(".")[0]
    parts = [stem]
    folder = os.path.dirname(path)
    if folder.rstrip("/") != source.rstrip("/"):
        parts.append(os.path.basename(folder))
    for part in parts:
        words = [word for word in re.split("[^a-z]+", part.lower()) if is_split(word)]
        if words:
            return words[-1]
    return ""


def _image_folder(options, split, instances):
    """Returns the folder of the images of a split, found by the names of the first ones."""
    first = [image.file_name for image in instances.images[:_PROBED]]
    candidates = _candidates(options, split, instances.path)
    for folder in candidates:
        if any(tf.io.gfile.exists(os.path.join(folder, name)) for name in first):
            return folder
    raise DataError(
        f"{instances.path}: {printable(first[0])} and the next images are in none of "
        f"{', '.join(candidates)}. Name the folder with --image_folder"
    )


def _candidates(options, split, path):
    source = options.source
    if options.image_folder:
        return [os.path.join(source, options.image_folder.replace("{split}", split))]
    stem = os.path.basename(path).partition(".")[0]
    year = re.search(r"(?:train|val|test)[a-z]*\d*$", stem)
    split_folders = [
        name
        for name in folders.names(source)
        if (year and name == year[0]) or (is_split(name) and _ours(name) == split)
    ]
    images = os.path.join(source, "images")
    split_folders += [
        os.path.join("images", name)
        for name in folders.names(images)
        if (year and name == year[0]) or (is_split(name) and _ours(name) == split)
    ]
    found = [os.path.dirname(path), *(os.path.join(source, name) for name in split_folders)]
    found += [
        folder
        for name in split_folders
        for folder in [os.path.join(source, name, "images")]
        if folders.is_folder(folder)
    ]
    return list(dict.fromkeys([*found, images, source]))


def _ours(name):
    return next(iter(split_names([name], "")))


def _categories(found):
    """Returns `{category id: class name}` of all splits."""
    categories: dict[int, str] = {}
    first: dict[object, str] = {}
    for one in found.values():
        for number, name in one.categories.items():
            path = first.setdefault(number, one.path)
            if categories.setdefault(number, name) != name:
                raise DataError(
                    f"{one.path}: category {number} is {name!a}, and {categories[number]!a} in "
                    f"{path}"
                )
    numbers: dict[str, int] = {}
    for number, name in categories.items():
        if numbers.setdefault(name, number) != number:
            raise DataError(
                f"the class {name!a} is category {numbers[name]} in one file and {number} in "
                "another one"
            )
    return dict(sorted(categories.items()))


def _class_names(categories, options):
    """Returns the class names in their order; masks have the background as class 0."""
    masks = options.task == "segmentation"
    valid = {*categories.values(), *([_BACKGROUND] if masks else [])}
    unknown = [name for name in options.class_names if name not in valid]
    if unknown:
        raise DataError(
            f"--class_names: {unknown[0]!a} is not a category; there are "
            f"{', '.join(categories.values())}"
        )
    names = options.class_names or tuple(categories.values())
    if masks:
        names = (_BACKGROUND, *(name for name in names if name != _BACKGROUND))
    if masks and len(names) > IGNORED_CLASS:
        raise DataError(f"{len(names)} classes with the background; masks hold {IGNORED_CLASS}")
    return names


def _boxes(image, instances, folder, class_of):
    notes = _notes(image, instances)
    found = []
    path = os.path.join(folder, image.file_name)
    size = image.size if any(image.size) else annotated_images.size_of(path, notes)
    for one in instances.objects.get(image.id, ()):
        if one.category_id not in class_of:
            notes.left_out[_OTHER_CLASS] += 1
            continue
        if one.box is None:
            notes.left_out[_NO_BOX] += 1
            continue
        x, y, width, height = one.box
        corners = boxes.fix((y, x, y + height, x + width), size, notes)
        if corners is None:
            continue
        area = one.area
        if area is None or not 0 < area < float("inf"):
            notes.corrected[boxes.NO_AREA] += 1
            area = boxes.area_of(corners)
        found.append(Box(corners, class_of[one.category_id], one.is_crowd, area))
    return Boxes(path, size, image.id, found, notes)


def _objects(image, instances, folder, class_of):
    notes = _notes(image, instances)
    found = []
    for one in instances.objects.get(image.id, ()):
        if one.category_id in class_of:
            found.append(Object(class_of[one.category_id], one.is_crowd, one.segmentation))
        else:
            notes.left_out[_OTHER_CLASS] += 1
    return Item(os.path.join(folder, image.file_name), Objects(image.size, found, notes))


def _notes(image, instances):
    notes = Notes()
    notes.corrected.update(instances.corrected.get(image.id, {}))
    return notes
