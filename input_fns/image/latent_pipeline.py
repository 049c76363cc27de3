"""Images, and latents from which a generator makes images."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import tensorflow as tf

from input_fns import DataError
from input_fns.core import records, serving
from input_fns.core.records import no_autograph
from input_fns.dataset_info import Feature
from input_fns.image import generated_images
from input_fns.image.image_pipeline import ImagePipeline

GENERATE = "generate"  # signature that takes seeds instead of latents
_MAX_SEED = np.iinfo(np.int32).max


@dataclasses.dataclass(frozen=True)
class LatentPipeline(ImagePipeline):
    """Feeds images with latents.

    Features of training and evaluation:

        image     uint8 [batch, height, width, channels]
        latent    float32 [batch, latent_size]  normal random numbers
        class_id  int32 [batch]                 the class of the image, with `has_classes`

    A prediction gets no image. In training latents are a function of the seed of the run, the step
    and the place in the batch; in a split of `sampling_seed` and the image, so that an evaluation
    has the same ones at any batch size.

    Attributes:
      latent_size: numbers of a latent.
      sampling_seed: another one gives other latents in evaluation and prediction.
      has_classes: whether the model generates images of a class.
    """

    latent_size: int = 128
    sampling_seed: int = 0
    has_classes: bool = False
    file_examples = "input_fns.image.sources.request_file:read"

    def __post_init__(self):
        """Raises `DataError` if the data set has no such images, or no classes to generate."""
        ImagePipeline.__post_init__(self)
        if self.stored_image.dtype != "uint8":
            raise DataError(f"a GAN needs uint8 images, not {self.stored_image.dtype}")
        if self.augmentation.mixers:
            raise DataError("--augment: a GAN needs images that are not mixed with others")
        if self.has_classes and not self.data.num_classes:
            raise DataError(
                f"{self.data.name} has no classes, which the model generates images of. Use "
                "--model=dcgan"
            )

    @property
    def images(self) -> ImagePipeline:
        """The pipeline of the images."""
        fields = dataclasses.fields(ImagePipeline)
        return ImagePipeline(**{field.name: getattr(self, field.name) for field in fields})

    @property
    def features(self) -> dict[str, Feature]:
        """Features of an example in prediction, as the model gets them."""
        latent = {"latent": Feature("raw", "float32", (self.latent_size,))}
        return {**latent, "class_id": Feature("raw", "int32", ())} if self.has_classes else latent

    @property
    def properties(self):
        """Properties of the data set by name, with those of the images."""
        shape = (*self.canvas, self.stored_image.shape[-1])
        return {**super().properties, "image_size": self.canvas, "image_shape": shape}

    @property
    def input_limits(self) -> dict[str, tuple]:
        """Limits of the values of a request; see `serving.checked`."""
        classes = {"class_id": (0, self.data.num_classes)} if self.has_classes else {}
        return {"latent": serving.FINITE, **classes}

    # Stages: see RecordPipeline.

    def draw(self, count, seed):
        """Returns the random numbers of the augmentation, and latents."""
        latents = tf.random.stateless_normal([count, self.latent_size], seed)
        return tf.concat([super().draw(count, seed), latents], axis=1)

    def sample(self, numbers):
        """Returns the random values of `ImagePipeline`, and latents."""
        random = super().sample(numbers[:, : -self.latent_size])
        return {**random, "latent": numbers[:, -self.latent_size :]}

    @no_autograph
    def batch_transform(self, features, labels, random):
        """Returns images, latents and classes."""
        features, labels = super().batch_transform(features, labels, random)
        training = random is not None
        latents = random["latent"] if training else self.latents(_sums(features["image"]))
        classes = {"class_id": labels} if self.has_classes and tf.is_tensor(labels) else {}
        return {**features, "latent": latents, **classes}, labels

    def features_in_order(self, split):
        """Returns latents and classes of a split; see `RecordPipeline`."""
        if self.has_classes and not self.data.split(split).has_labels:
            raise DataError(
                f"split '{split}' has no classes to generate. Name seeds and classes in a file "
                "(--input)"
            )
        return super().features_in_order(split)

    def latents(self, seeds: tf.Tensor) -> tf.Tensor:
        """Returns a latent for each seed, float32 `[n, latent_size]`; of int32 `[n]`."""

        def draw(seed):
            return tf.random.stateless_normal([self.latent_size], [seed, self.sampling_seed])

        return tf.map_fn(draw, seeds, fn_output_signature=tf.float32)

    def with_random_latents(self, features: dict, labels: np.ndarray, seed: int) -> dict:
        """Returns NumPy features of a synthetic data set."""
        size = [len(features["image"]), self.latent_size]
        latents = np.random.default_rng(seed).normal(size=size).astype(np.float32)
        classes = {"class_id": labels.astype(np.int32)} if self.has_classes else {}
        return {**features, "latent": latents, **classes}

    # Prediction and serving.

    def prediction_writer(self, examples):
        """Returns the writer of PNG files."""
        return generated_images.ImageWriter(self, examples)

    def requests_input_fn(self, rows: dict[str, np.ndarray]):
        """Returns an input_fn for prediction of requests, in order.

        Args:
          rows: `{"first": int32 [n], "second": int32 [n], "fraction": float32 [n], "class_id":
            int32 [n]}`: seeds, and where the latent is between theirs on a great circle.
        """

        @no_autograph
        def features(row):
            ends = self.latents(row["first"]), self.latents(row["second"])
            latent = {"latent": _slerp(*ends, row["fraction"][:, tf.newaxis])}
            return {**latent, "class_id": row["class_id"]} if self.has_classes else latent

        def input_fn(params):
            dataset = tf.data.Dataset.from_tensor_slices(rows).batch(params["batch_size"])
            return records.with_options(dataset.map(features))

        return input_fn

    def receivers(self, top_k: int = 0) -> dict[str, serving.Receiver]:
        """Returns the serving input receivers by signature: `RAW`, and `GENERATE` of a seed.

        `RAW` takes latents and returns `image`, float32 in [0, 1]; `GENERATE` takes seeds and
        returns `pixels`, uint8, and `png`, strings with PNG files. Both take classes if the model
        has them.
        """
        del top_k
        number = Feature("raw", "int32", ())
        inputs = {"seed": number, **self.features}
        del inputs["latent"]
        limits = {name: limit for name, limit in self.input_limits.items() if name == "class_id"}
        raw = serving.Receiver(
            serving.raw_inputs(self.features),
            dict,
            lambda predictions, features: predictions,
            self._first_features,
            self.input_limits,
        )
        generate = serving.Receiver(
            serving.raw_inputs(inputs),
            self._of_seeds,
            _pixels_and_files,
            functools.partial(self._first_seeds, names=tuple(inputs)),
            limits,
        )
        return {serving.RAW: raw, GENERATE: generate}

    def _of_seeds(self, inputs):
        features = {name: value for name, value in inputs.items() if name != "seed"}
        return {"latent": self.latents(inputs["seed"]), **features}

    def _first_seeds(self, split, count, names):
        """Returns the seeds of the latents of `_first_features`, and their classes."""

        @no_autograph
        def seeds(features, labels):
            del labels
            found = {"seed": _sums(features["image"]), **features}
            return {name: found[name] for name in names}

        return serving.first_of(lambda: self.in_order(split).map(seeds), count)


def _sums(images):
    """Returns a number of each image, int32 `[n]`: its pixels, weighted by their places."""
    flat = tf.cast(tf.reshape(images, [-1, images.shape[1:].num_elements()]), tf.int64)
    weights = tf.range(1, tf.shape(flat, tf.int64)[1] + 1) ** 2
    return tf.cast(tf.reduce_sum(flat * weights, axis=1) % _MAX_SEED, tf.int32)


def _slerp(first, second, fraction):
    """Spherical interpolation of `[n, size]`; the first one where both are equal."""
    lengths = tf.norm(first, axis=1, keepdims=True) * tf.norm(second, axis=1, keepdims=True)
    cosine = tf.reduce_sum(first * second, axis=1, keepdims=True) / lengths
    angle = tf.acos(tf.clip_by_value(cosine, -1, 1))
    between = tf.sin((1 - fraction) * angle) * first + tf.sin(fraction * angle) * second
    return tf.where(tf.equal(fraction, 0), first, between / tf.sin(angle))


def _pixels_and_files(predictions, features):
    """Returns the outputs of `GENERATE`."""
    del features
    pixels = tf.cast(tf.round(255 * tf.clip_by_value(predictions["image"], 0, 1)), tf.uint8)
    files = tf.map_fn(tf.io.encode_png, pixels, fn_output_signature=tf.string)
    return {"pixels": pixels, "png": files}
