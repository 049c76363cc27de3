"""RoIAlign: features of fixed size for boxes of any size (He et al. 2017, arXiv:1703.06870).

Coordinates are continuous, pixel i reaches from i to i + 1, so a box is scaled to its feature map
and half a pixel is subtracted before the bilinear interpolation, as in Detectron2 (aligned=True).
The numbers equal those of `torchvision.ops.roi_align(..., aligned=True)`.

A gather and matrix products: ops with static shapes that XLA, TensorFlow Lite and ONNX have.
`tf.image.crop_and_resize` interpolates once per bin, between other positions.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

# The canonical size of ImageNet's images, and its level (Lin et al. 2016, arXiv:1612.03144, eq. 1).
_CANONICAL_SIDE, _CANONICAL_LEVEL = 224.0, 4


def levels(boxes, min_level, max_level):
    """Returns the level of the pyramid for each box: larger boxes have coarser feature maps.

    Args:
      boxes: float32 `[..., 4]`.
      min_level: int.
      max_level: int.

    Returns:
      int32 `[...]` in [min_level, max_level].
    """
    y0, x0, y1, x1 = tf.unstack(boxes, axis=-1)
    side = tf.sqrt(tf.maximum((y1 - y0) * (x1 - x0), 1e-6))
    octave = tf.math.log(side / _CANONICAL_SIDE) / tf.math.log(2.0)
    # A box of exactly 2^k times 224 pixels belongs to the coarser level, whatever the rounding.
    level = tf.cast(tf.floor(_CANONICAL_LEVEL + octave + 1e-6), tf.int32)
    return tf.clip_by_value(level, min_level, max_level)


def roi_align(maps, boxes, size, samples):
    """Returns the features of boxes, each from one level of a feature pyramid.

    A box is divided into `size` x `size` bins. A bin is the mean of `samples` x `samples` values,
    interpolated at regular places of the bin. No gradient flows into the boxes.

    Args:
      maps: `{level: [batch, height, width, channels]}`, a cell for each 2^level x 2^level pixels.
      boxes: float32 `[batch, n, 4]`, (y0, x0, y1, x1) in pixels of the image.
      size: int.
      samples: int.

    Returns:
      `[batch, n, size, size, channels]` of the dtype of the maps.
    """
    boxes = tf.stop_gradient(boxes)
    names = sorted(maps)
    heights, widths = zip(*(maps[level].shape.as_list()[1:3] for level in names))
    channels = maps[names[0]].shape.as_list()[-1]
    areas = [height * width for height, width in zip(heights, widths)]
    firsts = [sum(areas[:i]) for i in range(len(areas))]  # the first cell of each level
    cells = tf.concat(
        [tf.reshape(maps[level], [-1, a, channels]) for level, a in zip(names, areas)], 1
    )

    place = levels(boxes, names[0], names[-1]) - names[0]  # [batch, n]

    def of_level(values, dtype=tf.int32):
        return tf.gather(tf.constant(values, dtype), place)

    scale = of_level([2.0**-level for level in names], tf.float32)
    y0, x0, y1, x1 = tf.unstack(boxes * scale[..., tf.newaxis], axis=-1)
    height, width = of_level(heights), of_level(widths)
    rows, row_weights = _corners(y0, y1, height, size, samples)  # [batch, n, 2 * size * samples]
    columns, column_weights = _corners(x0, x1, width, size, samples)
    index = rows[..., :, tf.newaxis] * width[..., tf.newaxis, tf.newaxis]
    index += columns[..., tf.newaxis, :] + of_level(firsts)[..., tf.newaxis, tf.newaxis]

    batch, count = boxes.shape.as_list()[0], boxes.shape.as_list()[1]
    batch = tf.shape(boxes)[0] if batch is None else batch
    # One gather of rows: the cells of all images are one table.
    index += (tf.range(batch) * sum(areas))[:, tf.newaxis, tf.newaxis, tf.newaxis]
    values = tf.gather(tf.reshape(cells, [-1, channels]), tf.reshape(index, [-1]))
    weights = tf.cast(_bin_weights(row_weights, column_weights, size, samples), values.dtype)
    # A matrix product for each row of bins.
    bins = tf.matmul(weights, tf.reshape(values, [-1, weights.shape.as_list()[-1], channels]))
    return tf.reshape(bins, [-1, count, size, size, channels])


def _bin_weights(rows, columns, size, samples):
    """Returns the weights of the cells of a row of bins in each of its bins.

    Args:
      rows: float32 `[batch, n, 2 * size * samples]`, weights of `_corners`.
      columns: like `rows`.
      size: see `roi_align`.
      samples: see `roi_align`.

    Returns:
      float32 `[batch * n * size, size, cells]`: the cells are `2 * samples` rows of
      `2 * size * samples`.
    """
    window, side = 2 * samples, 2 * size * samples
    rows = tf.repeat(tf.reshape(rows, [-1, size, window]), side, axis=-1)
    of_bin = np.repeat(np.eye(size, dtype=np.float32), window, axis=1) / samples**2
    columns = tf.tile(tf.reshape(columns, [-1, 1, side]) * of_bin, [1, 1, window])
    weights = rows[:, :, tf.newaxis] * columns[:, tf.newaxis]
    return tf.reshape(weights, [-1, size, window * side])


def crop_masks(masks, frames, boxes, size, samples=2):
    """Returns the parts of masks that are in boxes: RoIAlign of a map of one channel per box.

    It is a product of matrices, which a TPU computes faster than a gather of single numbers.

    Args:
      masks: float32 `[batch, n, m, m]`.
      frames: float32 `[batch, n, 4]`, the rectangle of the image that each mask covers.
      boxes: float32 `[batch, n, 4]`, in the same pixels.
      size: int.
      samples: see `roi_align`.

    Returns:
      float32 `[batch, n, size, size]`; 0 outside of the frame.
    """
    length = masks.shape.as_list()[-1]
    low, high = tf.split(frames, 2, axis=-1)
    cells = length / tf.maximum(high - low, 1e-6)
    y0, x0, y1, x1 = tf.unstack(
        (boxes - tf.concat([low, low], -1)) * tf.concat([cells] * 2, -1), axis=-1
    )
    rows, columns = (
        _matrix(*_corners(first, last, length, size, samples), length, samples)
        for first, last in ((y0, y1), (x0, x1))
    )
    return tf.einsum("bnik,bnkl,bnjl->bnij", rows, masks, columns)


def _corners(low, high, length, size, samples):
    """Returns the two cells beside each sample of an axis, and their weights.

    Args:
      low: float32 `[...]`, the start of each box in cells.
      high: float32 `[...]`, its end.
      length: int, or int32 `[...]`: cells of the axis.
      size: bins of a box.
      samples: samples of a bin.

    Returns:
      int32 and float32 `[..., 2 * size * samples]`: first the lower, then the upper cell of each
      sample. Weights are 0 for samples more than a cell outside.
    """
    count = size * samples
    steps = (tf.range(count, dtype=tf.float32) + 0.5) / count
    at = low[..., tf.newaxis] + steps * (high - low)[..., tf.newaxis] - 0.5
    length = tf.convert_to_tensor(length, tf.int32)[..., tf.newaxis]
    last = tf.cast(length - 1, tf.float32)
    is_inside = (at >= -1) & (at <= last + 1)
    at = tf.clip_by_value(at, 0.0, last)
    lower = tf.cast(tf.floor(at), tf.int32)
    upper = tf.minimum(lower + 1, length - 1)
    share = at - tf.floor(at)
    weights = tf.stack([1 - share, share], axis=-1)
    weights = tf.where(is_inside[..., tf.newaxis], weights, 0.0)
    shape = [*low.shape.as_list(), 2 * count]
    shape = [-1 if side is None else side for side in shape]
    return tf.reshape(tf.stack([lower, upper], -1), shape), tf.reshape(weights, shape)


def _matrix(cells, weights, length, samples):
    """Returns the weight of each cell in each bin, float32 `[..., size, length]`."""
    batch, count, both = cells.shape.as_list()
    size = both // (2 * samples)
    hits = tf.one_hot(cells, length) * weights[..., tf.newaxis]
    shape = [-1 if batch is None else batch, count, size, 2 * samples, length]
    return tf.reduce_sum(tf.reshape(hits, shape), axis=-2) / samples
