"""Exact intersection over union of a split, from its confusion matrix, and the report of it."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from common.constants import IGNORED_CLASS
from models import classification, confusion_matrix


def streaming(labels, classes, weights, num_classes):
    """Returns streaming `mean_iou`, `pixel_accuracy` and `confusion_matrix`.

    Pixels are counted in int64, so the metrics of a split are exact and do not depend on the batch
    size. Ignored pixels and padded examples are not counted.

    Args:
      labels: uint8 `[batch, height, width]`, the class of each pixel, or `IGNORED_CLASS`.
      classes: integers `[batch, height, width]`, the predicted classes.
      weights: float32 `[batch]`, 1 for an example, 0 for padding.
      num_classes: number of classes.

    Returns:
      `{name: (value, update_op)}`; float64 scalars, and int64 `[num_classes, num_classes]` with
      labels as rows.
    """
    total = classification.metric_total(
        "confusion_matrix/total", [num_classes, num_classes], tf.int64
    )
    counted = tf.not_equal(labels, IGNORED_CLASS) & (weights > 0)[:, tf.newaxis, tf.newaxis]
    num_cells = num_classes**2
    cells = tf.cast(labels, tf.int32) * num_classes + tf.cast(classes, tf.int32)
    # The kernel counts no cells from num_cells on.
    cells = tf.reshape(tf.where(counted, cells, num_cells), [-1])
    matrix = tf.raw_ops.DenseBincount(
        input=cells, size=num_cells, weights=tf.zeros([0], tf.int64), binary_output=False
    )
    matrix = tf.reshape(matrix, [num_classes, num_classes])
    matrices = total.read_value(), total.assign_add(matrix)
    return {
        "mean_iou": tuple(map(mean_iou, matrices)),
        "pixel_accuracy": tuple(map(pixel_accuracy, matrices)),
        "confusion_matrix": matrices,
    }


def mean_iou(matrix):
    """Mean IoU of the classes that occur in labels or predictions, a float64 scalar tensor.

    Args:
      matrix: confusion matrix, int64 `[num_classes, num_classes]`.
    """
    matrix = tf.cast(matrix, tf.float64)
    hits = tf.linalg.diag_part(matrix)
    unions = tf.reduce_sum(matrix, axis=0) + tf.reduce_sum(matrix, axis=1) - hits
    count = tf.math.count_nonzero(unions, dtype=tf.float64)
    return tf.math.divide_no_nan(tf.reduce_sum(tf.math.divide_no_nan(hits, unions)), count)


def pixel_accuracy(matrix):
    """Fraction of the labeled pixels with the right class, a float64 scalar tensor."""
    matrix = tf.cast(matrix, tf.float64)
    return tf.math.divide_no_nan(tf.linalg.trace(matrix), tf.reduce_sum(matrix))


def image_iou(labels, classes, num_classes):
    """Mean IoU of each image over the classes that occur in it, to rank images.

    Args:
      labels: uint8 `[batch, height, width]`, the class of each pixel, or `IGNORED_CLASS`.
      classes: integers `[batch, height, width]`, the predicted classes.
      num_classes: number of classes.

    Returns:
      float32 `[batch]`; 1 for an image without labeled pixels.
    """
    is_labeled = tf.not_equal(labels, IGNORED_CLASS)
    labels = tf.where(is_labeled, tf.cast(labels, tf.int32), num_classes)
    classes = tf.where(is_labeled, tf.cast(classes, tf.int32), num_classes)

    def count(values):  # [batch, num_classes], without the last class, that of ignored pixels
        rows = tf.reshape(values, [tf.shape(values)[0], -1])
        counts = tf.raw_ops.DenseBincount(
            input=rows, size=num_classes + 1, weights=tf.zeros([0]), binary_output=False
        )
        return counts[:, :num_classes]

    hits = count(tf.where(tf.equal(labels, classes), labels, num_classes))
    unions = count(labels) + count(classes) - hits
    occurs = tf.math.count_nonzero(unions, axis=-1, dtype=tf.float32)
    mean = tf.math.divide_no_nan(tf.reduce_sum(tf.math.divide_no_nan(hits, unions), -1), occurs)
    return tf.where(occurs > 0, mean, 1.0)


def per_class(matrix, class_names):
    """Returns `{class name: {"iou", "precision", "recall", "pixels"}}`.

    The IoU of a class that is in neither labels nor predictions is None; so is the precision of a
    class that is never predicted, and the recall of one without pixels.

    Args:
      matrix: int `[num_classes, num_classes]`, labels as rows, predictions as columns.
      class_names: of the rows and columns.
    """
    hits, pixels, predicted = np.diag(matrix), matrix.sum(axis=1), matrix.sum(axis=0)

    def ratio(part, whole):
        return float(part / whole) if whole else None

    return {
        name: {
            "iou": ratio(hits[i], pixels[i] + predicted[i] - hits[i]),
            "precision": ratio(hits[i], predicted[i]),
            "recall": ratio(hits[i], pixels[i]),
            "pixels": int(pixels[i]),
        }
        for i, name in enumerate(class_names)
    }


class IoUReport:
    """Report of the metric `confusion_matrix`, in pixels: IoU, precision and recall per class."""

    num_examples = 0

    def __init__(self, class_names):
        """Takes the class names, in the order of the labels."""
        self._class_names = class_names

    def write(self, evaluation):
        """Writes text, a PNG, and TensorBoard's image and table; returns the values per class."""
        matrix, names = evaluation.metrics["confusion_matrix"], self._class_names
        # In percent of the pixels of each class.
        percent = 100 * matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
        image = confusion_matrix.png(np.rint(percent).astype(int), names)
        evaluation.write_file(f"classes_{evaluation.step}.txt", self.text(evaluation))
        evaluation.write_file(f"confusion_matrix_{evaluation.step}.png", image)
        evaluation.write_image("confusion_matrix/percent_of_rows_of_labels", image)
        found = per_class(matrix, names)
        rows = [f"| {name} | " + " | ".join(_texts(row)) + " |" for name, row in found.items()]
        head = ["| class | IoU | precision | recall | pixels |", "| --- |" + " --- |" * 4]
        evaluation.write_text("iou/table", "\n".join(head + rows))
        is_small = len(matrix) <= confusion_matrix.MAX_LISTED
        return {"classes": found, **({"confusion_matrix": matrix} if is_small else {})}

    def text(self, evaluation):
        """Returns IoU, precision, recall and the number of pixels of each class as a table."""
        found = per_class(evaluation.metrics["confusion_matrix"], self._class_names)
        width = max(len(name) for name in [*found, "class"])
        lines = [f"{'class':{width}}     IoU  precision  recall        pixels"]
        for name, row in found.items():
            iou, precision, recall, pixels = _texts(row)
            lines.append(f"{name:{width}}  {iou:>6}  {precision:>9}  {recall:>6}  {pixels:>12}")
        return "\n".join(lines) + "\n"


def _texts(row):
    ratios = ["-" if row[key] is None else f"{row[key]:.4f}" for key in row if key != "pixels"]
    return [*ratios, f"{row['pixels']:,}"]
