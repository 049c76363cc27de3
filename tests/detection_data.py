"""Random boxes; labels and predictions of images for COCO's metrics."""

import json
import types

import numpy as np

from models.detection import coco_metric

NAMES = ("cat", "dog", "a class with a long name")
MAX_BOXES = 6
BOXES = np.array([[10, 10, 60, 70], [30, 100, 50, 140], [70, 20, 90, 40]], np.float32)


def make_metric(data_dir="", **properties):
    data = types.SimpleNamespace(
        kind=types.SimpleNamespace(class_names=NAMES),
        properties=properties,
        data_dir=str(data_dir),
    )
    return coco_metric.CocoMetric({}, types.SimpleNamespace(data=data))


def image_of(number=1, boxes=BOXES, classes=(0, 1, 0), is_crowd=(0, 0, 0)):
    """Labels of one image, `[1, ...]`, padded."""
    missing = MAX_BOXES - len(boxes)
    boxes = np.asarray(boxes, np.float32).reshape(-1, 4)
    sides = boxes[:, 2:] - boxes[:, :2]
    return {
        "boxes": np.pad(boxes, [(0, missing), (0, 0)])[np.newaxis],
        "classes": np.pad(np.array(classes, np.int32), (0, missing), constant_values=-1)[
            np.newaxis
        ],
        "is_crowd": np.pad(np.array(is_crowd, np.uint8), (0, missing))[np.newaxis],
        "areas": np.pad(sides.prod(axis=1), (0, missing))[np.newaxis],
        "image_id": np.array([number]),
    }


def detections(boxes=BOXES, classes=(0, 1, 0), scores=(0.9, 0.8, 0.7)):
    """Predictions of one image, `[1, ...]`, padded."""
    missing = 9 - len(boxes)
    boxes = np.asarray(boxes, np.float32).reshape(-1, 4)
    return {
        "boxes": np.pad(boxes, [(0, missing), (0, 0)])[np.newaxis],
        "classes": np.pad(np.array(classes, np.int32), (0, missing))[np.newaxis],
        "scores": np.pad(np.array(scores, np.float32), (0, missing))[np.newaxis],
        "num_detections": np.array([len(boxes)]),
    }


def update(metric, labels, predictions, image=None):
    metric.update({} if image is None else {"image": [image]}, labels, predictions)


def random_image(random, number=None):
    """Labels and predictions near them."""
    number = random.integers(1, 10**9) if number is None else number
    corners = np.sort(random.uniform(0, 150, [5, 2, 2]), axis=1).reshape(5, 4)
    found = corners + random.normal(0, 3, [5, 4])
    found[:, 2:] = np.maximum(found[:, 2:], found[:, :2] + 1)
    classes = random.integers(0, 3, 5)
    return (
        image_of(number, corners, classes, random.uniform(size=5) < 0.2),
        detections(
            found, np.where(random.uniform(size=5) < 0.2, 0, classes), random.uniform(size=5)
        ),
    )


def write_files(metric, folder):
    """Writes the truth and the results as the official files; returns their paths."""
    categories = [{"id": i + 1, "name": name} for i, name in enumerate(NAMES)]
    truth = {"images": metric._images, "annotations": metric._truth, "categories": categories}
    (folder / "truth.json").write_text(json.dumps(truth))
    (folder / "results.json").write_text(metric.files()["detections.json"])
    return str(folder / "truth.json"), str(folder / "results.json")


def random_boxes(random, *shape, size=64.0):
    corners = np.sort(random.uniform(0, size, [*shape, 2, 2]), axis=-2)
    return corners.reshape(*shape, 4).astype(np.float32)
