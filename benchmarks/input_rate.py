"""Measures and prints the rates of input pipelines, side by side."""

from __future__ import annotations

import statistics

from benchmarks.subprocesses import interleave

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
        ratios = [a / b for a, b in zip(rates[first], found)]
        print(
            f"  {name:30}{statistics.median(found):10,.0f}{statistics.median(ratios):8.2f}  "
            f"{' '.join(f'{ratio:.2f}' for ratio in ratios)}",
            flush=True,
        )
    return rates
