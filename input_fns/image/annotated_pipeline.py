"""Images with boxes or masks: what detection and segmentation have in common."""

from __future__ import annotations

import dataclasses

from input_fns import DataError
from input_fns.image import overlays
from input_fns.image.base_pipeline import BaseImagePipeline


@dataclasses.dataclass(frozen=True)
class AnnotatedPipeline(BaseImagePipeline):
    """Feeds images of one size, with what is drawn on them."""

    def __post_init__(self):
        """Raises `DataError` if the data set has no such images."""
        if self.image_file is None:
            raise DataError(
                f"{self.data.name} in {self.data.data_dir} has {self.stored_image.dtype} images of "
                f"{self.stored_image.shape[-1]} channels; they must be uint8, grey or RGB"
            )
        BaseImagePipeline.__post_init__(self)
        if self.augmentation.window or self.augmentation.mixers:
            raise DataError(
                "--augment: resize_crop, random_crop, mixup and cutmix need images with one class "
                f"each, but {self.data.name} has boxes or masks. Use scale_jitter"
            )

    def overlay_writer(self, writer, folder, examples):
        """Returns a writer that also draws the predictions into the images of `--input`."""
        return overlays.OverlayWriter(writer, folder, examples, self.draw_prediction)

    def draw_prediction(self, picture, scale, row):
        """Returns a picture with the predictions of an example; see `overlays.OverlayWriter`."""
        raise NotImplementedError

    def has_transform(self, spec, training):
        """Returns True: images are decoded, scaled and moved one by one."""
        del spec, training
        return True
