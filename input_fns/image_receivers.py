"""The ways into a SavedModel of images: what the model sees, picture files, records."""

from __future__ import annotations

import tensorflow as tf

from input_fns import images, orientation, records, serving

_BYTES = "image_bytes"


def receivers(pipeline, top_k: int) -> dict[str, serving.Receiver]:
    """Returns the receivers of an `ImagePipeline`, by signature.

    Besides the raw one: one of JPEG or PNG files of any size and EXIF orientation, of which the
    model sees what it sees of files that prepare_data.py stored, if the pipeline is of uint8
    pictures; and one of records as the shards hold them, with or without a label.

    Args:
      pipeline: whose images they are.
      top_k: see `serving.class_outputs`.
    """
    data = pipeline.data
    stored = data.features["image"]

    def outputs(predictions):
        return serving.class_outputs(predictions, data.class_names, top_k)

    def first_images(split, count):
        return serving.first_of(lambda: pipeline.features_in_order(split), count)

    def first_records(split, count):
        return {serving.EXAMPLES: serving.first_records(data.files(split), count)}

    def of_records(inputs):
        parse = images.stored_fn(data.features, has_labels=False, may_be_empty=True)
        parsed, _ = parse(inputs[serving.EXAMPLES])
        if stored.encoding != "raw":
            return {"image": _of_each(stored_file, pipeline, parsed["image"])}
        pixels = images.decode_raw(parsed["image"], stored)
        return pipeline.evaluated_pixels({"image": pixels}, None)[0]

    def stored_file(file):
        return pipeline.evaluated_file(file, stored)

    def of_files(inputs):
        return {"image": _of_each(picture, pipeline, inputs[_BYTES])}

    def picture(file):
        with tf.control_dependencies([_require_jpeg_or_png(file)]):
            pixels = images.decode(file, pipeline.any_picture)
        turned = orientation.upright(pixels, orientation.of_file(file))
        return pipeline.evaluated_picture(turned)

    def first_files(split, count):
        return {_BYTES: serving.first_of(lambda: _files(data, split), count)}

    found = {
        serving.RAW: serving.Receiver(
            serving.raw_inputs(pipeline.features), dict, outputs, first_images
        ),
        serving.TF_EXAMPLE: serving.Receiver(
            serving.string_inputs(serving.EXAMPLES), of_records, outputs, first_records
        ),
    }
    if pipeline.any_picture is not None:
        found[serving.IMAGE_BYTES] = serving.Receiver(
            serving.string_inputs(_BYTES), of_files, outputs, first_files
        )
    return found


def _of_each(evaluated, pipeline, encoded):
    """Returns what the model sees of files, string `[batch]`, one after the other."""
    feature = pipeline.features["image"]
    return tf.map_fn(
        evaluated, encoded, fn_output_signature=tf.TensorSpec(feature.shape, feature.dtype)
    )


def _require_jpeg_or_png(file):
    # The decoder reads GIF too, and fills up one that is cut off.
    is_png = tf.equal(tf.strings.substr(file, 0, 4), b"\x89PNG")
    problem = "Unknown image file format: neither a JPEG nor a PNG file"
    return tf.debugging.Assert(tf.io.is_jpeg(file) | is_png, [problem])


def _files(data, split):
    """The pictures of a split, in order, as files; PNG, where the shards hold pixels."""
    stored = data.features["image"]

    def parse(serialized):
        return images.stored_fn(data.features, has_labels=False)(serialized)[0]["image"]

    dataset = records.in_order(data.files(split), parse)
    if stored.encoding != "raw":
        return dataset
    pixels = dataset.map(lambda strings: images.decode_raw(strings, stored)).unbatch()
    return pixels.map(tf.io.encode_png).batch(1)
