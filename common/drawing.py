"""Pictures with boxes, masks of objects and classes of pixels drawn in."""

from __future__ import annotations

import colorsys
import functools
from collections.abc import Iterable, Sequence

import numpy as np
from PIL import Image

from common import instance_masks
from common.canvas import Canvas
from common.constants import IGNORED_CLASS

_LINE = 12  # pixels: height of a line of text
_LEGEND_COLUMN, _LEGEND_LINE, _MAX_NAME = 160, 14, 22  # pixels; characters of a name
_DARK = 380  # the sum of the parts of a color on which texts are white


def class_color(number: int) -> tuple[int, int, int]:
    """Returns the color of a class: hues of neighbors differ, by the golden ratio."""
    hue = number * 0.618033988749895 % 1
    red, green, blue = colorsys.hsv_to_rgb(hue, 0.65 if number % 2 else 0.95, 0.95)
    return round(255 * red), round(255 * green), round(255 * blue)


def draw_boxes(
    picture: Image.Image, boxes: np.ndarray, classes: Iterable[int], texts: Iterable[str]
) -> Image.Image:
    """Returns a copy of an RGB picture with boxes, and a text above each.

    Args:
      picture: RGB picture.
      boxes: y0, x0, y1, x1 in its pixels, `[n, 4]`.
      classes: class of each box, which gives the color.
      texts: text of each box.
    """
    drawn = picture.copy()
    canvas = Canvas(drawn)
    for (y0, x0, y1, x1), label, text in zip(np.asarray(boxes).tolist(), classes, texts):
        color = class_color(int(label))
        # The last pixel of a box: x1 is the border between two pixels.
        corners = (x0, y0, max(x0, x1 - 1), max(y0, y1 - 1))
        canvas.rectangle(corners, outline=color, width=2)
        place = canvas.textbbox((x0 + 1, max(0, y0 - _LINE)), text)
        canvas.rectangle(place, fill=color)
        canvas.text(place[:2], text, "white" if sum(color) < _DARK else "black", anchor="la")
    return drawn


def draw_masks(
    picture: Image.Image, masks: Iterable[np.ndarray | dict], classes: Iterable[int]
) -> Image.Image:
    """Returns an RGB picture, half covered by the colors of masks.

    Args:
      picture: RGB picture of any size; the masks are scaled to it.
      masks: bool `[height, width]`, or COCO's run lengths, `{"size", "counts"}`, of each object.
      classes: class of each object.
    """
    for mask, label in zip(masks, classes):
        pixels = instance_masks.from_rle(mask) if isinstance(mask, dict) else mask
        half = Image.fromarray(pixels.astype(np.uint8) * 128)
        covered = half.resize(picture.size, Image.Resampling.BILINEAR)
        color = Image.new("RGB", picture.size, class_color(int(label)))
        picture = Image.composite(color, picture, covered)
    return picture


def blend(image: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Returns the image half covered by the color of each pixel's class, uint8 `[h, w, 3]`.

    Args:
      image: uint8 `[height, width, 1 or 3]`.
      classes: integers `[height, width]`; pixels of `IGNORED_CLASS` are not covered.
    """
    image = np.broadcast_to(image, (*classes.shape, 3))
    mixed = (image + _palette()[classes]) // 2
    return np.where((classes == IGNORED_CLASS)[..., np.newaxis], image, mixed).astype(np.uint8)


@functools.cache
def _palette():
    return np.array([class_color(number) for number in range(IGNORED_CLASS + 1)], np.uint16)


def draw_legend(
    canvas: Canvas, left: int, top: int, width: int, names: Sequence[tuple[int, str]]
) -> None:
    """Draws the colors and names of classes in columns.

    Args:
      canvas: what is drawn into.
      left: place in pixels.
      top: place in pixels.
      width: in pixels; the height is `legend_height`.
      names: number and name of each class.
    """
    columns = max(1, width // _LEGEND_COLUMN)
    for i, (number, name) in enumerate(names):
        x, y = left + i % columns * _LEGEND_COLUMN, top + i // columns * _LEGEND_LINE
        canvas.rectangle((x, y + 2, x + 10, y + 12), class_color(number))
        canvas.text((x + 14, y), name[:_MAX_NAME], "black")


def legend_height(width: int, count: int) -> int:
    """Returns the height of a legend of `count` classes, in pixels."""
    return _LEGEND_LINE * -(-count // max(1, width // _LEGEND_COLUMN))
