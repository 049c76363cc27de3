"""Stored images and labels: from TFRecord bytes to tensors."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from input_fns.core import examples

# Bit-identical to Pillow, and so to PyTorch and most servers. TensorFlow's default is up to 9
# levels off and saves 4 % of the time.
_ACCURATE = "INTEGER_ACCURATE"
# An image is small if it has at most so many times the pixels that it is resized to.
_SMALL = 4
OUTSIDE_CLASSES = "a label in the shards is outside the classes of dataset.json"


def stored_fn(features, has_labels, num_classes=None, may_be_empty=False):
    """Returns a parser of a batch of serialized tf.train.Examples.

    Args:
      features: `{name: Feature}`.
      has_labels: whether each example has an int64 `label`.
      num_classes: labels must be in [0, num_classes); None for no check.
      may_be_empty: see `examples.parse`.

    Returns:
      `parse(string [batch]) -> ({name: string [batch]}, int32 [batch] or None)`: features as
      stored. Running it raises InvalidArgumentError for a label outside the classes.
    """
    spec = {name: tf.io.FixedLenFeature([], tf.string) for name in features}
    if has_labels:
        spec["label"] = tf.io.FixedLenFeature([], tf.int64)

    def parse(serialized):
        stored = examples.parse(serialized, spec, may_be_empty)
        if not has_labels:
            return stored, None
        labels = stored.pop("label")
        if num_classes is not None:
            labels = checked(labels, num_classes, OUTSIDE_CLASSES)
        return stored, tf.cast(labels, tf.int32)

    return parse


def decode_raw(stored, feature):
    """Returns string `[batch]` as `feature.dtype [batch, *feature.shape]`.

    Running it raises InvalidArgumentError for strings of another length, of "unpadded" for longer
    ones.
    """
    size = None
    if feature.encoding == "unpadded":
        size, lengths = feature.num_bytes, tf.strings.length(stored)
        fits = (lengths <= size) & tf.equal(lengths % tf.dtypes.as_dtype(feature.dtype).size, 0)
        facts = [f"values in the shards have other lengths than up to {size} bytes:", lengths]
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(fits), facts)]):
            stored = tf.identity(stored)
    # Not -1 for the batch size: strings of twice the length would become two examples.
    batch = stored.shape.as_list()[0] if stored.shape.rank else None
    batch = tf.shape(stored)[0] if batch is None else batch
    return tf.reshape(
        tf.io.decode_raw(stored, feature.dtype, fixed_length=size), [batch, *feature.shape]
    )


def decode(stored, feature):
    """Returns one stored image, raw or encoded, as `feature.dtype [height, width, channels]`."""
    if not feature.is_image_file:
        return decode_raw(stored[tf.newaxis], feature)[0]
    channels = feature.shape[-1]
    # Decodes PNG too; `decode_image` has no dct_method.
    pixels = tf.io.decode_jpeg(stored, channels, dct_method=_ACCURATE)
    return tf.ensure_shape(pixels, feature.shape)


def decode_window(encoded, feature, window_of):
    """Returns a window of a JPEG or PNG; of a JPEG only the rows of the window are decoded.

    At the edges of the window, subsampled colors of a JPEG may differ by some levels from those of
    the whole image.

    Args:
      encoded: string, one file.
      feature: how the file is stored.
      window_of: function of the image's height and width that returns the window, int32 `[4]`: y,
        x, height, width. Its arguments are ints if `feature` is static, else int32 scalars.

    Returns:
      uint8 `[height, width, channels]`.
    """
    known, channels = feature.shape[:2], feature.shape[-1]

    def jpeg():
        size = known if feature.is_static else tf.unstack(tf.io.extract_jpeg_shape(encoded), 3)[:2]
        window = window_of(*size)
        return tf.io.decode_and_crop_jpeg(encoded, window, channels, dct_method=_ACCURATE)

    def png():
        pixels = tf.io.decode_png(encoded, channels)
        return crop(pixels, window_of(*tf.unstack(tf.shape(pixels)[:2])))

    if feature.encoding == "jpeg":
        return jpeg()
    return tf.cond(tf.io.is_jpeg(encoded), jpeg, png)


def crop(images, window):
    """Returns `[..., height, width, channels]` of a window, int32 `[4]`: y, x, height, width."""
    y, x, height, width = tf.unstack(window)
    return images[..., y : y + height, x : x + width, :]


def center_window(height, width, image_size, share):
    """Returns the center crop of evaluation, int32 `[4]`: y, x, height, width.

    The largest centered window with the aspect ratio of `image_size`, both sides times `share`:
    0.875 is 224 of 256 pixels (Szegedy et al. 2015, arXiv:1512.00567). An image of `image_size` is
    not cropped.

    Args:
      height: height of the image, int or int32 scalar.
      width: width of the image, int or int32 scalar.
      image_size: `(height, width)`, ints.
      share: fraction of the sides, in (0, 1].
    """
    high, wide = image_size
    scale = tf.minimum(height / high, width / wide) * share
    fits = tf.logical_and(tf.equal(height, high), tf.equal(width, wide))
    new_height = tf.where(fits, height, tf.cast(tf.round(scale * high), tf.int32))
    new_width = tf.where(fits, width, tf.cast(tf.round(scale * wide), tf.int32))
    new_height, new_width = tf.maximum(new_height, 1), tf.maximum(new_width, 1)
    return tf.stack(
        [(height - new_height + 1) // 2, (width - new_width + 1) // 2, new_height, new_width]
    )


def resize(images, image_size, antialias=False):
    """Returns uint8 `[..., height, width, channels]` resized to `image_size`, bilinear.

    Args:
      images: uint8 `[..., height, width, channels]`.
      image_size: `(height, width)`, ints.
      antialias: average over the covered pixels when downsampling, as prepare_data.py does with
        --image_size; within one level of Pillow.
    """
    height, width = image_size
    old_height, old_width = tf.unstack(tf.shape(images)[-3:-1])

    def bilinear(pixels):
        return tf.image.resize(pixels, image_size, antialias=antialias)

    def resized():
        # The same values: the kernel for float32 is faster, but copies all pixels of large images.
        is_small = old_height * old_width <= _SMALL * height * width
        found = tf.cond(
            is_small, lambda: bilinear(tf.cast(images, tf.float32)), lambda: bilinear(images)
        )
        # Rounds: the cast truncates.
        return tf.cast(found + 0.5, tf.uint8)

    fits = tf.equal(old_height, height) & tf.equal(old_width, width)
    shape = images.shape.as_list()
    return tf.ensure_shape(
        tf.cond(fits, lambda: images, resized), [*shape[:-3], *image_size, shape[-1]]
    )


def checked(numbers, limit, what, lowest=0, ignored=None):
    """Returns `numbers` with a check: running it raises InvalidArgumentError if one is outside.

    Args:
      numbers: integers in their stored dtype: 2**32 + 3 cast to int32 would be 3.
      limit: valid numbers are in [lowest, limit); an int, or one per column.
      what: what is wrong, for the message.
      lowest: see limit.
      ignored: a number that is valid too, or None.
    """
    # On the host, once per batch: asserts are ignored on a TPU.
    if ignored is None:
        axes = list(range(numbers.shape.rank - np.ndim(limit)))
        smallest, largest = tf.reduce_min(numbers, axes), tf.reduce_max(numbers, axes)
        is_inside = (tf.cast(smallest, tf.int64) >= lowest) & (tf.cast(largest, tf.int64) < limit)
    else:
        is_inside = (numbers >= lowest) & (numbers < limit) | tf.equal(numbers, ignored)
    inside = tf.reduce_all(is_inside)
    facts = [f"{what}: [{lowest}, {limit}) does not hold all of", numbers]
    with tf.control_dependencies([tf.debugging.Assert(inside, facts, summarize=16)]):
        return tf.identity(numbers)
