"""Confusion matrix of a classifier, a report: precision and recall per class, as text and image."""

from __future__ import annotations

import numpy as np
from PIL import Image

from common import pictures
from common.canvas import Canvas
from models import collapse

# Larger matrices are left out of tables and result files; the most confused pairs are listed for
# any number of classes.
MAX_LISTED = 100
_MAX_NAMED = 20
_MOST_CONFUSED = 10
_CELL, _LETTER, _MAX_NAME = 44, 7, 24  # pixels; pixels; letters


class ConfusionMatrix:
    """Report of the metric `confusion_matrix`, int `[num_classes, num_classes]`.

    Rows are labels, columns are predictions.
    """

    num_examples = 0

    def __init__(self, class_names):
        """Takes the class names, in the order of the labels."""
        self._class_names = class_names

    def write(self, evaluation):
        """Writes text, a PNG, and TensorBoard's image and table; returns `figures`."""
        matrix, names = evaluation.metrics["confusion_matrix"], self._class_names
        image = png(matrix, names)
        evaluation.write_file(f"classes_{evaluation.step}.txt", text(matrix, names))
        evaluation.write_file(f"confusion_matrix_{evaluation.step}.png", image)
        evaluation.write_image("confusion_matrix/rows_are_labels", image)
        if len(matrix) <= MAX_LISTED:
            evaluation.write_text("confusion_matrix/table", markdown(matrix, names))
        return figures(matrix, names)

    def text(self, evaluation):
        """Returns precision, recall and F1 of each class, the matrix and the most confused."""
        return text(evaluation.metrics["confusion_matrix"], self._class_names)

    def find_collapse(self, evaluation):
        """Returns a line if all predictions are one class; see `models.model.CollapseFinder`."""
        return collapse.of_classes(evaluation.metrics["confusion_matrix"], self._class_names)


def figures(matrix, class_names):
    """Returns the values for the result file: `per_class`, `most_confused`, the matrix if small."""
    pairs = most_confused(matrix, class_names)
    whole = {"confusion_matrix": matrix} if len(matrix) <= MAX_LISTED else {}
    return {"classes": per_class(matrix, class_names), "most_confused": pairs, **whole}


def per_class(matrix, class_names):
    """Returns `{class name: {"precision", "recall", "f1", "examples"}}`.

    Args:
      matrix: int `[num_classes, num_classes]`, labels as rows, predictions as columns.
      class_names: of the rows and columns.

    The precision of a class that is never predicted is None; so is the recall of one without
    examples.
    """
    right = np.diag(matrix)
    examples, predicted = matrix.sum(axis=1), matrix.sum(axis=0)
    return {
        name: {
            "precision": _ratio(right[i], predicted[i]),
            "recall": _ratio(right[i], examples[i]),
            "f1": _ratio(2 * right[i], predicted[i] + examples[i]),
            "examples": int(examples[i]),
        }
        for i, name in enumerate(class_names)
    }


def text(matrix, class_names):
    """Returns `per_class` as a table, the matrix if small, and the most confused pairs."""
    names = [name[:_MAX_NAME] for name in class_names]
    width = max(len(name) for name in [*names, "label"])
    lines = [f"{'class':{width}}  precision  recall      f1  examples"]
    for name, row in zip(names, per_class(matrix, class_names).values()):
        precision, recall, f1 = (_decimal(row[key]) for key in ("precision", "recall", "f1"))
        lines.append(f"{name:{width}}  {precision:>9}  {recall:>6}  {f1:>6}  {row['examples']:>8}")
    if len(names) <= _MAX_NAMED:
        columns = [max(len(name), len(str(matrix[:, i].max()))) for i, name in enumerate(names)]
        lines += ["", "labels are rows, predictions columns:"]
        for name, row in (("", names), *zip(names, matrix)):
            cells = (f"{cell:>{column}}" for cell, column in zip(row, columns))
            lines.append("  ".join([f"{name:{width}}", *cells]))
    confused = most_confused(matrix, class_names)
    if confused:
        lines += ["", "most confused:"]
        lines += [f"{count:>6}  {label} predicted as {other}" for label, other, count in confused]
    return "\n".join(lines) + "\n"


def most_confused(matrix, class_names):
    """Returns the ten most frequent errors, `(label, prediction, count)`."""
    wrong = matrix * (1 - np.eye(len(matrix), dtype=matrix.dtype))
    order = np.argsort(-wrong, axis=None, kind="stable")[:_MOST_CONFUSED]
    pairs = (np.unravel_index(i, wrong.shape) for i in order)
    return [
        (class_names[label], class_names[other], int(wrong[label, other]))
        for label, other in pairs
        if wrong[label, other]
    ]


def markdown(matrix, class_names):
    """Returns the matrix as a table for TensorBoard."""
    lines = [["label / prediction", *class_names], ["---"] * (len(class_names) + 1)]
    lines += [[f"**{name}**", *map(str, row)] for name, row in zip(class_names, matrix)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def png(matrix, class_names):
    """Returns the matrix as a PNG: the fraction of each row, from white (0) to dark blue (1).

    Up to twenty classes are drawn with names and counts, more as a few pixels each.
    """
    fractions = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    if len(matrix) > _MAX_NAMED:
        cell = max(1, 800 // len(matrix))
        image = Image.fromarray(np.kron(_color(fractions), np.ones([cell, cell, 1], np.uint8)))
    else:
        image = _draw_named(matrix, fractions, [name[:_MAX_NAME] for name in class_names])
    return pictures.to_png(image)


def _draw_named(matrix, fractions, names):
    left = top = max(map(len, names)) * _LETTER + 10
    side = len(names) * _CELL
    image = Image.new("RGB", (left + side, top + side), "white")
    colors = _color(fractions)
    draw = Canvas(image)
    for i, name in enumerate(names):
        middle = (i + 0.5) * _CELL
        draw.text((left - 6, top + middle), name, "black", anchor="rm")
        label = Image.new("RGB", (top, 14), "white")
        Canvas(label).text((6, 7), name, "black", anchor="lm")
        label = label.rotate(90, expand=True)
        image.paste(label, (round(left + middle) - 7, 0))
        for j in range(len(names)):
            x, y = left + j * _CELL, top + i * _CELL
            draw.rectangle((x, y, x + _CELL - 2, y + _CELL - 2), tuple(colors[i, j].tolist()))
            ink = "white" if fractions[i, j] > 0.5 else "black"
            text_at = (x + _CELL / 2 - 1, y + _CELL / 2 - 1)
            draw.text(text_at, str(matrix[i, j]), ink, anchor="mm")
    return image


def _color(fractions):
    """From white to dark blue, uint8 `[..., 3]`."""
    dark = np.array([8, 48, 107])
    return np.round(255 - fractions[..., np.newaxis] * (255 - dark)).astype(np.uint8)


def _ratio(part, whole):
    return float(part / whole) if whole else None


def _decimal(fraction):
    return "-" if fraction is None else f"{fraction:.4f}"
