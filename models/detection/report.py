"""Pictures and tables of detections: predictions beside the truth, precision and recall."""

from __future__ import annotations

import heapq
import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image

from common import drawing
from common.canvas import Canvas

_NUM_EXAMPLES = 8  # pairs of pictures of an image
_SIDE = 360  # pixels: the longest side of a picture
_LINE, _MARGIN = 14, 4  # pixels
# A detection is drawn, and counts among the errors of an image, from this score.
_MIN_SCORE = 0.3
_MAX_ID = 30  # letters: the end of a path
_MAX_NAMED, _MAX_NAME = 12, 20  # classes of a legend; letters
_PLOT, _LEFT = 400, 40  # pixels
Arrays = Mapping[str, np.ndarray]


class Examples:
    """Keeps the first images of a split, and those with the most errors."""

    def __init__(self, class_names):
        """Takes the class names, in the order of the classes."""
        self._class_names = class_names
        self._first: list[tuple] = []
        self._worst: list[tuple] = []  # a heap of (errors, -order, example)
        self._count = 0

    def add(self, image_id: int | str, image: Any, truth: Arrays, found: Arrays) -> None:
        """Adds an image.

        Args:
          image_id: its id or path.
          image: encoded file, or uint8 `[height, width, 1 or 3]`; None draws nothing.
          truth: `boxes`, `classes`, `is_crowd`, `[m, ...]`.
          found: `boxes`, `scores`, `classes`, `[d, ...]`, best score first. Both may have `masks`,
            COCO's run lengths of each object, object `[n]`.
        """
        if image is None:
            return
        shown = found["scores"] >= _MIN_SCORE
        found = {name: values[shown] for name, values in found.items()}
        example = (image_id, image, truth, found)
        if len(self._first) < _NUM_EXAMPLES:
            self._first.append(example)
        errors = num_errors(truth, found)
        self._count += 1
        if errors:
            heapq.heappush(self._worst, (errors, -self._count, example))
        if len(self._worst) > _NUM_EXAMPLES:
            heapq.heappop(self._worst)

    def draw_first(self) -> Image.Image | None:
        """Draws the first images; None without images."""
        return self._draw(self._first)

    def draw_worst(self) -> Image.Image | None:
        """Draws the images with the most errors, the worst first; None without errors."""
        return self._draw([example for *_, example in sorted(self._worst, reverse=True)])

    def _draw(self, examples):
        rows = [self._pair(*example) for example in examples]
        if not rows:
            return None
        width = max(row.width for row in rows)
        sheet = Image.new("RGB", (width, sum(row.height + _MARGIN for row in rows)), "white")
        top = 0
        for row in rows:
            sheet.paste(row, (0, top))
            top += row.height + _MARGIN
        return sheet

    def _pair(self, image_id, image, truth, found):
        """Draws the predictions of an image, and on their right its boxes."""
        picture = _open(image)
        scale = _SIDE / max(picture.size)
        size = [max(1, round(side * scale)) for side in picture.size]
        picture = picture.resize(size)
        captions = [f"{self._name(c)} {s:.2f}" for c, s in zip(found["classes"], found["scores"])]
        names = [
            self._name(c) + (" (crowd)" if is_crowd else "")
            for c, is_crowd in zip(truth["classes"], truth["is_crowd"])
        ]
        pair = Image.new("RGB", (2 * _SIDE + _MARGIN, size[1] + _LINE), "white")
        sides = (
            (f"image {str(image_id)[-_MAX_ID:]}: {len(captions)} predictions", found, captions),
            (f"{len(names)} boxes, {num_errors(truth, found)} errors", truth, names),
        )
        for i, (title, boxes, texts) in enumerate(sides):
            left = i * (_SIDE + _MARGIN)
            Canvas(pair).text((left, 0), title, "black")
            covered = drawing.draw_masks(picture, boxes.get("masks", ()), boxes["classes"])
            drawn = drawing.draw_boxes(covered, boxes["boxes"] * scale, boxes["classes"], texts)
            pair.paste(drawn, (left, _LINE))
        return pair

    def _name(self, number):
        return self._class_names[number][:_MAX_NAME]


def num_errors(truth: Arrays, found: Arrays, min_iou: float = 0.5) -> int:
    """Returns the number of boxes without a detection, and of detections without a box.

    Each detection, best score first, gets the box of its class with the largest IoU that has none
    yet. Crowds, and detections in them, are not errors.

    Args:
      truth: `boxes`, `classes`, `is_crowd`, `[m, ...]`.
      found: `boxes`, `classes`, `[d, ...]`, best score first.
      min_iou: float.
    """
    is_free = np.asarray(truth["is_crowd"]) == 0
    errors = int(is_free.sum())
    overlap = _iou(found["boxes"], truth["boxes"])
    in_crowd = _iou(found["boxes"], truth["boxes"], of_first=True) * (truth["is_crowd"] != 0)
    for row, crowd_row, label in zip(overlap, in_crowd, found["classes"]):
        row = np.where(is_free & (truth["classes"] == label), row, 0.0)
        if row.max(initial=0.0) >= min_iou:
            is_free[row.argmax()] = False
            errors -= 1
        elif crowd_row.max(initial=0.0) < min_iou:
            errors += 1
    return errors


def draw_curves(curves: Mapping[str, np.ndarray]) -> Image.Image:
    """Draws precision (vertical) against recall at IoU 0.5, with the area below as AP50.

    Args:
      curves: `{class name: precision at the recalls 0, 0.01, ..., 1}`; -1 without boxes. With many
        classes only their mean is drawn.
    """
    counted = {name: curve for name, curve in curves.items() if curve.min() >= 0}
    shown = dict(counted) if len(counted) <= _MAX_NAMED else {}
    if len(counted) != 1:
        shown["mean"] = np.mean(list(counted.values()), axis=0) if counted else np.zeros(101)
    image = Image.new("RGB", (_LEFT + _PLOT + 220, _PLOT + 2 * _LINE + 20), "white")
    canvas = Canvas(image)
    top = _LINE
    for i in range(6):
        y, x = top + _PLOT * (1 - i / 5), _LEFT + _PLOT * i / 5
        canvas.line((_LEFT, y, _LEFT + _PLOT, y), "lightgray")
        canvas.line((x, top, x, top + _PLOT), "lightgray")
        canvas.text((_LEFT - 6, y), f"{i / 5:.1f}", "black", anchor="rm")
        canvas.text((x, top + _PLOT + 4), f"{i / 5:.1f}", "black", anchor="ma")
    canvas.text(
        (_LEFT + _PLOT / 2, top + _PLOT + 20), "recall (precision upwards)", "black", anchor="ma"
    )
    colors = {name: drawing.class_color(number) for number, name in enumerate(curves)}
    for i, (name, curve) in enumerate(shown.items()):
        color = colors.get(name, "black")
        points = [
            (_LEFT + _PLOT * j / (len(curve) - 1), top + _PLOT * (1 - value))
            for j, value in enumerate(curve.tolist())
        ]
        canvas.line(points, color, 2)
        y = top + 1.5 * _LINE * i
        canvas.rectangle((_LEFT + _PLOT + 10, y, _LEFT + _PLOT + 20, y + 10), color)
        text = f"{name[:_MAX_NAME]}: {np.mean(curve):.3f}"
        canvas.text((_LEFT + _PLOT + 26, y - 1), text, "black")
    return image


def table(classes: Mapping[str, Mapping[str, float]]) -> str:
    """Returns the metrics of each class as lines of text."""
    width = max(len(name[:_MAX_NAME]) for name in [*classes, "class"])
    lines = [f"{'class':{width}}      AP    AP50    AP75  boxes"]
    for name, row in classes.items():
        numbers = "  ".join(_decimal(row[key]) for key in ("AP", "AP50", "AP75"))
        lines.append(f"{name[:_MAX_NAME]:{width}}  {numbers}  {row['boxes']:>5}")
    return "\n".join(lines) + "\n"


def markdown(classes: Mapping[str, Mapping[str, float]]) -> str:
    """Returns the metrics of each class as a table for TensorBoard."""
    lines = ["| class | AP | AP50 | AP75 | boxes |", "| --- | --- | --- | --- | --- |"]
    for name, row in classes.items():
        numbers = " | ".join(_decimal(row[key]).strip() for key in ("AP", "AP50", "AP75"))
        name = name.replace("|", "\\|")
        lines.append(f"| {name} | {numbers} | {row['boxes']} |")
    return "\n".join(lines)


def _decimal(value):
    return "     -" if value < 0 else f"{value:6.4f}"


def _open(image):
    """Returns the RGB picture of an encoded file or of pixels `[height, width, 1 or 3]`."""
    if isinstance(image, bytes):
        return Image.open(io.BytesIO(image)).convert("RGB")
    return Image.fromarray(np.broadcast_to(image, (*image.shape[:2], 3)).astype(np.uint8))


def _iou(boxes, others, of_first=False):
    """Returns the IoU `[m, n]` of all pairs; with `of_first` the part of the first box."""
    boxes, others = boxes[:, np.newaxis], others[np.newaxis]
    low, high = np.maximum(boxes, others)[..., :2], np.minimum(boxes, others)[..., 2:]
    common = np.prod(np.maximum(high - low, 0), axis=-1)
    areas, other_areas = (np.prod(b[..., 2:] - b[..., :2], axis=-1) for b in (boxes, others))
    whole = areas + 0 * other_areas if of_first else areas + other_areas - common
    return np.divide(common, whole, out=np.zeros_like(common), where=whole > 0)
