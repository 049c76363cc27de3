"""Random images and text that cost nothing to feed: the speed that no pipeline can exceed."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np
import tensorflow as tf

from common.constants import DROPOUT_SEED, EOS
from input_fns import input_context, records, serving
from input_fns.dataset_info import Dataset, Feature, Text, unstored

NAME = "synthetic"
_SPLITS = {"train": 50_000, "test": 10_000}
_EVAL_BLOCK = 1024
_SENTENCE = 16  # tokens


def dataset(image_size: tuple[int, int], num_classes: int) -> Dataset:
    """Returns a data set of colour images that is nowhere stored: 50,000 train and 10,000 test."""
    feature = Feature("raw", "uint8", (*image_size, 3))
    class_names = tuple(f"class {number}" for number in range(num_classes))
    return Dataset(NAME, "", {"image": feature}, class_names, unstored(_SPLITS))


def text_dataset(max_length: int, vocab_size: int) -> Dataset:
    """Returns a data set of rows of tokens that is nowhere stored: 50,000 train and 10,000 test."""
    feature = Feature("raw", "int32", (max_length,))
    text = Text((), "", vocab_size, max_length, {})
    return Dataset(NAME, "", {"source": feature, "target": feature}, (), unstored(_SPLITS), text)


@dataclasses.dataclass(frozen=True)
class SyntheticPipeline:
    """Feeds random examples in the place of a data set, with the methods of its own pipeline.

    Attributes:
      data: the data set whose splits, sizes and classes are pretended.
      features: what the model sees in prediction.
      mixes: whether training labels are float32 `[batch, num_classes]`.
    """

    data: Dataset
    features: dict[str, Feature]
    mixes: bool = False
    assets: ClassVar[tuple[str, ...]] = ()

    def train_input_fn(self, split: str, seed: int, start_step: int = 0):
        """Returns an input_fn whose every batch is the same."""
        del split, start_step

        def input_fn(params):
            size = params["batch_size"]
            features, labels = self._batch(size, seed)
            seeds = np.random.default_rng(seed).integers(0, 2**24, [size, 2], np.int32)
            features = {**features, DROPOUT_SEED: seeds}
            if self.mixes:
                labels = np.eye(self.data.num_classes, dtype=np.float32)[labels]
            return _repeated(features, labels)

        return input_fn

    def eval_input_fn(self, split: str):
        """Returns an input_fn of as many examples as the split has, padded as a real one."""

        def input_fn(params):
            return records.evaluate(self._examples(split), input_context.of_params(params))

        return input_fn

    def predict_input_fn(self, split: str):
        """Returns an input_fn of as many examples as the split has."""

        def input_fn(params):
            examples = self._examples(split).map(
                lambda features, labels: {name: features[name] for name in self.features}
            )
            return examples.rebatch(params["batch_size"])

        return input_fn

    def host_input_fn(self, split: str):
        """Returns the input_fn of the predictions that host metrics need."""
        return self.predict_input_fn(split)

    def file_names(self, split: str) -> None:
        """Returns None: there were no files."""
        del split

    def receivers(self, top_k: int = 0) -> dict[str, serving.Receiver]:
        """Returns the one way into a SavedModel of no data: what the model sees."""

        def outputs(predictions):
            if self.data.text:
                return predictions
            return serving.class_outputs(predictions, self.data.class_names, top_k)

        return {
            serving.RAW: serving.Receiver(
                serving.raw_inputs(self.features), dict, outputs, self._first_examples
            )
        }

    def _first_examples(self, split, count):
        features, _ = self._batch(_EVAL_BLOCK, seed=0)
        return {name: features[name][:count] for name in self.features}

    def _examples(self, split):
        whole, rest = divmod(self.data.split(split).num_examples, _EVAL_BLOCK)
        features, labels = self._batch(_EVAL_BLOCK, seed=0)
        blocks = _repeated(features, labels).take(whole)
        features = {name: values[:rest] for name, values in features.items()}
        return blocks.concatenate(_repeated(features, labels[:rest]).take(int(rest > 0)))

    def _batch(self, size, seed):
        random = np.random.default_rng(seed)
        if self.data.text:
            rows = random.integers(
                3, self.data.text.vocab_size, [2, size, self.data.text.max_length], np.int32
            )
            rows[..., _SENTENCE - 1 :: _SENTENCE] = rows[..., -1] = EOS
            return {"source": rows[0], "target": rows[1]}, rows[1]
        features = {
            name: random.integers(0, 256, [size, *feature.shape]).astype(feature.dtype)
            for name, feature in self.features.items()
        }
        return features, random.integers(0, self.data.num_classes, size).astype(np.int32)


def _repeated(features, labels):
    # By a function, so that the numbers do not become constants of the graph.
    spec = tf.nest.map_structure(
        lambda array: tf.TensorSpec(array.shape, array.dtype), (features, labels)
    )
    once = tf.data.Dataset.from_generator(lambda: [(features, labels)], output_signature=spec)
    return once.cache().repeat()
