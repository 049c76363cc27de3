"""COCO's average precision of a split, with its files and reports; by pycocotools.

AP is the mean over the IoU thresholds 0.5, 0.55, ..., 0.95 and over the classes (Lin et al. 2014,
arXiv:1405.0312; https://cocodataset.org/#detection-eval).
"""

from __future__ import annotations

import collections
import contextlib
import io
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from common import files, folders, pictures
from models.detection import report
from models.model import ModelError

# In the order of COCOeval.stats. AR_10: average recall with at most 10 detections per image.
NAMES = (
    "AP", "AP50", "AP75", "AP_small", "AP_medium", "AP_large",
    "AR_1", "AR_10", "AR_100", "AR_small", "AR_medium", "AR_large",
)  # fmt: skip
_IOU_50, _IOU_75 = 0, 5  # positions of the thresholds
_MAX_ID_BYTES = 2**30  # of the file with the ids of the images
_ALL_AREAS, _MAX_DETECTIONS = 0, 2  # last position: 100 detections


class CocoMetric:
    """COCO's metrics: a host metric with files, and a report.

    A metric is -1 if no box counts for it, such as AP_large without large boxes, as in pycocotools.
    Crowds and difficult boxes neither count nor make a detection wrong.
    """

    names = NAMES
    directions = dict.fromkeys(NAMES, "max")
    num_examples = 0

    def __init__(self, params: Mapping[str, Any], pipeline: Any):
        """Reads no example yet.

        Args:
          params: hyperparameters of the model.
          pipeline: its data set has `annotations`, and perhaps the properties `category_ids`, the
            official category of each class, and `image_ids`, a file with the official ids or the
            paths of the images 1, 2, ... if the numbers are not official.

        Raises:
          ModelError: pycocotools is missing, or the file of `image_ids` is invalid.
        """
        del params
        _import_pycocotools()
        data = pipeline.data
        self._class_names = tuple(data.kind.class_names)
        self._categories = list(range(1, len(self._class_names) + 1))
        self._category_ids = list(data.properties.get("category_ids") or self._categories)
        self._image_ids = _read_image_ids(data)
        self._images: list[dict[str, Any]] = []
        self._truth: list[dict[str, Any]] = []
        self._results: list[dict[str, Any]] = []
        self._evaluated: dict[str, Any] = {}  # {"bbox" or "segm": COCOeval}
        self._examples = report.Examples(self._class_names)

    def update(self, features, labels, predictions):
        """Adds images.

        Args:
          features: may have `image`, encoded files or uint8 `[height, width, channels]`.
          labels: stored annotations in pixels of the original images: `boxes`, float32
            `[n, m, 4]`, `classes`, int32 `[n, m]`, -1 for padding, `is_crowd` and `areas`
            `[n, m]`, `image_id`, int64 `[n]`.
          predictions: see `nms.detect`.
        """
        self._evaluated = {}
        images = features.get("image")
        for i, number in enumerate(np.asarray(labels["image_id"]).tolist()):
            is_box = labels["classes"][i] >= 0
            truth = {name: labels[name][i][is_box] for name in ("boxes", "classes", "is_crowd")}
            count = int(predictions["num_detections"][i])
            found = {name: predictions[name][i][:count] for name in ("boxes", "scores", "classes")}
            size = self._add_masks(i, labels, predictions, is_box, truth, found)
            self._images.append({"id": number, **size})
            self._add_truth(number, truth, labels["areas"][i][is_box])
            self._add_results(number, found)
            image = None if images is None else images[i]
            self._examples.add(self._id(number), image, truth, found)

    def result(self) -> dict[str, float]:
        """Returns the twelve metrics of COCO over all images."""
        stats = self._evaluate().stats
        return {name: float(value) for name, value in zip(NAMES, stats)}

    def per_class(self) -> dict[str, dict[str, float]]:
        """Returns `{class name: {"AP", "AP50", "AP75", "boxes"}}`; -1 for classes without boxes."""
        precision = self._precision()
        counts = collections.Counter(
            box["category_id"] for box in self._truth if not box["iscrowd"]
        )
        return {
            name: {
                "AP": _mean(precision[i]),
                "AP50": _mean(precision[i, _IOU_50]),
                "AP75": _mean(precision[i, _IOU_75]),
                "boxes": counts[self._categories[i]],
            }
            for i, name in enumerate(self._class_names)
        }

    def files(self) -> dict[str, str]:
        """Returns `{"detections.json": JSON}`, in the form of COCO's results."""
        results = [
            {
                **one,
                "image_id": self._id(one["image_id"]),
                "category_id": self._category_ids[one["category_id"] - 1],
            }
            for one in self._results
        ]
        return {"detections.json": json.dumps(results) + "\n"}

    def _id(self, number):
        return self._image_ids.get(number, number)

    def write(self, evaluation) -> dict[str, Any]:
        """Writes the curves of precision and recall, the first images and the worst ones."""
        classes = self.per_class()
        curves = self._precision()[:, _IOU_50]
        drawings = {
            "precision_recall": report.draw_curves(dict(zip(self._class_names, curves))),
            "first_detections": self._examples.draw_first(),
            "worst_detections": self._examples.draw_worst(),
        }
        for name, picture in drawings.items():
            if picture is not None:
                encoded = pictures.to_png(picture)
                evaluation.write_file(f"{name}_{evaluation.step}.png", encoded)
                evaluation.write_image(f"detection/{name}", encoded)
        evaluation.write_file(f"classes_{evaluation.step}.txt", report.table(classes))
        evaluation.write_text("detection/classes", report.markdown(classes))
        return {"classes": classes}

    def text(self, evaluation) -> str:
        """Returns the table of `per_class`."""
        del evaluation
        return report.table(self.per_class())

    def _add_masks(self, i, labels, predictions, is_box, truth, found):
        """Adds "masks" of image `i`, RLE, to the truth and what is found; returns its size."""
        del i, labels, predictions, is_box, truth, found
        return {}

    def _add_truth(self, number, truth, areas):
        masks = _masks(truth)
        for box, label, crowd, area, mask in zip(
            _corners_to_sizes(truth["boxes"]), truth["classes"], truth["is_crowd"], areas, masks
        ):
            self._truth.append(
                {
                    "id": len(self._truth) + 1,  # pycocotools takes a match with 0 for none
                    "image_id": number,
                    "category_id": self._categories[label],
                    "bbox": box,
                    "area": float(area),
                    "iscrowd": int(crowd),
                    **mask,
                }
            )

    def _add_results(self, number, found):
        masks = _masks(found)
        for box, score, label, mask in zip(
            _corners_to_sizes(found["boxes"]), found["scores"].tolist(), found["classes"], masks
        ):
            self._results.append(
                {
                    "image_id": number,
                    "category_id": self._categories[label],
                    "bbox": box,
                    "score": score,
                    **mask,
                }
            )

    def _precision(self):
        """Returns the precisions `[num_classes, IoU thresholds, recalls]`."""
        precision = self._evaluate().eval["precision"][..., _ALL_AREAS, _MAX_DETECTIONS]
        return np.moveaxis(precision, 2, 0)

    def _detections(self, iou_type):
        """Returns the results as pycocotools' annotations, with the area that their size is of."""
        del iou_type
        return [
            {**one, "id": i, "area": one["bbox"][2] * one["bbox"][3], "iscrowd": 0}
            for i, one in enumerate(self._results, start=1)
        ]

    def _evaluate(self, iou_type="bbox"):
        """Returns the accumulated COCOeval of boxes ("bbox") or masks ("segm"), computed once."""
        if iou_type not in self._evaluated:
            coco, cocoeval = _import_pycocotools()
            categories = [
                {"id": number, "name": name}
                for number, name in zip(self._categories, self._class_names)
            ]
            with contextlib.redirect_stdout(io.StringIO()):  # it prints tables
                sides = [
                    _indexed(coco.COCO(), self._images, categories, annotations)
                    for annotations in (self._truth, self._detections(iou_type))
                ]
                found = cocoeval.COCOeval(*sides, iou_type)
                found.evaluate()
                found.accumulate()
                found.summarize()
            self._evaluated[iou_type] = found
        return self._evaluated[iou_type]


def _read_image_ids(data):
    """Returns `{number: id in the source}` of images whose numbers are not their ids."""
    name = data.properties.get("image_ids")
    if not name:
        return {}
    path = os.path.join(data.data_dir, str(name))
    try:
        ids = json.loads(files.read_text(path, _MAX_ID_BYTES))
        if not isinstance(ids, list) or not all(type(one) in (int, str) for one in ids):
            raise ValueError("it is not a list of integers and texts")
        return dict(enumerate(ids, start=1))
    except (*folders.errors(path), ValueError, TypeError, RecursionError) as error:
        raise ModelError(
            f"{path}, which has the ids of the images, cannot be read: {error}. Prepare the data "
            "set again with prepare_data.py --overwrite"
        ) from error


def _indexed(side, images, categories, annotations):
    side.dataset = {"images": images, "categories": categories, "annotations": annotations}
    side.createIndex()
    return side


def _corners_to_sizes(boxes: np.ndarray) -> list[Sequence[float]]:
    """Returns `[x, y, width, height]` of boxes `[n, 4]`, `(y0, x0, y1, x1)`."""
    y0, x0, y1, x1 = np.asarray(boxes, np.float64).T
    return np.stack([x0, y0, x1 - x0, y1 - y0], axis=-1).tolist()


def _masks(boxes):
    """Returns `{"segmentation": RLE}` of each box of an image, or `{}` without masks."""
    if "masks" not in boxes:
        return [{}] * len(boxes["boxes"])
    return [{"segmentation": rle} for rle in boxes["masks"]]


def _mean(precision):
    counted = precision[precision > -1]
    return float(np.mean(counted)) if counted.size else -1.0


def _import_pycocotools():
    try:
        from pycocotools import coco, cocoeval
    except ImportError as error:
        raise ModelError(
            "average precision needs pycocotools: tools/setup.sh same detection, or "
            "pip install '.[detection]'"
        ) from error
    return coco, cocoeval
