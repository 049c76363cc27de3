"""The contract between a data set and the two wrappers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import tensorflow as tf

from input_fns.dataset_info import Dataset, Feature
from input_fns.serving import Receiver

InputFn = Callable[[dict[str, Any]], tf.data.Dataset]


@runtime_checkable
class Pipeline(Protocol):
    """What a model is fed with.

    An input_fn takes `params`, of which `deployment.of_params` tells which part of every global
    batch it delivers, and returns a data set of static shapes. `records` has what makes the
    promises below true.

    Attributes:
      data: what is known of the data set: its name, the sizes of its splits, its classes.
      features: of an example in prediction, `{name: Feature}`.
        assets: paths of files that a SavedModel must hold.
    """

    data: Dataset
    features: dict[str, Feature]
    assets: Sequence[str]

    def train_input_fn(self, split: str, seed: int, start_step: int = 0) -> InputFn:
        """Returns an input_fn of endless `(features, labels)`, reshuffled each epoch by `seed`.

        `features` also holds `DROPOUT_SEED`; see `records.split_numbers`. A run that starts at
        `start_step` skips the global batches before it.
        """

    def eval_input_fn(self, split: str) -> InputFn:
        """Returns an input_fn of `(features, labels)`: every example once, in order.

        The last batch is padded with examples whose `features["weight"]` is 0; see
        `records.evaluate`.
        """

    def predict_input_fn(self, split: str) -> InputFn:
        """Returns an input_fn of features: every example once, in order, without padding."""

    def host_input_fn(self, split: str) -> InputFn:
        """Returns an input_fn of features: every example once, for host metrics."""

    def file_names(self, split: str) -> Iterator[str] | None:
        """Returns the names of the files that the examples were; None if they were none."""

    def receivers(self, top_k: int = 0) -> dict[str, Receiver]:
        """Returns the ways into a SavedModel, by signature."""
