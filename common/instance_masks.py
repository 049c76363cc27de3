"""Masks of objects: placed in their picture, and as COCO's run lengths (RLE).

Coordinates are continuous: pixel i reaches from i to i + 1.
"""

from __future__ import annotations

import numpy as np

THRESHOLD = 0.5  # a pixel belongs to an object from this probability


def paste(mask: np.ndarray, box: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Returns the pixels of an object in its picture, bool `[height, width]`.

    The probabilities are interpolated at the centers of the pixels of the picture, and 0 beside the
    mask, as in Detectron2's `paste_masks_in_image`.

    Args:
      mask: float `[s, s]`, the probability of each part of the box.
      box: y0, x0, y1, x1, float `[4]`.
      size: height and width of the picture.
    """
    y0, x0, y1, x1 = np.asarray(box, np.float64)
    rows, columns = (
        _weights(low, high, length, mask.shape[0])
        for low, high, length in ((y0, y1, size[0]), (x0, x1, size[1]))
    )
    found = np.zeros(size, bool)
    # Few pixels of a picture are in a box.
    inside = tuple(slice(*_bounds(weights)) for weights in (rows, columns))
    found[inside] = rows[inside[0]] @ mask @ columns[inside[1]].T >= THRESHOLD
    return found


def _weights(low, high, length, cells):
    """Returns the weights of the cells of a mask at the pixels of an axis, `[length, cells]`."""
    at = (np.arange(length) + 0.5 - low) / max(high - low, 1e-6) * cells - 0.5
    return np.maximum(0, 1 - np.abs(at[:, np.newaxis] - np.arange(cells)))


def _bounds(weights):
    """Returns the first row that is not zero, and the one after the last."""
    used = np.flatnonzero(weights.any(axis=1))
    return (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 0)


def to_rle(pixels: np.ndarray) -> dict:
    """Returns COCO's compressed run lengths of bool `[height, width]`: `{"size", "counts"}`.

    Runs of 0 and 1 in turn, down the columns.
    """
    flat = np.asarray(pixels, bool).T.ravel()
    ends = np.flatnonzero(np.diff(flat)) + 1
    counts = np.diff(np.concatenate([[0], ends, [flat.size]]))
    if flat.size and flat[0]:
        counts = np.concatenate([[0], counts])
    return rle_of_runs(counts, pixels.shape)


def rle_of_runs(counts: np.ndarray, size: tuple[int, int]) -> dict:
    """Returns COCO's compressed run lengths of runs of 0 and 1 in turn, integers `[runs]`."""
    return {"size": list(size), "counts": _compress(counts.tolist())}


def _compress(counts):
    """Returns runs as text: LEB128 of 5 bits in a character, differences to the last but one.

    Source: rleToString in maskApi.c of pycocotools.
    """
    found = []
    for i, count in enumerate(counts):
        rest = count - counts[i - 2] if i > 2 else count
        more = True
        while more:
            bits, rest = rest & 31, rest >> 5
            more = rest != (-1 if bits & 16 else 0)
            found.append(chr(48 + bits + 32 * more))
    return "".join(found)


def from_rle(rle: dict) -> np.ndarray:
    """Returns the pixels of `to_rle`, bool `[height, width]`."""
    counts: list[int] = []
    value = shift = 0
    for character in rle["counts"]:
        bits = ord(character) - 48
        value |= (bits & 31) << shift
        shift += 5
        if not bits & 32:
            value -= (bits & 16) << shift - 4  # the sign
            counts.append(value + (counts[-2] if len(counts) > 2 else 0))
            value = shift = 0
    height, width = rle["size"]
    flat = np.repeat(np.arange(len(counts)) % 2 == 1, counts)
    return flat.reshape(width, height).T
