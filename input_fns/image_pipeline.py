"""The input_fns of a data set of images: what a model is fed with, from shards to batches."""

from __future__ import annotations

import dataclasses
import itertools
from typing import ClassVar

import tensorflow as tf

from input_fns import DataError, caching, image_receivers, images, input_context, records, serving
from input_fns.augment import Augmentation
from input_fns.dataset_info import Dataset, Feature
from input_fns.records import PARALLEL_CALLS, plain


@dataclasses.dataclass(frozen=True)
class ImagePipeline:
    """A data set of images and labels, as a model sees it.

    Attributes:
      data: the data set.
      image_size: `(height, width)` of the images that the model sees; None: as they are stored.
      augmentation: of training images, in the order of its words.
      center_crop: what evaluation sees of larger images, as a share of their sides.
      cache: "auto", "memory", "none", or a local folder; see `caching`.
    """

    data: Dataset
    image_size: tuple[int, int] | None = None
    augmentation: Augmentation = dataclasses.field(default_factory=Augmentation)
    center_crop: float = 0.875
    cache: str = caching.AUTO
    assets: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self):
        """Raises `DataError` for what cannot be fed."""
        if "image" not in self.data.features:
            raise DataError(
                f"{self.data.name} in {self.data.data_dir} holds "
                f"{', '.join(self.data.features)}, and no image"
            )
        if self.image_size is None and not self._stored.is_static:
            raise DataError(
                f"the images of {self.data.name} differ in size: --image_size=HEIGHTxWIDTH says "
                "which one the model sees"
            )
        touched = self.augmentation != Augmentation() or self._is_resized
        if touched and self._stored.dtype != "uint8":
            raise DataError(f"--augment and --image_size need uint8, not {self._stored.dtype}")

    @property
    def _stored(self) -> Feature:
        return self.data.features["image"]

    @property
    def _size(self):
        return self.image_size or self._stored.shape[:2]

    @property
    def _is_resized(self):
        return tuple(self._size) != tuple(self._stored.shape[:2])

    @property
    def features(self) -> dict[str, Feature]:
        """What the model sees, `{name: Feature}`."""
        shape = (*self._size, self._stored.shape[-1])
        return {"image": Feature("raw", self._stored.dtype, shape)}

    @property
    def any_picture(self) -> Feature | None:
        """What a JPEG or PNG of any size is to the model; None if it sees no pictures of bytes."""
        channels = self._stored.shape[-1]
        if self._stored.dtype != "uint8" or channels not in (1, 3):
            return None
        return Feature("image", "uint8", (None, None, channels))

    def train_input_fn(self, split: str, seed: int, start_step: int = 0):
        """Returns an input_fn for training: endless, reshuffled each epoch, augmented.

        Args:
          split: name of the split.
          seed: of order and augmentation, which are functions of it alone.
          start_step: global batches that an earlier run has used up. Training continues after
            them; see `records.train_from_files` for large splits.

        Returns:
          `input_fn(params) -> tf.data.Dataset` of `(features, labels)` in batches of exactly
          `params["batch_size"]`: images of `features`, what `records.split_numbers` adds, and
          labels, int32 `[batch]`, or, where the augmentation mixes images, float32
          `[batch, num_classes]`. With a `params["context"]`, as
          a TPUEstimator gives it, those of this host alone.

        Raises:
          DataError: `cache` has no room for the split.
        """
        plan = caching.plan(self.data, split, self.cache)

        def input_fn(params):
            share = input_context.of_params(params)
            files, draw = self.data.files(split), self.augmentation.draw
            as_pixels = plan.decoded or self._stored.encoding == "raw"
            if plan.in_memory:
                parse = self._stored_fn()
                examples = self._pixels(files) if as_pixels else records.in_order(files, parse)
                num_examples = self.data.split(split).num_examples
                dataset = records.train_from_memory(
                    examples, num_examples, draw, share, seed, start_step
                )
            else:
                parse = self._parse_raw() if as_pixels else self._stored_fn()
                record_bytes = self.data.split(split).record_bytes
                counts = [shard.num_examples for shard in self.data.split(split).shards]
                dataset = records.train_from_files(
                    files, counts, parse, draw, share, seed, start_step, record_bytes, plan.path
                )
            if as_pixels and not self.augmentation.window:
                dataset = self._augment(dataset)
            else:
                dataset = self._cut_and_augment(dataset, share.batch_size, as_pixels)
            return records.prefetched(dataset)

        return input_fn

    def eval_input_fn(self, split: str):
        """Returns an input_fn for exact evaluation: every example once, in order.

        Returns:
          `input_fn(params) -> tf.data.Dataset` of `(features, labels)` in batches of exactly
          `params["batch_size"]`. The last global batch is padded; `features["weight"]`, float32
          `[batch]`, is 1 for an example and 0 for padding. With a `params["context"]`, as a
          TPUEstimator gives it, those of this host alone.
        """

        def input_fn(params):
            return records.evaluate(self._in_order(split), input_context.of_params(params))

        return input_fn

    def predict_input_fn(self, split: str):
        """Returns an input_fn for prediction: every example once, in order, no padding.

        Returns:
          `input_fn(params) -> tf.data.Dataset` of features; the last batch may be smaller than
          `params["batch_size"]` (a TPUEstimator pads and trims it by itself).
        """

        def input_fn(params):
            dataset = self.features_in_order(split).rebatch(params["batch_size"])
            return records.untuned(dataset.prefetch(2))

        return input_fn

    def files_input_fn(self, files):
        """Returns an input_fn for prediction of pictures in no split, as evaluation would see them.

        Args:
          files: function that returns an iterator over what shards would hold of them: JPEG and PNG
            files of any size or, if the data set is of pixels, those in its size; bytes.

        Returns:
          What that of `predict_input_fn` returns.

        Raises:
          DataError: the model sees no pictures of bytes in grey or colour.
        """
        stored, any_picture = self._stored, self.any_picture
        if any_picture is None:
            raise DataError(
                f"--input: the images of {self.data.name}, {stored.dtype} of {stored.shape[-1]} "
                "channels, are no pictures"
            )

        @plain
        def evaluated(file):
            if stored.encoding != "raw":
                return {"image": self.evaluated_file(file, any_picture)}
            pixels = {"image": images.decode(file, stored)}
            return self.evaluated_pixels(pixels, None)[0]

        def input_fn(params):
            files_read = tf.data.Dataset.from_generator(
                files, output_signature=tf.TensorSpec([], tf.string)
            )
            dataset = files_read.map(evaluated, num_parallel_calls=PARALLEL_CALLS)
            return records.untuned(dataset.batch(params["batch_size"]).prefetch(2))

        return input_fn

    def features_in_order(self, split):
        """Every example once, in order, as evaluation sees it, in batches of any size."""
        return self._in_order(split).map(lambda features, labels: features)

    def host_input_fn(self, split: str):
        """Returns the input_fn of the predictions that host metrics need."""
        return self.predict_input_fn(split)

    def file_names(self, split: str):
        """Returns an iterator over the names of a split's image files; None of pixels alone.

        It reads the shards once more: a TPU takes no text along with the images.
        """
        names = records.names(self.data.files(split))
        first = next(names)
        return (name.decode() for name in itertools.chain([first], names)) if first else None

    def receivers(self, top_k: int = 0) -> dict[str, serving.Receiver]:
        """Returns the ways into a SavedModel, by signature; see `image_receivers`."""
        return image_receivers.receivers(self, top_k)

    def _stored_fn(self):
        return images.stored_fn(self.data.features, True, self.data.num_classes)

    def _parse_raw(self):
        """From serialised examples to pixels of the stored size, and labels."""
        stored_fn = self._stored_fn()

        def parse(serialized):
            stored, labels = stored_fn(serialized)
            return {"image": images.decode_raw(stored["image"], self._stored)}, labels

        return parse

    def _pixels(self, files):
        """Every example once, in order: images of the stored size, which is one for all."""
        if self._stored.encoding == "raw":
            return records.in_order(files, self._parse_raw())
        return self._decoded(files, lambda encoded: images.decode(encoded, self._stored))

    def _in_order(self, split):
        """Every example once, in order, as evaluation sees it."""
        files = self.data.files(split)
        if self._stored.encoding == "raw":
            dataset = records.in_order(files, self._parse_raw())
            return dataset.map(self.evaluated_pixels, num_parallel_calls=PARALLEL_CALLS)
        return self._decoded(files, lambda encoded: self.evaluated_file(encoded, self._stored))

    def _decoded(self, files, decode):
        dataset = records.in_order(files, self._stored_fn()).unbatch()

        @plain
        def decode_one(stored, label):
            return {"image": decode(stored["image"])}, label

        return dataset.map(decode_one, num_parallel_calls=PARALLEL_CALLS).batch(
            64, num_parallel_calls=PARALLEL_CALLS
        )

    def evaluated_file(self, encoded, stored):
        """What evaluation sees of one JPEG or PNG, that is stored as this feature."""
        return images.resize(self._middle(images.decode(encoded, stored)), self._size)

    def evaluated_picture(self, pixels):
        """Returns what evaluation would see of a decoded picture that is in no split.

        Args:
          pixels: uint8 `[height, width, channels]`, of any size, upright.
        """
        if self._stored.encoding != "raw":
            return images.resize(self._middle(pixels), self._size)
        pixels = images.resize(pixels, self._stored.shape[:2], antialias=True)
        return self.evaluated_pixels({"image": pixels}, None)[0]["image"]

    def _middle(self, pixels):
        """Cuts the window of evaluation out of images `[..., height, width, channels]`."""
        size = pixels.shape.as_list()[-3:-1]
        if None in size:
            size = tf.unstack(tf.shape(pixels)[-3:-1])
        return images.cut(pixels, self._center_window(*size))

    def _center_window(self, height, width):
        return images.center_window(height, width, self._size, self.center_crop)

    @plain
    def evaluated_pixels(self, features, labels):
        """What evaluation sees of features with images of the stored size."""
        if not self._is_resized:
            return features, labels
        return {"image": images.resize(self._middle(features["image"]), self._size)}, labels

    def _augment(self, dataset):
        """From batches of pixels of the stored size to what training sees."""

        @plain
        def augment(examples, numbers):
            return self._change(*self.evaluated_pixels(*examples), numbers)

        return dataset.map(augment, num_parallel_calls=PARALLEL_CALLS)

    def _cut_and_augment(self, dataset, batch_size, as_pixels):
        """From batches of JPEG and PNG files, or of larger pixels, to what training sees."""

        @plain
        def place(examples, numbers):
            # Of images of one size all windows at once, for a few operations a batch.
            return examples, numbers, self._window(numbers, *self._stored.shape[:2])

        @plain
        def cut(example, numbers, *window):
            features, label = example

            def window_of(height, width):
                return window[0] if window else self._window(numbers, height, width)

            if not self.augmentation.window:
                pixels = self.evaluated_file(features["image"], self._stored)
                return ({"image": pixels}, label), numbers
            if as_pixels:
                pixels = images.cut(features["image"], *window)
            else:
                pixels = images.decode_window(features["image"], self._stored, window_of)
            return ({"image": images.resize(pixels, self._size)}, label), numbers

        @plain
        def augment(examples, numbers):
            return self._change(*examples, numbers)

        if self._stored.is_static and self.augmentation.window:
            dataset = dataset.map(place)
        dataset = dataset.unbatch().map(cut, num_parallel_calls=PARALLEL_CALLS)
        dataset = dataset.batch(batch_size, drop_remainder=True, num_parallel_calls=PARALLEL_CALLS)
        return dataset.map(augment, num_parallel_calls=PARALLEL_CALLS)

    def _window(self, numbers, height, width):
        """Returns int32 `[..., 4]`, where training looks, of float32 `[..., numbers]`."""
        own = self.augmentation.of_window(numbers)
        center = self._center_window(height, width)
        return self.augmentation.window.window(own, (height, width), center)

    def _change(self, features, labels, numbers):
        numbers, seeds = records.split_numbers(numbers)
        pixels = self.augmentation.apply(features["image"], numbers)
        if self.augmentation.mixes:
            one_hot = tf.one_hot(labels, self.data.num_classes)
            pixels, labels = self.augmentation.mix(pixels, one_hot, numbers)
        return {"image": pixels, **seeds}, labels
