"""Images with boxes or masks: what detection and segmentation have in common."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from input_fns import DataError
from input_fns.core import caching, records, serving
from input_fns.core.records import no_autograph
from input_fns.dataset_info import DatasetInfo, Feature
from input_fns.image import image_receivers, images
from input_fns.image.augment import Augmentation
from input_fns.record_pipeline import RecordPipeline


@dataclasses.dataclass(frozen=True)
class AnnotatedPipeline(RecordPipeline):
    """Feeds images of one size, with what is drawn on them.

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

    def __post_init__(self):
        """Raises `DataError` if the data set has no such images."""
        if self.stored_image.dtype != "uint8" or self.stored_image.shape[-1] not in (1, 3):
            raise DataError(
                f"{self.data.name} in {self.data.data_dir} has {self.stored_image.dtype} images of "
                f"{self.stored_image.shape[-1]} channels; they must be uint8, grey or RGB"
            )
        if self.image_size is None and not self.stored_image.is_static:
            raise DataError(
                f"the images of {self.data.name} differ in size: set --image_size=HEIGHTxWIDTH"
            )
        if self.augmentation.window or self.augmentation.mixers:
            raise DataError(
                "--augment: resize_crop, random_crop, mixup and cutmix need images with one class "
                f"each, but {self.data.name} has boxes or masks. Use scale_jitter"
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
        return {"image": Feature("raw", "uint8", (*self.canvas, self.stored_image.shape[-1]))}

    @property
    def file_features(self) -> dict[str, Feature]:
        """Features that `features_from_pixels` returns: `features`, and those of the outputs."""
        return self.features

    @property
    def image_file(self) -> Feature:
        """JPEG or PNG files of any size."""
        return Feature("image", "uint8", (None, None, self.stored_image.shape[-1]))

    # Stages: see RecordPipeline.

    def draw(self, count, seed):
        """Returns the random numbers of the augmentation."""
        return self.augmentation.draw(count, seed)

    def has_transform(self, spec, training):
        """Returns True: images are decoded, scaled and moved one by one."""
        del spec, training
        return True

    # Images that are not in a split.

    file_examples = "input_fns.convert.file_input:ImageInput"

    def features_from_pixels(self, pixels: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the features of one decoded image, as evaluation gets them.

        Args:
          pixels: uint8 `[height, width, channels]` of any size, upright.
        """
        raise NotImplementedError

    def files_input_fn(self, files):
        """Returns an input_fn for prediction of image files, scaled as in evaluation.

        Args:
          files: function that returns an iterator of bytes: JPEG and PNG files.

        Returns:
          `input_fn(params) -> tf.data.Dataset` like that of `predict_input_fn`.
        """

        @no_autograph
        def features(file):
            found = self.features_from_pixels(images.decode(file, self.image_file))
            return {name: found[name] for name in self.features}

        return lambda params: records.from_files(files, features, params["batch_size"])

    def receivers(self, top_k: int = 0) -> dict[str, serving.Receiver]:
        """Returns the serving input receivers by signature, with one for image files."""
        receivers = {
            name: dataclasses.replace(receiver, outputs=self.outputs)
            for name, receiver in RecordPipeline.receivers(self, top_k).items()
        }
        receivers[serving.IMAGE_BYTES] = image_receivers.from_files(self, self.outputs)
        return receivers

    def outputs(self, predictions, features) -> dict[str, tf.Tensor]:
        """Returns the outputs of a signature from predictions and features."""
        del features
        return predictions
