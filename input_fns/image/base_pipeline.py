"""Images of one size: what classification, detection and segmentation have in common."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from input_fns import DataError
from input_fns.core import caching, records, serving
from input_fns.dataset_info import DatasetInfo, Feature
from input_fns.image import images, orientation
from input_fns.image.augment import Augmentation
from input_fns.record_pipeline import RecordPipeline


@dataclasses.dataclass(frozen=True)
class BaseImagePipeline(RecordPipeline):
    """Feeds images of one size.

    Attributes:
      data: the data set.
      image_size: `(height, width)` of the images that the model gets; None for the stored size.
      augmentation: augmentation of training images.
      cache: "auto", "memory", "none", or a local folder; see `caching`.
    """

    data: DatasetInfo
    image_size: tuple[int, int] | None = None
    augmentation: Augmentation = dataclasses.field(default_factory=Augmentation)
    cache: str = caching.AUTO
    file_examples = "input_fns.convert.file_input:ImageInput"

    def __post_init__(self):
        """Raises `DataError` if the images have no static shape."""
        if self.image_size is None and not self.stored_image.is_static:
            raise DataError(
                f"the images of {self.data.name} differ in size: set --image_size=HEIGHTxWIDTH"
            )

    @property
    def stored_image(self) -> Feature:
        """How images are stored."""
        return self.data.features["image"]

    @property
    def canvas(self) -> tuple[int, int]:
        """Height and width of the images that the model gets."""
        return tuple(self.image_size or self.stored_image.shape[:2])

    @property
    def features(self) -> dict[str, Feature]:
        """Features of an example in prediction, as the model gets them."""
        shape = (*self.canvas, self.stored_image.shape[-1])
        return {"image": Feature("raw", self.stored_image.dtype, shape)}

    @property
    def file_features(self) -> dict[str, Feature]:
        """Features that `features_from_pixels` returns: `features`, and those of the outputs."""
        return self.features

    @property
    def image_file(self) -> Feature | None:
        """JPEG or PNG files of any size, if the data set has uint8 grey or RGB images; or None."""
        channels = self.stored_image.shape[-1]
        if self.stored_image.dtype != "uint8" or channels not in (1, 3):
            return None
        return Feature("image", "uint8", (None, None, channels))

    def draw(self, count, seed):
        """Returns the random numbers of the augmentation; see `RecordPipeline`."""
        return self.augmentation.draw(count, seed)

    # Images that are not in a split.

    def features_from_pixels(self, pixels: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the features of one decoded image, as evaluation gets them.

        Args:
          pixels: uint8 `[height, width, channels]` of any size, upright.
        """
        raise NotImplementedError

    def features_from_file(self, file: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the features of a file of `files_input_fn`, a string scalar."""
        return self.features_from_pixels(images.decode(file, self.image_file))

    def files_input_fn(self, files):
        """Returns an input_fn for prediction of image files, scaled and cropped as in evaluation.

        Args:
          files: function that returns an iterator of bytes: JPEG and PNG files or, for images with
            classes that are stored as pixels, pixels of the stored size.

        Returns:
          `input_fn(params) -> tf.data.Dataset` like that of `predict_input_fn`.

        Raises:
          DataError: the model's images are not uint8 grey or RGB.
        """
        if self.image_file is None:
            raise DataError(
                f"--input: {self.data.name} has {self.stored_image.dtype} images of "
                f"{self.stored_image.shape[-1]} channels, which image files cannot hold"
            )

        def features(file):
            found = self.features_from_file(file)
            return {name: found[name] for name in self.features}

        return lambda params: records.from_files(files, features, params["batch_size"])

    def receivers(self, top_k: int = 0) -> dict[str, serving.Receiver]:
        """Returns the serving input receivers by signature.

        Besides those of `RecordPipeline`, `image_bytes` takes JPEG and PNG files of any size and
        EXIF orientation, string `[batch]`, which the model gets as prepare_data.py stores them.
        """
        receivers = RecordPipeline.receivers(self, top_k)
        if self.image_file is not None:
            receivers[serving.IMAGE_BYTES] = serving.Receiver(
                serving.string_inputs(serving.IMAGE_BYTES),
                self._decode_requests,
                receivers[serving.RAW].outputs,
                self._first_files,
            )
        return receivers

    def _decode_requests(self, inputs):
        def decode(file):
            # tf.io.decode_image also reads GIF, and fills the missing end of truncated ones.
            is_png = tf.equal(tf.strings.substr(file, 0, 4), b"\x89PNG")
            problem = "Unknown image file format: neither a JPEG nor a PNG file"
            with tf.control_dependencies(
                [tf.debugging.Assert(tf.io.is_jpeg(file) | is_png, [problem])]
            ):
                pixels = images.decode(file, self.image_file)
            return self.features_from_pixels(orientation.upright(pixels, orientation.read(file)))

        signature = {n: tf.TensorSpec(f.shape, f.dtype) for n, f in self.file_features.items()}
        return tf.map_fn(decode, inputs[serving.IMAGE_BYTES], fn_output_signature=signature)

    def _first_files(self, split, count):
        """Returns the first images of a split as files; stored pixels as PNG."""

        def files():
            dataset = self.stored_files(split)
            if self.stored_image.is_image_file:
                return dataset
            pixels = dataset.map(lambda strings: images.decode_raw(strings, self.stored_image))
            return pixels.unbatch().map(tf.io.encode_png).batch(1)

        return {serving.IMAGE_BYTES: serving.first_of(files, count)}

    def stored_files(self, split: str) -> tf.data.Dataset:
        """Returns the images of a split as stored, strings `[n]`, in order."""

        def parse(serialized):
            return images.stored_fn({"image": self.stored_image}, False)(serialized)[0]["image"]

        info = self.data.split(split)
        return records.in_order(self.data.files(split), parse, info.record_bytes, info.shards)
