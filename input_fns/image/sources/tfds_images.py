"""Images of tensorflow-datasets: with classes, with boxes, or with masks. See `convert.tfds`."""

from __future__ import annotations

import dataclasses
import functools
import io

import numpy as np
from PIL import Image

from input_fns import DataError
from input_fns.convert import files, tfds
from input_fns.convert.source import RawDataset
from input_fns.convert.tfds import Reader, Streamed, of_class
from input_fns.core.target import FEATURE, Target
from input_fns.dataset_info import LeftOut
from input_fns.image.sources import annotated_datasets, boxes, mask_classes
from input_fns.image.sources.annotated_images import Boxes
from input_fns.image.sources.boxes import Box, Notes
from input_fns.image.sources.image_files import ImageFiles
from input_fns.image.sources.mask_files import Item

_UNLABELLED = -1  # in test splits of contests, such as ImageNet
_IMAGE, _LABEL, _LABELS = ("image", "image_left", "img"), ("label",), ("labels", "label")
_MASKS = ("segmentation_mask", "segmentation_label", "annotation", "mask", "segmentation")
_CROWDS = ("is_crowd", "is_difficult")
_SAMPLE = 20  # masks to look at


def _find_classes(features, options):
    image, label = of_class(features, "Image", _IMAGE), of_class(features, "ClassLabel", _LABEL)
    return {"image": image, "label": label} if image and label else None


def _read_classes(tables, roles, options) -> RawDataset:
    splits = {}
    for split in tables.splits:
        (labels,) = tables.columns(split, [roles["label"]])
        labels = np.array(labels, np.int64)
        paths = tables.names(split, len(labels))
        is_labelled = (labels != _UNLABELLED).any()
        examples = ImageFiles(paths, options, labels if is_labelled else None)
        is_stored = options.image_size is None
        splits[split] = _streamed(tables, split, roles["image"], examples, is_stored)
    return RawDataset(options.dataset, tuple(tables.features[roles["label"]].names), splits)


def _find_labels(features, options):
    import tensorflow_datasets as tfds

    listed = {
        name: feature.feature
        for name, feature in features.items()
        if isinstance(feature, tfds.features.Sequence)
    }
    image, labels = of_class(features, "Image", _IMAGE), of_class(listed, "ClassLabel", _LABELS)
    return {"image": image, "labels": labels} if image and labels else None


def _read_labels(tables, roles, options) -> RawDataset:
    target = Target("multilabel", tuple(tables.features[roles["labels"]].feature.names))
    target.validate(FEATURE)
    splits = {}
    for split in tables.splits:
        (lists,) = tables.columns(split, [roles["labels"]])
        paths = tables.names(split, len(lists))
        targets = np.zeros([len(lists), len(target.names)], np.float32)
        for row, labels in zip(targets, lists):
            row[labels] = 1
        if split != "train" and not targets.any():  # of a contest
            targets[:] = np.nan
        examples = ImageFiles(paths, options, targets=targets)
        is_stored = options.image_size is None
        splits[split] = _streamed(tables, split, roles["image"], examples, is_stored)
    return RawDataset(options.dataset, (), splits, labels=(FEATURE,), target=target)


def _streamed(tables, split, image, examples, is_stored=True):
    size = tables.record_bytes(split) if is_stored else 0
    return Streamed(tables, split, (image,), examples, tfds.with_content, size)


def _find_boxes(features, options):
    image = of_class(features, "Image", _IMAGE)
    for name, feature in features.items():
        inside = getattr(feature, "feature", None)  # of a sequence
        inside = inside if hasattr(inside, "items") else {}
        box, label = (
            of_class(inside, "BBoxFeature", ("bbox",)),
            of_class(inside, "ClassLabel", _LABEL),
        )
        if image and box and label:
            found = {"image": image, "boxes": f"{name}/{box}", "classes": f"{name}/{label}"}
            crowd = next((f"{name}/{each}" for each in _CROWDS if each in inside), "")
            area = f"{name}/area" if "area" in inside else ""
            image_id = "image/id" if "image/id" in features else ""
            optional = {"crowd": crowd, "area": area, "image_id": image_id}
            return {**found, **{role: each for role, each in optional.items() if each}}
    return None


def _read_boxes(tables, roles, options) -> RawDataset:
    outer, _, label = roles["classes"].rpartition("/")
    objects = tables.features[outer].feature
    form = getattr(objects[roles["boxes"].rpartition("/")[2]], "bbox_format", None)
    if form is not None and form.value != "REL_YXYX":
        raise DataError(
            f"{options.dataset}: {roles['boxes']} has the format {form.value}, not REL_YXYX. Write "
            "a function that reads them: --dataset=package.module:FUNCTION"
        )
    names = tuple(objects[label].names)
    images, number = {}, 0
    for split in tables.splits:
        parts = tables.in_parts(
            split, functools.partial(_boxes_of, roles=roles), list(roles.values())
        )
        images[split] = [item for part in parts for item in part]
        if "image_id" not in roles:
            images[split] = [
                dataclasses.replace(item, image_id=number + i)
                for i, item in enumerate(images[split], start=1)
            ]
        number += len(images[split])
    raw = annotated_datasets.with_boxes(
        *(options, names, images, range(1, len(names) + 1)), left_out=LeftOut(), left_out_paths={}
    )
    return _with_streams(tables, roles, raw, ("image",))


def _boxes_of(tables, split, names, begin, end, roles):
    """Returns the `Boxes` of a range of images."""
    rows = enumerate(tables.rows(split, names, begin, end), begin)
    return [_boxes(tables.name_of(split, i), dict(zip(roles, values))) for i, values in rows]


def _boxes(path, values):
    """Returns the `Boxes` of an image from the values of the roles; its id is 0 without one."""
    image_id = int(values.get("image_id", 0))
    try:
        with Image.open(io.BytesIO(values["image"])) as image:
            height, width = image.height, image.width
    except Exception:  # of many types; its reader says why
        return Boxes(path, (0, 0), image_id, [], Notes())
    found, notes = [], Notes()
    count = len(values["boxes"])
    crowds, areas = values.get("crowd", [False] * count), values.get("area", [0] * count)
    for corners, label, crowd, area in zip(values["boxes"], values["classes"], crowds, areas):
        corners = corners.astype(float) * [height, width, height, width]
        corners = boxes.fix(tuple(corners.tolist()), (height, width), notes)
        if corners is not None:
            area = float(area) if area > 0 else boxes.area_of(corners)
            found.append(Box(corners, int(label), bool(crowd), area))
    return Boxes(path, (height, width), image_id, found, notes)


def _find_masks(features, options):
    images = {name: each for name, each in features.items() if of_class({name: each}, "Image")}
    mask = next((name for name in _MASKS if name in images), "")
    image = of_class({n: f for n, f in images.items() if n != mask}, "Image", _IMAGE)
    return {"image": image, "mask": mask} if image and mask else None


def _read_masks(tables, roles, options) -> RawDataset:
    names = options.class_names or tuple(getattr(tables.features[roles["mask"]], "names", ()))
    if not names:
        raise DataError(
            f"{options.dataset} does not name the classes of {roles['mask']}. Name those of the "
            "values 0, 1, ... with --class_names, or others with --mask_values"
        )
    options = dataclasses.replace(options, class_names=names)
    images, sample = {}, {}
    for split in tables.splits:
        count = tables.size(split)
        images[split] = [Item(tables.name_of(split, i), "") for i in range(count)]
        rows = enumerate(tables.rows(split, [roles["mask"]], 0, min(_SAMPLE, count)))
        sample[split] = [
            Item(tables.name_of(split, i), files.Content(f"{tables.name_of(split, i)}, mask", mask))
            for i, (mask,) in rows
        ]
    rules = mask_classes.find(options, sample)
    raw = annotated_datasets.with_masks(options, rules, images, LeftOut(), {})
    return _with_streams(tables, roles, raw, ("image", "mask"))


def _with_streams(tables, roles, raw, fields):
    """Returns a data set of annotated images whose files are those of the builder."""
    features = tuple(roles[field] for field in fields)
    splits = {
        split: dataclasses.replace(
            _streamed(tables, split, features[0], examples),
            features=features,
            with_files=_with_annotated_files,
        )
        for split, examples in raw.splits.items()
    }
    return dataclasses.replace(raw, splits=splits)


def _with_annotated_files(part, values):
    item, items = part.items[0], np.empty([1], object)
    contents = [files.Content(item.path, values[0])]
    contents += [files.Content(f"{item.path}, mask", value) for value in values[1:]]
    items[0] = dataclasses.replace(item, **dict(zip(("path", "mask"), contents)))
    return dataclasses.replace(part, items=items)


_PIXELS = "channels pixel_range"
READERS = (
    Reader(
        *("classification", "images with classes", "an image and a label"),
        *(f"image_size {_PIXELS}", _find_classes, _read_classes),
    ),
    Reader(
        *("detection", "images with boxes", "an image and a sequence of bounding boxes and labels"),
        *(f"max_boxes {_PIXELS}", _find_boxes, _read_boxes),
    ),
    Reader(
        *("segmentation", "images with masks", f"two images, one of them {' or '.join(_MASKS)}"),
        *(f"class_names mask_values ignored {_PIXELS}", _find_masks, _read_masks),
    ),
    Reader(
        *("multilabel", "images with several labels", "an image and a sequence of labels"),
        *(f"image_size {_PIXELS}", _find_labels, _read_labels),
    ),
)
