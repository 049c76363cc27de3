"""Measures and prints the rates of input pipelines, side by side."""

from __future__ import annotations

import statistics

from benchmarks.subprocesses import format_ratios, interleave

# Measures examples/s, after 20 batches that fill the buffers.
COUNT = """
import sys, time
def rate(next_batch, batch_size, seconds):
    for _ in range(20): next_batch()
    started, batches = time.monotonic(), 0
    while time.monotonic() - started < seconds:
        next_batch(); batches += 1
    return batches * batch_size / (time.monotonic() - started)
seconds = float(sys.argv[1])
"""
# Pulls training batches of `pipeline` and prints their rate; after COUNT.
PULL = """
import json
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    batches = pipeline.train_input_fn("train", seed=1)({"batch_size": batch_size})
    batch = tf.compat.v1.data.make_one_shot_iterator(batches).get_next()
    pull = session.make_callable(tf.group(*tf.nest.flatten(batch)))
    print(json.dumps(rate(pull, batch_size, seconds)))
"""


def print_table(title: str, unit: str, sides: dict, rounds: int) -> dict[str, list[float]]:
    """Runs the sides interleaved; prints a row per side with the ratios first side / side.

    Args:
      title: of the table.
      unit: of the rates, such as "images/s".
      sides: `{name: function that returns a rate}`, ours first.
      rounds: number of rounds.

    Returns:
      `{name: rate of each round}`.
    """
    rates = interleave(sides, rounds)
    first = next(iter(sides))
    print(f"{title}: {unit}, median ratio ours / this, ratios of the rounds")
    for name, found in rates.items():
        ratios = format_ratios(rates[first], found)
        print(f"  {name:30}{statistics.median(found):10,.0f}    {ratios}", flush=True)
    return rates
