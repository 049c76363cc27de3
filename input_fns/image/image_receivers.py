"""The serving input receiver of JPEG and PNG files of any size and EXIF orientation."""

from __future__ import annotations

import tensorflow as tf

from input_fns.core import records, serving
from input_fns.image import images, orientation

_BYTES = "image_bytes"


def from_files(pipeline, outputs) -> serving.Receiver:
    """Returns a receiver of image files, which the model gets as prepare_data.py stores them.

    Args:
      pipeline: an `ImagePipeline` of uint8 grey or RGB images, or an `AnnotatedPipeline`.
      outputs: from predictions and features to the outputs of the SavedModel.
    """
    signature = {
        name: tf.TensorSpec(feature.shape, feature.dtype)
        for name, feature in pipeline.file_features.items()
    }

    def features(inputs):
        return tf.map_fn(decode, inputs[_BYTES], fn_output_signature=signature)

    def decode(file):
        # tf.io.decode_image also reads GIF, and fills the missing end of truncated ones.
        is_png = tf.equal(tf.strings.substr(file, 0, 4), b"\x89PNG")
        problem = "Unknown image file format: neither a JPEG nor a PNG file"
        with tf.control_dependencies(
            [tf.debugging.Assert(tf.io.is_jpeg(file) | is_png, [problem])]
        ):
            pixels = images.decode(file, pipeline.image_file)
        upright = orientation.upright(pixels, orientation.read(file))
        return pipeline.features_from_pixels(upright)

    def first_files(split, count):
        return {_BYTES: serving.first_of(lambda: _files(pipeline.data, split), count)}

    return serving.Receiver(serving.string_inputs(_BYTES), features, outputs, first_files)


def _files(data, split):
    """Returns the images of a split, in order, as files; stored pixels as PNG."""
    stored = data.features["image"]

    def parse(serialized):
        return images.stored_fn(data.features, has_labels=False)(serialized)[0]["image"]

    dataset = records.in_order(data.files(split), parse, data.split(split).record_bytes)
    if stored.encoding != "raw":
        return dataset
    pixels = dataset.map(lambda strings: images.decode_raw(strings, stored)).unbatch()
    return pixels.map(tf.io.encode_png).batch(1)
