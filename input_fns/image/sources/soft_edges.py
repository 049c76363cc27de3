"""Tells the soft (antialiased) edges of a mask of two values from a third value.

Imports no TensorFlow: it runs in many worker processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

# Edges that fill more of a mask are no edges: a photo, or a map of probabilities.
_MAX_SHARE = 0.25
# Antialiased edges have many values. A value with nearly all of these pixels is a separate class,
# such as the border of a trimap; a few pixels of one value may be an edge.
_MAX_OF_ONE_VALUE, _FEW_PIXELS = 0.9, 16


def are_soft(values: np.ndarray, between: Mapping[int, int], ends: Sequence[int]) -> bool:
    """Whether the values of a mask that are of no class are those of soft edges.

    Args:
      values: values of the mask, integers `[height, width]`.
      between: `{value: pixels}` of the values that are of no class.
      ends: the two values of the classes, the lower one first; () for other classes.
    """
    if len(ends) != 2 or not all(ends[0] < value < ends[1] for value in between):
        return False
    total = sum(between.values())
    if total > _MAX_SHARE * values.size:
        return False
    if total > _FEW_PIXELS and max(between.values()) > _MAX_OF_ONE_VALUE * total:
        return False
    return not _has_flat_area(values, list(between))


def _has_flat_area(values, between):
    """Whether 3 x 3 pixels have the same one of some values: across an edge, values change."""
    height, width = values.shape
    inner = values[1:-1, 1:-1]
    flat = np.isin(inner, between)
    for y in range(3):
        for x in range(3):
            flat &= values[y : height - 2 + y, x : width - 2 + x] == inner
    return bool(flat.any())
