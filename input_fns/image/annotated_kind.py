"""Images with boxes or masks, for object detection and semantic segmentation."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from common import instance_masks, names
from common.constants import ANNOTATION_TASKS, IGNORED_CLASS, INSTANCES
from common.names import counted
from input_fns import DataError, kinds
from input_fns.core.dataset_parts import Feature, listed
from input_fns.core.json_fields import (
    Fields,
    array,
    field,
    file_name,
    integer,
    integer_in,
    items,
    named,
    nested,
    one_of,
    strings,
)
from input_fns.kinds import Kind

_MAX_BOXES = 100  # of synthetic images; those of COCO have up to 93
# Height and width of stored masks of objects, whatever the size of the box: 4 times those of the
# masks that Mask R-CNN predicts.
MASK_SIZE = 112
_MAX_OUTLINES = 2**18  # bytes of an image's exact masks, as text of COCO's run lengths


@dataclasses.dataclass(frozen=True)
class AnnotationsSplit:
    """Annotations of a split.

    Attributes:
      num_images: number of images.
      counts: number of boxes, or of pixels of the masks, of each class.
      corrected: number of annotations that were corrected, by reason.
      left_out: number of annotations that are not stored, by reason.
    """

    num_images: int = field(integer)
    counts: tuple[int, ...] = field(array(integer))
    corrected: dict[str, int] = field(named(integer), default_factory=dict)
    left_out: dict[str, int] = field(named(integer), default_factory=dict)

    def describe(self, task: str) -> str:
        """Returns one line about the split."""
        noun = ("pixel", "pixels") if task == "segmentation" else ("box", "boxes")
        return (
            f"{counted(self.num_images, 'image')}, {counted(sum(self.counts), *noun)}"
            f"{listed(self.corrected, 'corrected')}{listed(self.left_out)}"
        )


@dataclasses.dataclass(frozen=True)
class Annotations(Kind):
    """Boxes or masks of images.

    Detection has the labels "boxes", "classes", "is_crowd", "areas" and "image_id", segmentation
    the label "mask", instance segmentation those of detection, "masks" and "outlines"; see
    `detection_pipeline`, `segmentation_pipeline` and `instance_pipeline`.

    Attributes:
      task: one of `common.constants.ANNOTATION_TASKS`.
      class_names: class names in the order of the classes, without a background class.
      max_boxes: rows of boxes per example; 0 for segmentation.
      splits: `{name: AnnotationsSplit}`.
    """

    task: str = field(one_of(ANNOTATION_TASKS))
    class_names: tuple[str, ...] = field(strings)
    max_boxes: int = field(integer_in(0, 2**20))
    splits: dict[str, AnnotationsSplit] = field(named(nested(AnnotationsSplit)))

    name = "annotations"
    content = "has annotations"
    side_names = ("image_ids.json",)
    noun = "images"
    model_fields = ("max_boxes",)
    flags = ("image_size", "augment")

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def has_boxes(self) -> bool:
        """Whether the labels are boxes, not a mask."""
        return self.task != "segmentation"

    def validate(self, where):
        """Raises DataError if its fields, of `where` in dataset.json, contradict each other."""
        wrong = names.find_class_name_problem(self.class_names)
        if wrong or not self.class_names:
            raise DataError(f"{where}.class_names: {wrong or 'there is none'}")
        for name, split in self.splits.items():
            if len(split.counts) != self.num_classes:
                raise DataError(
                    f"{where}.splits.{name}.counts has {len(split.counts)} numbers for "
                    f"{self.num_classes} classes"
                )

    def check(self, data):
        """Raises DataError if the features are not an image and its annotations."""
        if data.class_names:
            raise DataError("class_names must be empty: the class names are those of annotations")
        image = data.features.get("image")
        if image is None or len(image.shape) != 3 or image.dtype != "uint8":
            raise DataError(
                "features.image is not uint8 [height, width, channels], as annotations needs"
            )
        if self.has_boxes:
            self._check_boxes(data)
        else:
            self._check_mask(data)
        for name, split in self.splits.items():
            count = data.splits[name].num_examples
            if split.num_images != count:
                raise DataError(
                    f"annotations.splits.{name}.num_images is {split.num_images}, and the split "
                    f"has {count} examples"
                )
        fields = Fields(data.properties, "properties")
        if "category_ids" in fields:
            ids = fields.required("category_ids", _read_ids)
            if len(ids) != self.num_classes:
                raise DataError(
                    f"properties.category_ids has {len(ids)} ids for {self.num_classes} classes"
                )
        if "image_ids" in fields:
            fields.required("image_ids", file_name)

    def _check_mask(self, data):
        mask = data.features.get("mask")
        is_mask = mask is not None and mask.shape[2:] == (1,) and mask.dtype == "uint8"
        if data.labels != ("mask",) or not is_mask:
            raise DataError(
                "the labels of annotations.task segmentation must be mask, uint8 [height, width, 1]"
            )
        same_size = mask.shape[:2] == data.features["image"].shape[:2]
        if mask.encoding not in ("raw", "png") or not same_size:
            raise DataError("features.mask is not raw or png, or has another size than the image")
        if self.num_classes > IGNORED_CLASS:
            raise DataError(
                f"annotations.class_names has {self.num_classes}, and masks hold up to "
                f"{IGNORED_CLASS}"
            )
        if self.max_boxes:
            raise DataError(f"annotations.max_boxes is {self.max_boxes}; masks have no boxes")

    def _check_boxes(self, data):
        found = {name: data.features[name] for name in data.labels}
        needed = box_labels(self.task, self.max_boxes)
        if not self.max_boxes or found != needed:
            raise DataError(
                f"the labels of annotations.task {self.task} must be {', '.join(needed)}, as "
                "prepare_data.py stores them, with annotations.max_boxes rows of boxes"
            )

    def all_class_names(self, data):
        """Returns the class names of boxes or pixels."""
        return self.class_names

    def pipeline(self, data, options):
        """Returns the pipeline of the task."""
        from input_fns.image import augment
        from input_fns.image.detection_pipeline import DetectionPipeline
        from input_fns.image.instance_pipeline import InstancePipeline
        from input_fns.image.segmentation_pipeline import SegmentationPipeline

        pipelines = (DetectionPipeline, SegmentationPipeline, InstancePipeline)
        make = dict(zip(ANNOTATION_TASKS, pipelines))[self.task]
        return make(data, options.image_size, augment.parse(options.augment), options.cache)

    def side_files(self, data, split_names):
        """Returns the file of the ids of the images."""
        return [data.properties.get("image_ids")]

    def statistics(self, data):
        """Returns checks of boxes or masks, and their sizes."""
        from input_fns.image import annotation_checks

        return annotation_checks.Statistics(data)

    def split_lines(self, data, split_name, num_examples):
        """Returns a line about the annotations."""
        found = self.splits.get(split_name)
        return [found.describe(self.task)] if found else []

    def contact_sheet(self, data):
        """Returns some images with their annotations."""
        from input_fns.image import contact_sheet

        what = "boxes" if self.has_boxes else "masks"
        what += " and masks" if self.task == INSTANCES else ""
        return f"images with their {what}", contact_sheet.of_annotations(data)

    def class_counts(self, data, split):
        """Returns the numbers of boxes or pixels."""
        del data
        return dict(zip(self.class_names, self.splits[split].counts))

    def count_anomalies(self, data):
        """Yields what is odd about the numbers of boxes or pixels."""
        from input_fns.image import annotation_anomalies

        return annotation_anomalies.of_counts(data)

    def anomalies(self, sample):
        """Yields images of one color, and boxes or masks that hardly are of use."""
        from input_fns.image import annotation_anomalies

        yield from Kind.anomalies(self, sample)
        has_boxes = self.has_boxes
        check = annotation_anomalies.of_boxes if has_boxes else annotation_anomalies.of_masks
        yield from check(sample)

    @classmethod
    def synthetic(cls, shapes):
        """Returns RGB images with 100 boxes each, or with masks."""
        max_boxes = 0 if shapes.task == "segmentation" else _MAX_BOXES
        labels = {"mask": Feature("raw", "uint8", (*shapes.image_size, 1))}
        if max_boxes:
            labels = box_labels(shapes.task, max_boxes)
        kind = cls(shapes.task, kinds.class_names(shapes.classes), max_boxes, {})
        image = Feature("raw", "uint8", (*shapes.image_size, 3))
        return kinds.synthetic_dataset({"image": image, **labels}, labels=tuple(labels), kind=kind)

    def random_examples(self, pipeline, size, seed):
        """Returns images as large as their originals; boxes of up to half the sides, or masks."""
        random, image = np.random.default_rng(seed), pipeline.features["image"]
        features = {"image": random.integers(0, 256, [size, *image.shape], np.uint8)}
        height, width = image.shape[:2]
        if not self.has_boxes:
            mask = random.integers(0, self.num_classes, [size, height, width], np.uint8)
            return features, {"mask": mask}
        features["image_info"] = np.tile(np.float32([height, width, 1]), [size, 1])
        rows = [size, self.max_boxes]
        low, sides = random.uniform(size=[2, *rows, 2]) * 0.5
        corners = np.concatenate([low, low + sides], axis=-1)
        labels = {
            "boxes": (corners * [height, width, height, width]).astype(np.float32),
            "classes": random.integers(0, self.num_classes, rows, np.int32),
            "is_crowd": np.zeros(rows, np.int32),
        }
        if self.task == INSTANCES:
            labels["mask_frames"] = labels["boxes"]
            labels["masks"] = np.ones([*rows, MASK_SIZE, MASK_SIZE], np.uint8)
        return features, labels

    def random_training_examples(self, pipeline, size, seed):
        """Returns images; a mosaic has the boxes of four."""
        features, labels = self.random_examples(pipeline, size, seed)
        if pipeline.augmentation.mosaic:
            labels = {name: np.concatenate([rows] * 4, 1) for name, rows in labels.items()}
        return features, labels

    def random_host_examples(self, batches):
        """Yields batches as `DetectionPipeline.host_examples`, with numbers of the images."""
        first = 0
        for features, labels in batches:
            if not self.has_boxes:
                yield features, labels
                continue
            image_id = np.arange(first, first + len(labels["boxes"]))
            first += len(image_id)
            areas = np.prod(labels["boxes"][..., 2:] - labels["boxes"][..., :2], axis=-1)
            stored = {**labels, "areas": areas, "image_id": image_id}
            if self.task == INSTANCES:
                size = features["image"].shape[1:3]
                outlines = [_rectangles(boxes, size) for boxes in labels["boxes"]]
                stored["outlines"] = np.array(outlines, object)
            yield {"image_id": image_id}, stored


def _rectangles(boxes, size):
    """Returns `outlines` of objects that fill their boxes, `[n, 4]`, in an image of `size`."""
    full = np.ones([2, 2])
    rles = [instance_masks.to_rle(instance_masks.paste(full, box, size)) for box in boxes]
    return pack_outlines(size, [rle["counts"] for rle in rles])


def pack_outlines(size, counts) -> bytes:
    """Returns the exact masks of an image as text: a line with its size, then a line per object.

    Args:
      size: height and width of the image.
      counts: COCO's compressed run lengths of each object, text.

    Raises:
      ValueError: they are too long to be stored.
    """
    found = "\n".join([f"{size[0]} {size[1]}", *counts]).encode()
    if len(found) > _MAX_OUTLINES:
        raise ValueError(f"its masks have {len(found)} bytes of run lengths, above {_MAX_OUTLINES}")
    return found


def unpack_outlines(outlines: bytes) -> list[dict[str, Any]]:
    """Returns COCO's run lengths, `{"size", "counts"}`, of each object of `pack_outlines`."""
    first, *counts = outlines.decode().split("\n")
    return [{"size": [int(side) for side in first.split()], "counts": each} for each in counts]


def box_labels(task: str, max_boxes: int) -> dict[str, Feature]:
    """Returns the labels of images with boxes, in the order of dataset.json.

    Args:
      task: "detection" or "instance_segmentation". Of this, "masks" are the bits of each object's
        mask in its box, and "outlines" the exact masks in the image, see `pack_outlines`.
      max_boxes: rows of boxes.
    """
    found = {
        "boxes": Feature("raw", "float32", (max_boxes, 4)),
        "classes": Feature("raw", "int32", (max_boxes,)),
        "is_crowd": Feature("raw", "uint8", (max_boxes,)),
        "areas": Feature("raw", "float32", (max_boxes,)),
        "image_id": Feature("raw", "int64", ()),
    }
    if task == INSTANCES:
        found["masks"] = Feature("unpadded", "uint8", (max_boxes, MASK_SIZE, MASK_SIZE // 8))
        found["outlines"] = Feature("unpadded", "uint8", (_MAX_OUTLINES,))
    return found


BOX_LABELS = tuple(box_labels("detection", 0))  # names, in the order of dataset.json


def _read_ids(value: Any, where: str) -> tuple[int | str, ...]:
    """Returns a list of different ids, integers or text."""
    found = items(value, where, _read_id)
    twice = names.repeated(found)
    if twice:
        raise DataError(f"{where}: the id {twice[0]!a} is repeated")
    return found


def _read_id(value, where):
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise DataError(f"{where} is not an id: an integer or text")
    return value
