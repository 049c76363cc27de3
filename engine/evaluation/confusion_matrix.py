"""Which classes a classifier takes for which: precision and recall, a table, a picture."""

from __future__ import annotations

import io
import os

import numpy as np
from PIL import Image, ImageDraw

from common import files

# A matrix of more classes is no table for people, nor a small file; what is confused most is
# listed for any number.
MAX_LISTED = 100
_MAX_NAMED = 20
_MOST_CONFUSED = 10
_CELL, _NAME, _MAX_NAME = 44, 7, 24  # pixels; of a letter; letters


def write(directory, step, matrix, class_names):
    """Writes `classes_<step>.txt` and `confusion_matrix_<step>.png`; returns the PNG."""
    path = os.path.join(directory, f"classes_{step}.txt")
    with files.atomic_write(path) as file:
        file.write(text(matrix, class_names))
    path = os.path.join(directory, f"confusion_matrix_{step}.png")
    picture = png(matrix, class_names)
    with files.atomic_write(path, "wb") as file:
        file.write(picture)
    return picture


def figures(matrix, class_names):
    """Returns what a result file holds: `per_class`, `most_confused` and, if not large, all."""
    pairs = most_confused(matrix, class_names)
    whole = {"confusion_matrix": matrix} if len(matrix) <= MAX_LISTED else {}
    return {"classes": per_class(matrix, class_names), "most_confused": pairs, **whole}


def per_class(matrix, class_names):
    """Returns `{class name: {"precision", "recall", "f1", "examples"}}`.

    Args:
      matrix: int `[num_classes, num_classes]`, labels as rows, predictions as columns.
      class_names: of the rows and columns.

    A class that is never predicted has no precision, and one without examples no recall: None.
    """
    right = np.diag(matrix)
    examples, predicted = matrix.sum(axis=1), matrix.sum(axis=0)
    return {
        name: {
            "precision": _share(right[i], predicted[i]),
            "recall": _share(right[i], examples[i]),
            "f1": _share(2 * right[i], predicted[i] + examples[i]),
            "examples": int(examples[i]),
        }
        for i, name in enumerate(class_names)
    }


def text(matrix, class_names):
    """Returns the figures of `per_class`, the matrix, and the pairs that are confused most."""
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
        lines += ["", "confused most:"]
        lines += [f"{count:>6}  {label} taken for {other}" for label, other, count in confused]
    return "\n".join(lines) + "\n"


def most_confused(matrix, class_names):
    """Returns up to ten `(label, prediction, count)`, wrong ones, the most frequent first."""
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
    """Returns the matrix as a PNG: each row's shares, white for none, dark for all.

    Up to twenty classes have their names and counts in it; more are drawn a few pixels each.
    """
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    if len(matrix) > _MAX_NAMED:
        cell = max(1, 800 // len(matrix))
        picture = Image.fromarray(np.kron(_colour(shares), np.ones([cell, cell, 1], np.uint8)))
    else:
        picture = _named_picture(matrix, shares, [name[:_MAX_NAME] for name in class_names])
    encoded = io.BytesIO()
    picture.save(encoded, "PNG")
    return encoded.getvalue()


def _named_picture(matrix, shares, names):
    left = top = max(map(len, names)) * _NAME + 10
    side = len(names) * _CELL
    picture = Image.new("RGB", (left + side, top + side), "white")
    colours = _colour(shares)
    draw = ImageDraw.Draw(picture)
    for i, name in enumerate(names):
        middle = (i + 0.5) * _CELL
        draw.text((left - 6, top + middle), name, "black", anchor="rm")
        label = Image.new("RGB", (top, 14), "white")
        ImageDraw.Draw(label).text((6, 7), name, "black", anchor="lm")
        label = label.rotate(90, expand=True)
        picture.paste(label, (round(left + middle) - 7, 0))
        for j in range(len(names)):
            x, y = left + j * _CELL, top + i * _CELL
            draw.rectangle((x, y, x + _CELL - 2, y + _CELL - 2), tuple(colours[i, j].tolist()))
            ink = "white" if shares[i, j] > 0.5 else "black"
            text_at = (x + _CELL / 2 - 1, y + _CELL / 2 - 1)
            draw.text(text_at, str(matrix[i, j]), ink, anchor="mm")
    return picture


def _colour(shares):
    """From white to dark blue, uint8 `[..., 3]`."""
    dark = np.array([8, 48, 107])
    return np.round(255 - shares[..., np.newaxis] * (255 - dark)).astype(np.uint8)


def _share(part, whole):
    return float(part / whole) if whole else None


def _decimal(share):
    return "-" if share is None else f"{share:.4f}"
