"""Input functions of the first examples of a split, for an evaluation of a part of it."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from common.constants import EXAMPLE_WEIGHT
from input_fns.core import input_context
from input_fns.core.records import no_autograph


def of_evaluation(input_fn, count: int):
    """Returns the `eval_input_fn` of the batches with the first `count` examples.

    Later examples of the final batch get the weight 0.
    """

    def limited(params):
        host = input_context.from_params(params)
        steps = -(-count // host.global_batch_size)

        @no_autograph
        def mask(number, batch):
            features, labels = batch
            step, part = number // host.batches_per_step, number % host.batches_per_step
            first = step * host.global_batch_size + host.host * host.host_batch_size
            rows = first + part * host.batch_size + tf.range(host.batch_size, dtype=tf.int64)
            weights = features[EXAMPLE_WEIGHT] * tf.cast(rows < count, tf.float32)
            return {**features, EXAMPLE_WEIGHT: weights}, labels

        return input_fn(params).take(steps * host.batches_per_step).enumerate().map(mask)

    return limited


def of_prediction(input_fn, count: int):
    """Returns the `predict_input_fn` of the batches with the first `count` examples."""
    return lambda params: input_fn(params).take(-(-count // params["batch_size"]))


def of_batches(batches: Iterator[Any], count: int) -> Iterator[Any]:
    """Yields nested NumPy arrays `[n, ...]` up to `count` rows in all."""
    while count > 0:
        batch = next(batches)
        rows = slice(count)
        yield tf.nest.map_structure(operator.itemgetter(rows), batch)
        count -= len(tf.nest.flatten(batch)[0])
