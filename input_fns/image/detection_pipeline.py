"""Images with boxes, for object detection.

The model gets:

    image        uint8 [batch, height, width, channels], scaled with its aspect ratio kept, at the
                 top left of zeros
    image_info   float32 [batch, 3]: height and width of the original image, and the pixels of
                 `image` per pixel of the original
    boxes        float32 [batch, n, 4]: y0, x0, y1, x1 in pixels of `image`; pixel i covers i to
                 i + 1
    classes      int32 [batch, n]; -1 for padding, and for a box that augmentation moved out
    is_crowd     int32 [batch, n]; 1 for a box that is neither an object nor background

Host metrics get the stored boxes, in pixels of the original image, and images as they are stored.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from input_fns.core import records, serving
from input_fns.core.predictions import RowWriter
from input_fns.core.records import no_autograph
from input_fns.dataset_info import Feature
from input_fns.image import images, overlays
from input_fns.image.annotated_pipeline import AnnotatedPipeline

_PADDING = -1
_NOT_FINITE = "a box in the shards is infinite or not a number"


@dataclasses.dataclass(frozen=True)
class DetectionPipeline(AnnotatedPipeline):
    """Feeds images with boxes; see the module."""

    @property
    def features(self) -> dict[str, Feature]:
        """Features of an example in prediction, as the model gets them."""
        image = AnnotatedPipeline.features.fget(self)
        return {**image, "image_info": Feature("raw", "float32", (3,))}

    @property
    def input_limits(self) -> dict[str, tuple]:
        """`{feature: (lowest, limit)}` of the values of a request; see `serving.checked`."""
        return {"image_info": serving.POSITIVE}

    def decode(self, serialized):
        """Returns stored features and labels, after a check of classes and boxes."""
        features, labels = AnnotatedPipeline.decode(self, serialized)
        # Padding, -1, becomes valid.
        limit = self.data.kind.num_classes + 1
        classes = tf.cast(labels["classes"], tf.int64) - _PADDING
        classes = images.checked(classes, limit, images.OUTSIDE_CLASSES) + _PADDING
        boxes = labels["boxes"]
        is_finite = tf.reduce_all(tf.math.is_finite(boxes))
        with tf.control_dependencies([tf.debugging.Assert(is_finite, [_NOT_FINITE, boxes])]):
            boxes = tf.identity(boxes)
        return features, {**labels, "boxes": boxes, "classes": tf.cast(classes, tf.int32)}

    @no_autograph
    def transform(self, features, labels, random):
        """Decodes one image and places it, with its boxes, on the canvas of the model."""
        image = features["image"]
        if image.dtype == tf.string:
            image = images.decode(image, self.stored_image)
        example = {"image": image}
        if labels != ():
            is_object = tf.not_equal(labels["classes"], _PADDING)
            example.update(boxes=labels["boxes"], valid=is_object)
        example, where = self.augmentation.place(example, random, self.canvas, True)
        size = tf.cast(tf.shape(image)[:2], tf.float32)
        info = tf.stack([size[0], size[1], where.scale[0]])
        features = {"image": example["image"], "image_info": info}
        if labels == ():
            return features, labels
        kept = {
            "boxes": example["boxes"],
            "classes": tf.where(example["valid"], labels["classes"], _PADDING),
            "is_crowd": tf.where(example["valid"], tf.cast(labels["is_crowd"], tf.int32), 0),
            **self.kept_labels(labels, where),
        }
        return features, kept

    def kept_labels(self, labels, where):
        """Returns more labels of one example for the model, `{name: [n, ...]}`.

        Args:
          labels: as stored.
          where: `placement.Placement` of its image.
        """
        del labels, where
        return {}

    def moved_labels(self, labels):
        """Returns more regions of a batch that augmentation moves; see `Augmentation.apply`."""
        del labels
        return {}

    @no_autograph
    def batch_transform(self, features, labels, random):
        """Augments images and boxes in training."""
        if random is None:
            return features, labels
        valid = tf.not_equal(labels["classes"], _PADDING)
        moved = self.moved_labels(labels)
        example = {"image": features["image"], "boxes": labels["boxes"], "valid": valid, **moved}
        done = self.augmentation.apply(example, random)
        moved = {name: done[name] for name in moved}
        image, rows, valid = self.augmentation.combine(
            done["image"], {**labels, **moved, "boxes": done["boxes"]}, done["valid"], random
        )
        classes = tf.where(valid, rows["classes"], _PADDING)
        is_crowd = tf.where(valid, rows["is_crowd"], 0)
        return {**features, "image": image}, {**rows, "classes": classes, "is_crowd": is_crowd}

    def host_examples(self, split: str, batch_size: int) -> Iterator[tuple[Any, Any]]:
        """Yields NumPy `(features, labels)` batches, as stored.

        Features are `{"image": files [n], or uint8 [n, height, width, channels]}`. Labels are
        `annotated_kind.BOX_LABELS`, with boxes in pixels of the original images.
        """
        return records.iterate(lambda: self.stored(split).rebatch(batch_size))

    def prediction_writer(self, examples):
        """Returns the writer of boxes."""
        del examples
        return BoxWriter(self.data.all_class_names)

    def draw_prediction(self, picture, scale, row):
        """Returns a picture with the detected boxes; see `overlays.OverlayWriter`."""
        return overlays.draw_objects(picture, scale, row, self.data.kind.class_names)

    def features_from_pixels(self, pixels):
        """Returns the features of one decoded image; see `AnnotatedPipeline`."""
        return self.transform({"image": pixels}, (), None)[0]

    def outputs(self, predictions, features, top_k=0):
        """Adds the names of the classes, string `[batch, n]`; "" after the last detection."""
        del features, top_k
        classes, count = predictions.get("classes"), predictions.get("num_detections")
        if classes is None or count is None:
            return predictions
        # One gather: other string ops are missing in other runtimes.
        names = tf.constant(["", *self.data.kind.class_names])
        is_detection = tf.range(tf.shape(classes)[1]) < count[:, tf.newaxis]
        return {
            **predictions,
            "class_names": tf.gather(names, tf.where(is_detection, classes + 1, 0)),
        }


class BoxWriter(RowWriter):
    """Writes a line of boxes for each image, without the padding after `num_detections`."""

    def columns(self, batch):
        """Returns the columns of a batch, with the names of `classes`, `[n, detections]`."""
        if "num_detections" not in batch:
            return super().columns(batch)
        return {**batch, "class_names": self.class_names[batch["classes"]]}

    def line(self, row):
        """Returns a line with the lists of detections cut at `num_detections`."""
        count = row.get("num_detections")
        return {name: v[:count] if isinstance(v, list) else v for name, v in row.items()}
