"""Images with the JSON of COCO: boxes, boxes with masks of the objects, or masks of classes.

    SOURCE/annotations/instances_train2017.json   SOURCE/train2017/*.jpg        COCO
    SOURCE/annotations/instances_default.json     SOURCE/images/default/*.jpg   CVAT
    SOURCE/train/_annotations.coco.json           SOURCE/train/*.jpg            Roboflow
    SOURCE/result.json                            SOURCE/images/*.jpg           Label Studio

--annotations and --image_folder name files and folders of other layouts. Archives (.zip, .tar) are
read as if they were unpacked in their folder: annotations_trainval2017.zip, train2017.zip, ... as
downloaded.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
from collections.abc import Mapping

from common.constants import IGNORED_CLASS, INSTANCES
from common.names import printable
from input_fns import DataError
from input_fns.convert.archives import SourceTree
from input_fns.convert.loose_values import Identifier
from input_fns.convert.options import Options
from input_fns.convert.source import RawDataset
from input_fns.dataset_info import LeftOut
from input_fns.image.sources import (
    annotated_datasets,
    annotated_images,
    boxes,
    coco_files,
    coco_json,
    decoded_images,
)
from input_fns.image.sources.annotated_images import Boxes
from input_fns.image.sources.boxes import Box, Notes
from input_fns.image.sources.coco_masks import Object, Objects
from input_fns.image.sources.mask_files import Item, Rules

_BACKGROUND = "background"
_NO_BOX, _BAD_BOX = "without a box", "with a bbox that is not four numbers"
_EMPTY_TWIN = "categories without objects that have the name of another one"
_UNNAMED = "images that the JSON does not name"


def read(options: Options) -> RawDataset:
    """Returns the data set of `options.task`, one of `common.constants.ANNOTATION_TASKS`.

    Raises:
      DataError: a file is missing or invalid, or the files of two splits have other classes.
    """
    masks = options.task == "segmentation"
    has_outlines = options.task in ("segmentation", INSTANCES)
    if has_outlines and not importlib.util.find_spec("pycocotools"):
        raise DataError(
            f"--task={options.task} of COCO needs pycocotools: pip install '.[detection]'"
        )
    left_out = LeftOut()
    tree = SourceTree(options, left_out)
    files = coco_files.annotation_files(options, tree)
    found = {split: coco_json.read(path, has_outlines) for split, path in files.items()}
    for one in found.values():
        left_out.update(one.left_out)
    categories = _categories(found, left_out)
    names = _class_names(categories, options)
    numbers = {name: number for number, name in enumerate(names)}
    class_of = {key: numbers[c.name] for key, c in categories.items() if c.name in numbers}
    image_numbers, image_ids = _number_images(found)
    make = _objects if masks else _boxes
    images = {}
    for split, one in found.items():
        paths = _paths(options, tree, split, one)
        images[split] = [
            make(image, number, path, one, class_of, options)
            for image, number, path in zip(one.images, image_numbers[split], paths)
        ]
    unnamed = _images_below(options, tree)
    used = {*files.values(), *(item.path for items in images.values() for item in items)}
    tree.add_unused(used, left_out, unnamed)
    if masks:
        return annotated_datasets.with_masks(options, Rules(names), images, left_out, unnamed)
    ids = {category.name: category.stored_id for category in categories.values()}
    category_ids = [ids[name] for name in names]
    return annotated_datasets.with_boxes(
        *(options, names, images, category_ids, image_ids),
        left_out=left_out,
        left_out_paths=unnamed,
    )


def _number_images(found):
    """Returns `{split: numbers of its images}`, and the ids in the JSON of the numbers 1, 2, ...

    Ids that are integers are the numbers; no ids are returned then.
    """
    images = [image for one in found.values() for image in one.images]
    if all(isinstance(image.stored_id, int) and image.stored_id == image.id for image in images):
        return {split: [image.id for image in one.images] for split, one in found.items()}, ()
    counter = itertools.count(1)
    numbers = {split: [next(counter) for _ in one.images] for split, one in found.items()}
    return numbers, [image.stored_id for image in images]


def _paths(options, tree, split, instances):
    """Returns (path, problem) of each image of a split.

    Raises:
      DataError: no image is there, or two names are of the same file.
    """
    finders = coco_files.finders_of_images(options, tree, split, instances)
    found, first = [], {}
    for image in instances.images:
        path = next(filter(None, (finder.find(image.file_name) for finder in finders)), None)
        if path is None:
            # Not a path to open: a file name is untrusted.
            name = printable(image.file_name)
            found.append((name, f"no such file in {finders[0].folder}"))
            continue
        other = first.setdefault(path, image.file_name)
        if other is not image.file_name:
            raise DataError(
                f"{instances.path}: the file_names {other!a} and {image.file_name!a} are both of "
                f"{printable(path)}. Remove one, or store the images in the folders of their "
                "file_names"
            )
        found.append((tree.path(path), ""))
    return found


def _images_below(options, tree) -> Mapping[str, str]:
    """Returns `{path: reason}` of all images below --source; those that are stored do not count."""
    return {
        path: _UNNAMED
        for path in tree.files(options.source)
        if os.path.splitext(path)[1].lower() in decoded_images.EXTENSIONS
    }


def _categories(found, left_out):
    """Returns `{category id: Category}` of all splits, in the order of the ids.

    Roboflow adds a category 0 without objects that has the name of the project; if it is that of a
    class, it is left out.
    """
    categories: dict[Identifier, coco_json.Category] = {}
    first: dict[object, str] = {}
    used = set()
    for one in found.values():
        used.update(each.category_id for objects in one.objects.values() for each in objects)
        for category in one.categories:
            path = first.setdefault(category.id, one.path)
            known = categories.setdefault(category.id, category)
            if known.name != category.name:
                raise DataError(
                    f"{one.path}: category {category.id} is {category.name!a}, and {known.name!a} "
                    f"in {path}"
                )
    by_name: dict[str, coco_json.Category] = {}
    # Categories with objects first: of two with the same name, one without is left out.
    for category in sorted(categories.values(), key=lambda one: one.id not in used):
        known = by_name.setdefault(category.name, category)
        if known is category:
            continue
        if category.id in used:
            raise DataError(
                f"{first[category.id]}: the categories {known.id} and {category.id} both have the "
                f"name {category.name!a} and objects. Give the class one id in all files"
            )
        left_out.add(_EMPTY_TWIN, f"{category.id} ({category.name})")
    kept = {category.id for category in by_name.values()}
    in_order = sorted(kept, key=lambda key: (isinstance(key, str), key))
    return {key: categories[key] for key in in_order}


def _class_names(categories, options):
    """Returns the class names in their order; masks have the background as class 0."""
    masks = options.task == "segmentation"
    there = tuple(category.name for category in categories.values())
    known = {*there, *[_BACKGROUND] * masks}
    unknown = [name for name in options.class_names if name not in known]
    if unknown:
        raise DataError(
            f"--class_names: {unknown[0]!a} is not a category; there are {', '.join(there)}"
        )
    names = options.class_names or there
    if masks:
        names = (_BACKGROUND, *(name for name in names if name != _BACKGROUND))
    if masks and len(names) > IGNORED_CLASS:
        raise DataError(f"{len(names)} classes with the background; masks hold {IGNORED_CLASS}")
    return names


def _boxes(image, number, file, instances, class_of, options):
    notes = _notes(image, instances)
    path, problem = file
    size = image.size
    if not any(size) and not problem:
        size = annotated_images.size_of(path, options, notes)
    found = []
    for one in instances.objects.get(image.id, ()):
        if one.category_id not in class_of:
            notes.left_out[boxes.OTHER_CLASS] += 1
            continue
        if not one.box:
            notes.left_out[_NO_BOX if one.box is None else _BAD_BOX] += 1
            continue
        x, y, width, height = one.box
        corners = boxes.fix((y, x, y + height, x + width), size, notes)
        if corners is None:
            continue
        area = one.area
        if area is None or not 0 < area < float("inf"):
            notes.corrected[boxes.NO_AREA] += 1
            area = boxes.area_of(corners)
        outline = one.segmentation if options.task == INSTANCES else b""
        found.append(Box(corners, class_of[one.category_id], one.is_crowd, area, outline))
    return Boxes(path, size, number, found, notes, problem)


def _objects(image, number, file, instances, class_of, options):
    del number, options
    notes = _notes(image, instances)
    found = []
    for one in instances.objects.get(image.id, ()):
        if one.category_id in class_of:
            found.append(Object(class_of[one.category_id], one.is_crowd, one.segmentation))
        else:
            notes.left_out[boxes.OTHER_CLASS] += 1
    path, problem = file
    return Item(path, Objects(image.size, found, notes), problem)


def _notes(image, instances):
    notes = Notes()
    notes.corrected.update(instances.corrected.get(image.id, {}))
    return notes
