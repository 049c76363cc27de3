"""Images and classes: decoding, evaluation crops, augmentation."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from input_fns import DataError
from input_fns.core import caching, records, serving
from input_fns.core.records import no_autograph
from input_fns.dataset_info import DatasetInfo, Feature
from input_fns.image import image_receivers, images
from input_fns.image.augment import Augmentation
from input_fns.record_pipeline import RecordPipeline


@dataclasses.dataclass(frozen=True)
class ImagePipeline(RecordPipeline):
    """Feeds images, with int32 classes as labels.

    Labels are float32 `[batch, num_classes]` in training if the augmentation mixes images.

    Attributes:
      data: the data set.
      image_size: `(height, width)` of the images that the model gets; None for the stored size.
      augmentation: augmentation of training images.
      center_crop: fraction of the image's sides that evaluation keeps when it resizes.
      cache: "auto", "memory", "none", or a local folder; see `caching`.
    """

    data: DatasetInfo
    image_size: tuple[int, int] | None = None
    augmentation: Augmentation = dataclasses.field(default_factory=Augmentation)
    center_crop: float = 0.875
    cache: str = caching.AUTO

    def __post_init__(self):
        """Raises `DataError` if the data set has no such images."""
        if "image" not in self.data.features:
            raise DataError(
                f"{self.data.name} in {self.data.data_dir} has no feature 'image', only "
                f"{', '.join(self.data.features)}"
            )
        if self.image_size is None and not self._stored.is_static:
            raise DataError(
                f"the images of {self.data.name} differ in size: set --image_size=HEIGHTxWIDTH"
            )
        needs_regions = ("box_crop", "scale_jitter", "mosaic")
        if any(getattr(self.augmentation, name) for name in needs_regions):
            raise DataError(
                f"--augment: {', '.join(needs_regions)} need boxes or masks, but {self.data.name} "
                "has a class for each image. Use resize_crop"
            )
        is_resized = tuple(self._size) != tuple(self._stored.shape[:2])
        if (is_resized or self.augmentation != Augmentation()) and self._stored.dtype != "uint8":
            raise DataError(f"--augment and --image_size need uint8, not {self._stored.dtype}")

    @property
    def _stored(self) -> Feature:
        return self.data.features["image"]

    @property
    def _size(self):
        return self.image_size or self._stored.shape[:2]

    @property
    def features(self) -> dict[str, Feature]:
        """Features of an example in prediction, as the model gets them."""
        shape = (*self._size, self._stored.shape[-1])
        return {"image": Feature("raw", self._stored.dtype, shape)}

    @property
    def file_features(self) -> dict[str, Feature]:
        """What `features_from_pixels` returns."""
        return self.features

    @property
    def image_file(self) -> Feature | None:
        """JPEG or PNG files of any size, if the data set has uint8 grey or RGB images; or None."""
        channels = self._stored.shape[-1]
        if self._stored.dtype != "uint8" or channels not in (1, 3):
            return None
        return Feature("image", "uint8", (None, None, channels))

    # Stages: see RecordPipeline.

    def draw(self, count, seed):
        """Returns the random numbers of the augmentation."""
        return self.augmentation.draw(count, seed)

    def sample(self, numbers):
        """Returns the numbers, and the crop windows if all stored images have one size."""
        random = {"numbers": numbers}
        if self._stored.is_static and self.augmentation.window:
            random["window"] = self._window(numbers, *self._stored.shape[:2])
        return random

    def has_transform(self, spec, training):
        """Returns True to decode files, and to cut random windows in training."""
        is_encoded = RecordPipeline.has_transform(self, spec, training)
        return is_encoded or (training and self.augmentation.window is not None)

    def transform(self, features, labels, random):
        """Decodes and crops one image; in training at a random window if there is one."""
        image = features["image"]
        if random is None or not self.augmentation.window:
            return {"image": self.eval_image_from_file(image, self._stored)}, labels

        def window_of(height, width):
            if "window" in random:
                return random["window"]
            return self._window(random["numbers"], height, width)

        if image.dtype == tf.string:
            pixels = images.decode_window(image, self._stored, window_of)
        else:
            pixels = images.crop(image, random["window"])
        return {"image": images.resize(pixels, self._size)}, labels

    @no_autograph
    def batch_transform(self, features, labels, random):
        """Crops images of the stored size as in evaluation, then augments in training."""
        pixels = features["image"]
        if tuple(pixels.shape.as_list()[1:3]) != tuple(self._size):
            pixels = images.resize(self._center(pixels), self._size)
        if random is not None:
            pixels = self.augmentation.apply({"image": pixels}, random["numbers"])["image"]
            if self.augmentation.mixes:
                one_hot = tf.one_hot(labels, self.data.num_classes)
                pixels, labels = self.augmentation.mix(pixels, one_hot, random["numbers"])
        return {"image": pixels}, labels

    # Images that are not in a split.

    file_examples = "input_fns.convert.file_input:ImageInput"

    def files_input_fn(self, files):
        """Returns an input_fn for prediction of image files, cropped as in evaluation.

        Args:
          files: function that returns an iterator of bytes: JPEG and PNG files or, if the data set
            stores pixels, pixels of the stored size.

        Returns:
          `input_fn(params) -> tf.data.Dataset` like that of `predict_input_fn`.

        Raises:
          DataError: the model's images are not uint8 grey or RGB.
        """
        stored, image_file = self._stored, self.image_file
        if image_file is None:
            raise DataError(
                f"--input: {self.data.name} has {stored.dtype} images of {stored.shape[-1]} "
                "channels, which image files cannot hold"
            )

        @no_autograph
        def eval_image(file):
            if stored.encoding != "raw":
                return {"image": self.eval_image_from_file(file, image_file)}
            return {"image": self._eval_image_from_stored(images.decode(file, stored))}

        return lambda params: records.from_files(files, eval_image, params["batch_size"])

    def receivers(self, top_k: int = 0) -> dict[str, serving.Receiver]:
        """Returns the serving input receivers by signature, with one for image files."""
        receivers = RecordPipeline.receivers(self, top_k)
        if self.image_file is not None:
            outputs = receivers[serving.RAW].outputs
            receivers[serving.IMAGE_BYTES] = image_receivers.from_files(self, outputs)
        return receivers

    def eval_image_from_file(self, encoded: tf.Tensor, feature: Feature) -> tf.Tensor:
        """Returns the evaluation crop of one JPEG or PNG file, uint8 `[height, width, channels]`.

        Args:
          encoded: string scalar.
          feature: how the file is stored.
        """
        return images.resize(self._center(images.decode(encoded, feature)), self._size)

    def features_from_pixels(self, pixels: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the features of a decoded image, which hold its evaluation crop.

        Args:
          pixels: uint8 `[height, width, channels]` of any size, upright.
        """
        if self._stored.encoding != "raw":
            return {"image": images.resize(self._center(pixels), self._size)}
        resized = images.resize(pixels, self._stored.shape[:2], antialias=True)
        return {"image": self._eval_image_from_stored(resized)}

    def _eval_image_from_stored(self, pixels):
        return self.batch_transform({"image": pixels[tf.newaxis]}, (), None)[0]["image"][0]

    def _center(self, pixels):
        """Returns the center crop of evaluation of `[..., height, width, channels]`."""
        size = pixels.shape.as_list()[-3:-1]
        if None in size:
            size = tf.unstack(tf.shape(pixels)[-3:-1])
        return images.crop(pixels, self._center_window(*size))

    def _center_window(self, height, width):
        return images.center_window(height, width, self._size, self.center_crop)

    def _window(self, numbers, height, width) -> Any:
        """Returns the crop window of training, int32 `[..., 4]`, from float32 `[..., numbers]`."""
        own = self.augmentation.window_numbers(numbers)
        center = self._center_window(height, width)
        return self.augmentation.window.window(own, (height, width), center)
