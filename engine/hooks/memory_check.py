"""Checks that the batches and the weights of a run fit in the memory of this host."""

from __future__ import annotations

import math

import numpy as np

from common.errors import UsageError
from input_fns.core import memory
from input_fns.pipeline import Pipeline


def check(pipeline: Pipeline, batch_sizes: dict[str, int], num_predicted: int = 0) -> None:
    """Checks that a batch of each size fits, before any graph is built.

    Counts the batch as float32 plus the prefetched next batch in its stored dtype. Activations
    depend on the model and are not counted.

    Args:
      pipeline: input pipeline of the batches.
      batch_sizes: `{flag: global batch size}`, the whole of which is in this process.
      num_predicted: number of examples to predict, an upper limit of the batch; 0 if unknown.

    Raises:
      UsageError: a batch does not fit. Names the largest batch size that does.
    """
    features = {**pipeline.data.features, **pipeline.features}
    needed = sum(map(_count_bytes, features.values()))  # per example
    available = memory.available_bytes()
    for flag, size in batch_sizes.items():
        held = min(size, num_predicted or size) if flag == "predict_batch_size" else size
        if held * needed > available:
            raise UsageError(
                f"--{flag}={size} does not fit in memory: a batch of {held} examples takes at "
                f"least {held * needed / 2**30:,.1f} GiB, and {available / 2**30:,.1f} GiB are "
                f"free. Use at most {available // needed}; activations need memory, too"
            )


def _count_bytes(feature):
    if not feature.is_static:
        return 0
    return math.prod(feature.shape) * (np.dtype(feature.dtype).itemsize + 4)


def check_weights(num_parameters: int) -> None:
    """Raises `UsageError` if float32 weights do not fit, before a session allocates them."""
    needed, available = 4 * num_parameters, memory.available_bytes()
    if needed > available:
        raise UsageError(
            f"a model of {num_parameters:,} parameters does not fit in memory: its weights take "
            f"{needed / 2**30:,.1f} GiB, and {available / 2**30:,.1f} GiB are free. Use smaller "
            "layers (--params)"
        )
