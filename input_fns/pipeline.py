"""The contract between a data set and the two wrappers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import tensorflow as tf

from input_fns.core.serving import Receiver
from input_fns.dataset_info import DatasetInfo, Feature

InputFn = Callable[[dict[str, Any]], tf.data.Dataset]


@runtime_checkable
class Pipeline(Protocol):
    """Feeds a model from a data set; `record_pipeline.RecordPipeline` implements it.

    An input_fn takes `params`, from which `input_context.from_params` computes the rows of every
    global batch that it delivers, and returns a `tf.data.Dataset` of static shapes. Features are a
    nested dict, labels any nested structure.

    `train_input_fn` may take `oversample`, as that of `RecordPipeline`, for --oversample.

    A pipeline may also have `prediction_writer` and `file_examples`; see `core.predictions`.

    Attributes:
      data: metadata of the data set: name, splits and sizes, classes.
      features: features of an example in prediction, `{name: Feature}`; "a/b" names a nested one.
      properties: properties of the data set by name, such as "num_classes" or "vocab_size".
      assets: paths of files that a SavedModel must hold.
    """

    data: DatasetInfo
    features: dict[str, Feature]
    properties: Mapping[str, Any]
    assets: Sequence[str]

    def train_input_fn(self, split: str, seed: int, start_step: int = 0) -> InputFn:
        """Returns an input_fn of endless `(features, labels)`, reshuffled each epoch by `seed`.

        `features` also holds `DROPOUT_SEED`; see `records.split_numbers`. A run that starts at
        `start_step` skips the global batches before it.
        """

    def eval_input_fn(self, split: str) -> InputFn:
        """Returns an input_fn of `(features, labels)`: every example once, in order.

        The final batch is padded with examples whose `features["weight"]` is 0; see
        `records.pad_final_batch`.
        """

    def predict_input_fn(self, split: str) -> InputFn:
        """Returns an input_fn of features: every example once, in order, without padding."""

    def host_input_fn(self, split: str, max_examples: int = 0) -> InputFn | None:
        """Returns an input_fn of features for the predictions of host metrics: every example once.

        With `max_examples`, which is passed only if there is an input_fn: of the first examples.
        None if `host_examples` has the order of `eval_input_fn` and `predict_input_fn`. An
        evaluation on a CPU or GPU then predicts too; else host metrics need a second pass.
        """

    def host_examples(
        self, split: str, batch_size: int, max_examples: int = 0
    ) -> Iterator[tuple[Any, Any]]:
        """Yields NumPy `(features, labels)` batches, without padding; see `host_input_fn`."""

    def file_names(self, split: str) -> Iterator[str] | None:
        """Returns the names of the source files of the examples, in order; None without names."""

    def receivers(self, top_k: int = 0) -> dict[str, Receiver]:
        """Returns the serving input receivers, by signature."""
