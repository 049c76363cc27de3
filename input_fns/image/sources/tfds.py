"""Image classification data sets of tensorflow-datasets, an optional dependency.

https://www.tensorflow.org/datasets/catalog/overview#image_classification
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from input_fns import DataError
from input_fns.convert.options import Options
from input_fns.convert.source import Broken, RawDataset, Row
from input_fns.convert.split_names import split_names
from input_fns.image.sources import decoded_images
from input_fns.image.sources.image_files import ImageSplit, to_row

PREFIX = "tfds:"
_UNLABELLED = -1  # in test splits of contests, such as ImageNet


@dataclasses.dataclass(frozen=True)
class TfdsSplit(ImageSplit):
    """A stream of image files from a builder."""

    KEYS = ("indices", "labels")

    builder: Any
    split: str
    options: Options
    indices: np.ndarray
    labels: np.ndarray | None = None

    def _num_file_bytes(self):
        whole = self.builder.info.splits[self.split]
        return whole.num_bytes * len(self) // whole.num_examples

    def take(self, indices: Sequence[int]) -> TfdsSplit:
        """Returns the split of these examples; they come in the order of the builder."""
        return super().take(np.sort(indices))

    def __iter__(self) -> Iterator[Row | Broken]:
        size, channels = self.options.image_size, self.options.channels
        wanted = set(self.indices.tolist())
        for i, data in enumerate(_column(self.builder, self.split, "image")):
            if i not in wanted:
                continue
            name = f"{self.split}[{i}]"
            try:
                image = decoded_images.read(data, size, channels, self.options.pixel_range)
            except decoded_images.PixelRangeError as error:
                raise decoded_images.named(error, name) from error
            except Exception as error:  # Pillow's decoders raise many types
                yield Broken(name, decoded_images.reason_of(error))
                continue
            yield to_row(image, self.options, name)


def read(options: Options) -> RawDataset:
    """Returns all splits, also those without labels; downloads the data set if needed.

    Args:
      options: `dataset` is "tfds:NAME", such as "tfds:cifar10"; `source` is the data_dir of
        tensorflow-datasets; its default if empty.

    Raises:
      DataError: the package is not installed, or the data set has no image and label.
    """
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise DataError(
            f"--dataset={options.dataset} needs the extra tfds: pip install '.[tfds]' ({error})"
        ) from error
    builder = tfds.builder(options.dataset[len(PREFIX) :], data_dir=options.source or None)
    features = builder.info.features
    missing = {"image", "label"} - set(features)
    if missing:
        raise DataError(f"{options.dataset} has no {' and no '.join(sorted(missing))}")
    builder.download_and_prepare()
    splits = {}
    for ours, name in split_names(builder.info.splits, options.dataset).items():
        labels = np.fromiter(_column(builder, name, "label"), np.int64)
        indices = np.arange(len(labels))
        is_labelled = (labels != _UNLABELLED).any()
        splits[ours] = TfdsSplit(builder, name, options, indices, labels if is_labelled else None)
    return RawDataset(options.dataset, tuple(features["label"].names), splits)


def _column(builder, split, name):
    import tensorflow_datasets as tfds

    skip = {"image": tfds.decode.SkipDecoding()}
    config = tfds.ReadConfig(interleave_cycle_length=1)  # deterministic order
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        dataset = builder.as_dataset(
            split=split, decoders=skip, read_config=config, shuffle_files=False
        )
        value = tf.compat.v1.data.make_one_shot_iterator(
            dataset.map(lambda example: example[name]).prefetch(64)
        ).get_next()
        while True:
            try:
                yield session.run(value)
            except tf.errors.OutOfRangeError:
                return
