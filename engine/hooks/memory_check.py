"""Whether the batches and the weights of a run fit into this host's memory."""

from __future__ import annotations

import math

import numpy as np

from common.errors import UsageError
from input_fns import memory
from input_fns.pipeline import Pipeline


def check(pipeline: Pipeline, batch_sizes: dict[str, int], num_predicted: int = 0) -> None:
    """Checks that each batch fits, before any graph is built.

    A batch takes 4 bytes a number in the network, while the next one waits as it was read. What
    the layers need on top of it depends on the model and is not counted.

    Args:
      pipeline: that makes the batches.
      batch_sizes: `{flag: global batch size}`, all of it in this process.
      num_predicted: examples that are predicted, the most that such a batch holds; 0 if unknown.

    Raises:
      UsageError: one does not fit. Names the largest that does.
    """
    features = {**pipeline.data.features, **pipeline.features}
    needed = sum(map(_bytes_of, features.values()))
    available = memory.available_bytes()
    for flag, size in batch_sizes.items():
        held = min(size, num_predicted or size) if flag == "predict_batch_size" else size
        if held * needed > available:
            raise UsageError(
                f"--{flag}={size} does not fit in memory: a batch of {held} examples takes at "
                f"least {held * needed / 2**30:,.1f} GiB, and {available / 2**30:,.1f} GiB are "
                f"free, enough for {available // needed} examples without a network"
            )


def _bytes_of(feature):
    if not feature.is_static:
        return 0
    return math.prod(feature.shape) * (np.dtype(feature.dtype).itemsize + 4)


def check_weights(num_parameters: int) -> None:
    """Checks that float32 weights fit, before a session allocates them.

    Raises:
      UsageError: they do not.
    """
    needed, available = 4 * num_parameters, memory.available_bytes()
    if needed > available:
        raise UsageError(
            f"a model of {num_parameters:,} parameters does not fit in memory: its weights take "
            f"{needed / 2**30:,.1f} GiB, and {available / 2**30:,.1f} GiB are free. Choose smaller "
            "layers by --params"
        )
