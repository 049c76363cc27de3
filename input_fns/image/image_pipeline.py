"""Images and classes: decoding, evaluation crops, augmentation."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from input_fns import DataError
from input_fns.core.records import no_autograph
from input_fns.image import images
from input_fns.image.augment import Augmentation
from input_fns.image.base_pipeline import BaseImagePipeline
from input_fns.record_pipeline import RecordPipeline


@dataclasses.dataclass(frozen=True)
class ImagePipeline(BaseImagePipeline):
    """Feeds images, with int32 classes or a float32 target as labels.

    Classes are float32 `[batch, num_classes]` in training if the augmentation mixes images.

    Attributes:
      center_crop: fraction of the image's sides that evaluation keeps when it resizes.
    """

    center_crop: float = 0.875

    def __post_init__(self):
        """Raises `DataError` if the data set has no such images."""
        if "image" not in self.data.features:
            raise DataError(
                f"{self.data.name} in {self.data.data_dir} has no feature 'image', only "
                f"{', '.join(self.data.features)}"
            )
        BaseImagePipeline.__post_init__(self)
        needs_regions = ("box_crop", "scale_jitter", "mosaic")
        if any(getattr(self.augmentation, name) for name in needs_regions):
            raise DataError(
                f"--augment: {', '.join(needs_regions)} need boxes or masks, but {self.data.name} "
                "has a class for each image. Use resize_crop"
            )
        is_resized = self.canvas != tuple(self.stored_image.shape[:2])
        is_changed = is_resized or self.augmentation != Augmentation()
        if is_changed and self.stored_image.dtype != "uint8":
            raise DataError(f"--augment and --image_size need uint8, not {self.stored_image.dtype}")
        channels = self.stored_image.shape[-1]
        for operation in self.augmentation.operations:
            if operation.name in ("jitter", "randaugment") and channels not in (1, 3):
                raise DataError(
                    f"--augment: {operation.name} needs grey or RGB images, but those of "
                    f"{self.data.name} have {channels} channels. Remove it"
                )

    # Stages: see RecordPipeline.

    def sample(self, numbers):
        """Returns the numbers, and the crop windows if all stored images have one size."""
        random = {"numbers": numbers}
        if self.stored_image.is_static and self.augmentation.window:
            random["window"] = self._window(numbers, *self.stored_image.shape[:2])
        return random

    def has_transform(self, spec, training):
        """Returns True to decode files, and to cut random windows in training."""
        is_encoded = RecordPipeline.has_transform(self, spec, training)
        return is_encoded or (training and self.augmentation.window is not None)

    def transform(self, features, labels, random):
        """Decodes and crops one image; in training at a random window if there is one."""
        image = features["image"]
        if random is None or not self.augmentation.window:
            return {"image": self._eval_crop(images.decode(image, self.stored_image))}, labels

        def window_of(height, width):
            if "window" in random:
                return random["window"]
            return self._window(random["numbers"], height, width)

        if image.dtype == tf.string:
            pixels = images.decode_window(image, self.stored_image, window_of)
        else:
            pixels = images.crop(image, random["window"])
        return {"image": images.resize(pixels, self.canvas)}, labels

    @no_autograph
    def batch_transform(self, features, labels, random):
        """Crops images of the stored size as in evaluation, then augments in training."""
        pixels = features["image"]
        if tuple(pixels.shape.as_list()[1:3]) != self.canvas:
            pixels = self._eval_crop(pixels)
        if random is not None:
            pixels = self.augmentation.apply({"image": pixels}, random["numbers"])["image"]
            if self.augmentation.mixers:
                if not self.data.target:
                    labels = tf.one_hot(labels, self.data.num_classes)
                pixels, labels = self.augmentation.mix(pixels, labels, random["numbers"])
        return {"image": pixels}, labels

    # Images that are not in a split.

    def features_from_file(self, file):
        """Returns the features of a file, or of stored pixels; see `BaseImagePipeline`."""
        if self.stored_image.is_image_file:
            return BaseImagePipeline.features_from_file(self, file)
        return {"image": self._eval_image_from_stored(images.decode(file, self.stored_image))}

    def features_from_pixels(self, pixels):
        """Returns the features of a decoded image, which hold its evaluation crop."""
        if self.stored_image.is_image_file:
            return {"image": self._eval_crop(pixels)}
        resized = images.resize(pixels, self.stored_image.shape[:2], antialias=True)
        return {"image": self._eval_image_from_stored(resized)}

    def _eval_image_from_stored(self, pixels):
        return self.batch_transform({"image": pixels[tf.newaxis]}, (), None)[0]["image"][0]

    def _eval_crop(self, pixels):
        """Returns the resized center crop of evaluation of `[..., height, width, channels]`."""
        size = pixels.shape.as_list()[-3:-1]
        if None in size:
            size = tf.unstack(tf.shape(pixels)[-3:-1])
        return images.resize(images.crop(pixels, self._center_window(*size)), self.canvas)

    def _center_window(self, height, width):
        return images.center_window(height, width, self.canvas, self.center_crop)

    def _window(self, numbers, height, width) -> Any:
        """Returns the crop window of training, int32 `[..., 4]`, from float32 `[..., numbers]`."""
        own = self.augmentation.window_numbers(numbers)
        center = self._center_window(height, width)
        return self.augmentation.window(own, (height, width), center)
