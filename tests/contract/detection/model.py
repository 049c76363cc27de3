"""A small detector: each cell of a grid predicts a box, its class and whether there is one."""

import numpy as np
import tensorflow as tf

from models.model import Loss, Model
from tests.contract.detection.data import NUM_CLASSES

MIN_IOU = 0.5


def default_params():
    return {"filters": 16, "grid": 5, "box_scale": 2.0}


def inference(features, params, training):
    """Returns `{"boxes": {"boxes", "class_logits", "logits"}}`, `[batch, cells, ...]`."""
    x = tf.cast(features["image"], tf.float32) / 255
    stride = int(x.shape[1]) // params["grid"]
    for i in range(2):
        x = tf.compat.v1.layers.conv2d(
            x, params["filters"], 3, padding="same", activation=tf.nn.elu, name=f"conv_{i}"
        )
    x = tf.compat.v1.layers.conv2d(
        x, 2 * params["filters"], 2 * stride - 1, stride, "same", activation=tf.nn.elu, name="cells"
    )
    x = tf.compat.v1.layers.conv2d(x, 5 + NUM_CLASSES, 1, name="boxes")
    cells = tf.reshape(x, [-1, params["grid"] ** 2, 5 + NUM_CLASSES])
    # Boxes are relative to the center of their cell.
    boxes = tf.reshape(_centers(params["grid"]), [1, -1, 2])
    boxes = tf.concat([boxes, boxes], -1) + 0.1 * cells[..., :4]
    return {"cells": {"boxes": boxes, "logits": cells[..., 4], "class_logits": cells[..., 5:]}}


def _centers(grid):
    """Returns the centers of the cells, y and x, float32 `[grid, grid, 2]`."""
    steps = (np.arange(grid, dtype=np.float32) + 0.5) / grid
    return np.stack(np.meshgrid(steps, steps, indexing="ij"), -1)


def losses(features, labels, outputs, params):
    cells, grid = outputs["cells"], params["grid"]
    valid = tf.cast(labels["valid"], tf.float32)
    centers = (labels["boxes"][..., :2] + labels["boxes"][..., 2:]) / 2
    rows, columns = tf.unstack(tf.cast(centers * grid, tf.int32), axis=-1)
    # [batch, max_boxes, cells]: a box belongs to the cell of its center.
    assigned = tf.one_hot(rows * grid + columns, grid**2) * valid[..., tf.newaxis]

    def of_boxes(values):
        return tf.matmul(assigned, values)  # the outputs of the cells of the boxes

    box = tf.reduce_sum(tf.square(of_boxes(cells["boxes"]) - labels["boxes"]), -1)
    kind = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=labels["classes"], logits=of_boxes(cells["class_logits"])
    )
    is_object = tf.reduce_max(assigned, axis=1)
    objectness = tf.nn.sigmoid_cross_entropy_with_logits(labels=is_object, logits=cells["logits"])
    num_boxes = tf.reduce_sum(valid, axis=1)

    def mean(values):
        return tf.math.divide_no_nan(tf.reduce_sum(values * valid, axis=1), num_boxes)

    return {
        "box": Loss(mean(box), num_boxes, params["box_scale"]),
        "class": Loss(mean(kind), num_boxes),
        "objectness": Loss(tf.reduce_mean(objectness, axis=1)),
    }


def predictions(features, outputs, params):
    """Returns the boxes of an image, the most certain first."""
    cells = outputs["cells"]
    probabilities = tf.nn.softmax(cells["class_logits"])
    scores = tf.sigmoid(cells["logits"]) * tf.reduce_max(probabilities, -1)
    scores, order = tf.math.top_k(scores, scores.shape[1])
    classes = tf.argmax(cells["class_logits"], -1, tf.int32)
    return {
        "boxes": tf.gather(cells["boxes"], order, batch_dims=1),
        "classes": tf.gather(classes, order, batch_dims=1),
        "scores": scores,
    }


class AveragePrecision:
    """Mean over the classes of the area under the precision-recall curve, over the whole split."""

    names = ("mean_average_precision", "num_boxes")

    def __init__(self):
        self._found = [[] for _ in range(NUM_CLASSES)]  # (score, whether it is a box) of each
        self._num_boxes = np.zeros(NUM_CLASSES, np.int64)

    def update(self, features, labels, predictions):
        for i in range(len(labels["valid"])):
            image = {name: values[i] for name, values in predictions.items()}
            valid = labels["valid"][i]
            self._add(image, labels["boxes"][i][valid], labels["classes"][i][valid])

    def _add(self, image, boxes, classes):
        for which in range(NUM_CLASSES):
            left = list(boxes[classes == which])
            self._num_boxes[which] += len(left)
            for box, score in zip(
                image["boxes"][image["classes"] == which],
                image["scores"][image["classes"] == which],
            ):
                overlaps = [iou(box, other) for other in left]
                is_hit = max(overlaps, default=0) >= MIN_IOU
                if is_hit:
                    left.pop(int(np.argmax(overlaps)))
                self._found[which].append((score, is_hit))

    def result(self):
        precisions = []
        for found, num_boxes in zip(self._found, self._num_boxes):
            is_hit = np.array([hit for _, hit in sorted(found, key=lambda pair: -pair[0])])
            precision = np.cumsum(is_hit) / np.arange(1, len(is_hit) + 1)
            precisions.append(np.sum(precision[is_hit]) / num_boxes)
        return {
            "mean_average_precision": float(np.mean(precisions)),
            "num_boxes": int(self._num_boxes.sum()),
        }


def iou(a, b):
    """Returns the intersection over union of two boxes."""
    sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    intersection = np.prod(np.maximum(sides, 0))
    return intersection / (np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - intersection)


MODEL = Model(
    "detection",
    default_params,
    inference,
    losses,
    predictions,
    host_metrics=lambda params, pipeline: [AveragePrecision()],
    features=("image",),
)
