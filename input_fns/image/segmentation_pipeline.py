"""Images with masks, for semantic segmentation.

The model gets:

    image    uint8 [batch, height, width, channels], scaled to the model's size; the aspect ratio is
             not kept, so that each pixel of the canvas belongs to the image
    mask     uint8 [batch, height, width], by nearest neighbor: the class of each pixel, 255 for
             pixels that are ignored, such as those that augmentation moved in from outside
"""

from __future__ import annotations

import dataclasses
import io
import itertools
from collections.abc import Iterator

import tensorflow as tf
from PIL import Image

from common.constants import IGNORED_CLASS
from input_fns import DataError
from input_fns.core import records
from input_fns.core.predictions import SplitExamples
from input_fns.core.records import no_autograph
from input_fns.dataset_info import Feature
from input_fns.image import images, overlays
from input_fns.image.annotated_pipeline import AnnotatedPipeline
from input_fns.image.class_maps import ClassMapWriter

_SIZE = "original_size"
OUTSIDE = "mask: a class in the shards is outside the classes of dataset.json"


@dataclasses.dataclass(frozen=True)
class SegmentationPipeline(AnnotatedPipeline):
    """Feeds images with masks; see the module."""

    def __post_init__(self):
        """Raises `DataError` if the data set has no such images, or an augmentation needs boxes."""
        AnnotatedPipeline.__post_init__(self)
        if self.augmentation.box_crop or self.augmentation.mosaic:
            raise DataError(
                f"--augment: box_crop and mosaic need boxes, but {self.data.name} has masks. Use "
                "scale_jitter"
            )

    @property
    def file_features(self):
        """Features that `features_from_pixels` returns."""
        return {**self.features, _SIZE: Feature("raw", "int32", (2,))}

    @no_autograph
    def transform(self, features, labels, random):
        """Decodes one image and its mask and places them on the canvas of the model."""
        features, labels = self._decode_files(features, labels)
        example = {"image": features["image"]}
        if labels != ():
            example["mask"] = self._checked(labels["mask"])[..., 0]
        example, _ = self.augmentation.place(example, random, self.canvas, False)
        labels = labels if labels == () else {"mask": example["mask"]}
        return {"image": example["image"]}, labels

    def _checked(self, mask):
        """Returns the mask with a check that its classes are known."""
        limit = self.data.kind.num_classes
        return images.checked(mask, limit, OUTSIDE, ignored=IGNORED_CLASS)

    @no_autograph
    def batch_transform(self, features, labels, random):
        """Augments images and masks in training."""
        if random is None:
            return features, labels
        done = self.augmentation.apply({**features, **labels}, random)
        return {"image": done["image"]}, {"mask": done["mask"]}

    def prediction_writer(self, examples):
        """Returns the writer of class maps in the sizes of the original images."""
        is_split = isinstance(examples, SplitExamples)
        sizes = self.image_sizes(examples.what) if is_split else iter(examples.sizes)
        return ClassMapWriter(sizes)

    def image_sizes(self, split: str) -> Iterator[tuple[int, int]]:
        """Yields height and width of each stored image of a split, in order."""
        if self.stored_image.is_static:
            size = self.stored_image.shape[:2]
            yield from itertools.repeat(size, self.data.split(split).num_examples)
            return
        for batch in records.iterate(lambda: self.stored_files(split)):
            for file in batch:
                with Image.open(io.BytesIO(file)) as image:  # reads the header only
                    yield image.height, image.width

    def draw_prediction(self, picture, scale, row):
        """Returns a picture with the predicted classes; see `overlays.OverlayWriter`."""
        del scale
        return overlays.draw_classes(picture, row["classes"], self.data.kind.class_names)

    @no_autograph
    def features_from_pixels(self, pixels):
        """Returns the features of one decoded image, and int32 `[2]`, its size."""
        features, _ = self.transform({"image": pixels}, (), None)
        return {**features, _SIZE: tf.shape(pixels)[:2]}

    def outputs(self, predictions, features, top_k=0):
        """Adds `class_map` for image files, string `[batch]`: PNG files of the original sizes.

        Each pixel has the class of the nearest pixel of `classes`.
        """
        del top_k
        if _SIZE not in features:
            return predictions

        def encode(values):
            classes, size = values
            classes = tf.cast(classes[..., tf.newaxis], tf.uint8)
            nearest = tf.image.ResizeMethod.NEAREST_NEIGHBOR
            return tf.io.encode_png(tf.image.resize(classes, size, nearest))

        values = predictions["classes"], features[_SIZE]
        files = tf.map_fn(encode, values, fn_output_signature=tf.TensorSpec([], tf.string))
        return {**predictions, "class_map": files}
