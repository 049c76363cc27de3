"""Images with boxes and the mask of each object, for instance segmentation.

The model gets what `detection_pipeline` says, and

    masks        uint8 [batch, n, 112, 112]; 1 for the parts of its frame that an object covers
    mask_frames  float32 [batch, n, 4]: the rectangle that each mask covers, in pixels of `image`.
                 It is the box of the object, but is not clipped if augmentation moves it out

So a crop or a scale moves the frame, and does not sample the mask again. Host metrics get the
stored labels, with the exact masks as "outlines"; see `annotated_kind.pack_outlines`.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from common import instance_masks
from input_fns import DataError
from input_fns.core.records import no_autograph
from input_fns.dataset_info import Feature
from input_fns.image import overlays
from input_fns.image.annotated_kind import MASK_SIZE
from input_fns.image.augment import placement
from input_fns.image.detection_pipeline import BoxWriter, DetectionPipeline

_SIZE = "original_size"
# They turn or combine objects, which a frame along the axes cannot follow.
_UNSUPPORTED = ("rotate", "shear", "randaugment")


@dataclasses.dataclass(frozen=True)
class InstancePipeline(DetectionPipeline):
    """Feeds images with boxes and masks; see the module."""

    undecoded = ("outlines",)

    def __post_init__(self):
        """Raises `DataError` if the images or an augmentation do not fit."""
        DetectionPipeline.__post_init__(self)
        names = [operation.name for operation in self.augmentation.operations]
        wrong = [name for name in names if name in _UNSUPPORTED]
        wrong += ["mosaic"] * bool(self.augmentation.mosaic)
        if wrong:
            raise DataError(
                f"--augment: {wrong[0]} cannot move the masks of {self.data.name}. Use flip, crop, "
                "shift, scale, box_crop, scale_jitter, jitter and erase"
            )

    @property
    def file_features(self):
        """Features that `features_from_pixels` returns."""
        return {**self.features, _SIZE: Feature("raw", "int32", (2,))}

    def kept_labels(self, labels, where):
        """Returns the masks as stored, and their frames on the canvas."""
        frames = placement.move_boxes(labels["boxes"], where)
        return {"masks": labels["masks"], "mask_frames": frames}

    @no_autograph
    def batch_transform(self, features, labels, random):
        """Unpacks the masks; augments images, boxes and masks in training."""
        if labels == ():
            return features, labels
        labels = {**labels, "masks": _unpack(labels["masks"])}
        return DetectionPipeline.batch_transform(self, features, labels, random)

    def moved_labels(self, labels):
        """Returns the labels that augmentation moves besides boxes."""
        return {name: labels[name] for name in ("masks", "mask_frames")}

    def prediction_writer(self, examples):
        """Returns the writer of boxes and masks."""
        del examples
        return InstanceWriter(self.data.all_class_names)

    def draw_prediction(self, picture, scale, row):
        """Returns a picture with the detected objects; see `overlays.OverlayWriter`."""
        boxes, size = row["boxes"][: row["num_detections"]] * scale, picture.size[::-1]
        masks = [
            instance_masks.paste(mask, box, size) for mask, box in zip(row.get("masks", ()), boxes)
        ]
        return overlays.draw_objects(picture, scale, row, self.data.kind.class_names, masks)

    @no_autograph
    def features_from_pixels(self, pixels):
        """Returns the features of one decoded image, and int32 `[2]`, its size."""
        features = DetectionPipeline.features_from_pixels(self, pixels)
        return {**features, _SIZE: tf.shape(pixels)[:2]}

    def outputs(self, predictions, features, top_k=0):
        """Adds the names of the classes, and for image files `mask_files`, string `[batch, n]`.

        They are PNG files of the size of the picture, 255 for the pixels of the object and 0 for
        others; "" after the last detection.
        """
        found = DetectionPipeline.outputs(self, predictions, features, top_k)
        if _SIZE not in features or "masks" not in predictions:
            return found
        values = tuple(predictions[name] for name in ("masks", "boxes", "num_detections"))
        strings = tf.TensorSpec(predictions["masks"].shape[1:2], tf.string)
        files = tf.map_fn(
            lambda image: _mask_files(*image),
            (*values, features[_SIZE]),
            fn_output_signature=strings,
        )
        return {**found, "mask_files": files}


def _unpack(bits):
    """Returns the masks of bits, uint8 `[batch, n, MASK_SIZE, MASK_SIZE / 8]`, as 0 and 1."""
    places = tf.constant([7, 6, 5, 4, 3, 2, 1, 0], tf.uint8)
    values = tf.bitwise.right_shift(bits[..., tf.newaxis], places)
    values = tf.bitwise.bitwise_and(values, tf.constant(1, tf.uint8))
    return tf.reshape(values, [-1, bits.shape[1], MASK_SIZE, MASK_SIZE])


def _mask_files(masks, boxes, count, size):
    """Returns the PNG files of one image, string `[n]`; as `instance_masks.paste`."""

    def weights(low, high, length):
        at = (tf.range(length, dtype=tf.float32) + 0.5 - low) / tf.maximum(high - low, 1e-6)
        cells = masks.shape.as_list()[-1]
        at = at * cells - 0.5
        return tf.maximum(0.0, 1 - tf.abs(at[:, tf.newaxis] - tf.range(cells, dtype=tf.float32)))

    def encode(values):
        mask, box, number = values
        lengths = tf.cast(size, tf.float32)

        def png():
            rows, columns = weights(box[0], box[2], lengths[0]), weights(box[1], box[3], lengths[1])
            share = tf.matmul(tf.matmul(rows, mask), columns, transpose_b=True)
            is_object = share >= instance_masks.THRESHOLD
            pixels = tf.where(is_object, tf.constant(255, tf.uint8), tf.constant(0, tf.uint8))
            return tf.io.encode_png(pixels[..., tf.newaxis])

        return tf.cond(number < count, png, lambda: tf.constant(b""))

    numbers = tf.range(tf.shape(masks)[0])
    return tf.map_fn(
        encode, (masks, boxes, numbers), fn_output_signature=tf.TensorSpec([], tf.string)
    )


class InstanceWriter(BoxWriter):
    """Writes a line of boxes and masks for each image; masks as COCO's run lengths (RLE)."""

    def line(self, row):
        """Returns a line with `segmentations`, the RLE of each detection, instead of `masks`."""
        size = row.pop("image_size", None)  # no list of detections
        row = BoxWriter.line(self, row)
        if "masks" not in row or size is None:
            return row
        masks = zip(row.pop("masks"), row["boxes"])
        rles = [
            instance_masks.to_rle(instance_masks.paste(np.array(mask), box, tuple(size)))
            for mask, box in masks
        ]
        return {**row, "segmentations": rles}
