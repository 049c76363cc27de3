"""Random examples at no input cost, instead of those of a data set: the highest throughput."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from common.constants import DROPOUT_SEED
from input_fns.core import input_context, records
from input_fns.core.input_context import HostShard
from input_fns.dataset_info import Feature
from input_fns.pipeline import Pipeline
from input_fns.record_pipeline import RecordPipeline

# Of the random rows of a global batch, and of a split; larger ones repeat them.
_MAX_BYTES, _MAX_ROWS = 2**27, 1024


class SyntheticPipeline(RecordPipeline):
    """Feeds random examples like those of a pipeline, which `Kind.random_examples` makes."""

    has_records = False

    def __init__(self, pipeline: Pipeline):
        """Feeds examples with the shapes, sizes and augmentation of `pipeline`."""
        self.data, self._pipeline = pipeline.data, pipeline

    @property
    def features(self) -> dict[str, Feature]:
        """Features of an example in prediction, as the model gets them."""
        return self._pipeline.features

    @property
    def properties(self):
        """Properties of the data set that it imitates."""
        return self._pipeline.properties

    def train_input_fn(
        self, split: str, seed: int, start_step: int = 0, oversample: float | None = None
    ):
        """Returns an input_fn that repeats one global batch, the same on any number of cores."""
        del split, start_step, oversample

        def input_fn(params):
            shard = input_context.from_params(params)
            draw = self.data.kind.random_training_examples
            (features, labels), size = self._rows(draw, shard.global_batch_size, seed)
            seeds = np.random.default_rng(seed).integers(0, 2**24, [size, 2], np.int32)
            first = shard.host * shard.host_batch_size
            # The rows of the global batch are those again and again.
            starts = [(first + i * shard.batch_size) % size for i in range(shard.batches_per_step)]
            if shard.batches_per_step % len(set(starts)) == 0:
                starts = list(dict.fromkeys(starts))
            elements = [
                tf.nest.map_structure(
                    lambda rows, start=start: rows[
                        np.arange(start, start + shard.batch_size) % size
                    ],
                    ({**features, DROPOUT_SEED: seeds}, labels),
                )
                for start in starts
            ]
            return _repeated(elements)

        return input_fn

    def _rows(self, draw, wanted, seed):
        """Returns random examples and their number: `wanted`, or fewer if these are large."""
        one = sum(array.nbytes for array in tf.nest.flatten(draw(self._pipeline, 1, seed)))
        size = min(wanted, max(1, _MAX_BYTES // one))
        return draw(self._pipeline, size, seed), size

    def in_order(self, split: str, host_shard: HostShard | None = None) -> tf.data.Dataset:
        """Returns as many examples as the split has, in batches of any size."""
        batch, size = self._rows(self.data.kind.random_examples, _MAX_ROWS, seed=0)
        whole, rest = divmod(self.data.split(split).num_examples, size)
        blocks = _repeated([batch]).take(whole)
        first = tf.nest.map_structure(lambda values: values[:rest], batch)
        dataset = blocks.concatenate(_repeated([first]).take(int(rest > 0)))
        return records.select_host_rows(dataset, host_shard)

    def host_examples(self, split: str, batch_size: int):
        """Yields NumPy `(features, labels)`."""
        batches = RecordPipeline.host_examples(self, split, batch_size)
        return self.data.kind.random_host_examples(batches)


def _repeated(elements):
    """Returns a data set that repeats a list of `(features, labels)` of the same shapes."""
    # A generator: arrays as tensors would become constants of the graph.
    spec = tf.nest.map_structure(lambda array: tf.TensorSpec(array.shape, array.dtype), elements[0])
    once = tf.data.Dataset.from_generator(lambda: elements, output_signature=spec)
    return once.cache().repeat()
