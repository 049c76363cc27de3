"""Images with classes."""

from __future__ import annotations

import dataclasses

import numpy as np

from input_fns import DataError, kinds
from input_fns.core.dataset_json import find_image_problem
from input_fns.core.dataset_parts import Feature
from input_fns.kinds import Kind


@dataclasses.dataclass(frozen=True)
class Images(Kind):
    """Images and classes, and nothing else; see `image_pipeline`."""

    content = "has images with classes"
    noun = "images"
    flags = ("image_size", "augment", "center_crop")

    def check(self, data):
        """Raises DataError if an example is not `[height, width, channels]`."""
        features = {name: f for name, f in data.features.items() if name not in data.labels}
        problem = find_image_problem(features)
        if problem:
            raise DataError(problem)

    def pipeline(self, data, options):
        """Returns an `ImagePipeline`; a `LatentPipeline` for a model that reads latents."""
        from input_fns.image import augment
        from input_fns.image.image_pipeline import ImagePipeline

        augmentation = augment.parse(options.augment)
        arguments = (data, options.image_size, augmentation, options.cache, options.center_crop)
        if "latent" not in options.model_features:
            return ImagePipeline(*arguments)
        from input_fns.image.latent_pipeline import LatentPipeline

        params = options.params()
        return LatentPipeline(
            *arguments,
            latent_size=params["latent_size"],
            sampling_seed=params["sampling_seed"],
            has_classes="class_id" in options.model_features,
        )

    def previews(self, data, features):
        """Returns pictures; the brightest value of all becomes white."""
        from common import pictures
        from input_fns.image import contact_sheet

        shown, brightest = features["image"], max(1, features["image"].max())
        return [
            kinds.Preview(png=pictures.to_png(contact_sheet.to_picture(image, brightest)))
            for image in shown
        ]

    @classmethod
    def synthetic(cls, shapes):
        """Returns RGB images."""
        features = {"image": Feature("raw", "uint8", (*shapes.image_size, 3))}
        return kinds.synthetic_dataset(features, kinds.class_names(shapes.classes))

    def random_examples(self, pipeline, size, seed):
        """Returns images and classes, with latents for a model that reads them."""
        from input_fns.image.latent_pipeline import LatentPipeline

        if not isinstance(pipeline, LatentPipeline):
            return super().random_examples(pipeline, size, seed)
        features, labels = super().random_examples(pipeline.images, size, seed)
        return pipeline.with_random_latents(features, labels, seed), labels

    def random_training_examples(self, pipeline, size, seed):
        """Returns images; if the augmentation mixes them, with float32 `[size, num_classes]`."""
        features, labels = self.random_examples(pipeline, size, seed)
        if pipeline.augmentation.mixers and not pipeline.data.target:
            labels = np.eye(pipeline.data.num_classes, dtype=np.float32)[labels]
        return features, labels
