"""Plots of reports as PNG: lines and points with axes."""

from __future__ import annotations

import colorsys
from collections.abc import Mapping

import numpy as np
from PIL import Image

from common import pictures
from common.canvas import Canvas

_SIDE, _MARGIN, _LEGEND, _LINE = 400, 48, 200, 14  # pixels
MAX_LINES = 24
_MAX_POINTS = 5000


def lines(values: Mapping[str, tuple[np.ndarray, np.ndarray]], x_name: str, y_name: str) -> bytes:
    """Returns the lines of `{name: (x, y)}`, numbers in [0, 1]; of many lines the first ones."""
    image, draw = _axes(_LEGEND, x_name, y_name, (0, 1), (0, 1))
    for number, (name, (x, y)) in enumerate(list(values.items())[:MAX_LINES]):
        color = tuple(round(255 * c) for c in colorsys.hsv_to_rgb(number * 0.618 % 1, 0.9, 0.75))
        step = max(1, len(x) // _MAX_POINTS)
        places = _places(x[::step], y[::step], (0, 1), (0, 1))
        draw.line([places[0], *places], color, 2)  # a line needs two points
        draw.text((_MARGIN + _SIDE + 8, _MARGIN + number * _LINE), name[:28], color)
    return pictures.to_png(image)


def scatter(x: np.ndarray, y: np.ndarray, x_name: str, y_name: str) -> bytes:
    """Returns the points (x, y) and the line on which both are equal."""
    step = max(1, len(x) // _MAX_POINTS)
    x, y = (np.asarray(values, np.float64)[::step] for values in (x, y))
    is_finite = np.isfinite(x) & np.isfinite(y)
    x, y = x[is_finite], y[is_finite]
    low = float(min(x.min(initial=np.inf), y.min(initial=np.inf))) if len(x) else 0.0
    high = float(max(x.max(initial=-np.inf), y.max(initial=-np.inf))) if len(x) else 1.0
    bounds = (low, high) if high > low else (low - 0.5, low + 0.5)
    image, draw = _axes(0, x_name, y_name, bounds, bounds)
    draw.line(_places(np.array(bounds), np.array(bounds), bounds, bounds), "lightgray")
    for left, top in _places(x, y, bounds, bounds):
        draw.ellipse((left - 2, top - 2, left + 2, top + 2), "steelblue")
    return pictures.to_png(image)


def _axes(right, x_name, y_name, x_bounds, y_bounds):
    size = _SIDE + 2 * _MARGIN
    image = Image.new("RGB", (size + right, size), "white")
    draw = Canvas(image)
    end = _MARGIN + _SIDE
    draw.rectangle((_MARGIN, _MARGIN, end, end), outline="black")
    draw.text((_MARGIN, _MARGIN - 2 * _LINE), y_name, "black")
    draw.text((_MARGIN + _SIDE // 2, end + 2 * _LINE), x_name, "black", anchor="mm")
    for place, bound in zip((_MARGIN, end), x_bounds):
        draw.text((place, end + _LINE), f"{bound:.4g}", "black", anchor="mm")
    for place, bound in zip((end, _MARGIN), y_bounds):
        draw.text((_MARGIN - 4, place), f"{bound:.4g}", "black", anchor="rm")
    return image, draw


def _places(x, y, x_bounds, y_bounds):
    """Returns the pixels (left, top) of points."""
    left = _MARGIN + _SIDE * (x - x_bounds[0]) / (x_bounds[1] - x_bounds[0])
    top = _MARGIN + _SIDE * (1 - (y - y_bounds[0]) / (y_bounds[1] - y_bounds[0]))
    return list(zip(left.tolist(), top.tolist()))
