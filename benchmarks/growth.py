"""Speed and memory of training as data, model, batch and number of cores grow.

    python -m benchmarks.growth [--plot=docs/growth.svg]

Trains configs/mnist_mlp.cfg on random images with one setting changed at a time, interleaved,
medians of --rounds. The plot needs matplotlib.
"""

from __future__ import annotations

import functools
import os
import statistics
import tempfile

from absl import app, flags

from benchmarks import train_speed
from benchmarks.subprocesses import interleave, run_cpu

flags.DEFINE_string("plot", "", "File for a plot of the curves.")

RECIPE = "mnist_mlp"
SHAPE, EXAMPLES, _ = train_speed.RECIPES[RECIPE]
TRAINED = 100_000  # training examples per run
# Setting -> values. The other settings are those of the recipe.
AXES = {
    "examples": [6_000, 60_000, 600_000],
    "hidden_units": [128, 512, 2048],
    "train_batch_size": [16, 128, 1024],
    "cores": [1, 2],
}
MEASURES = ("examples/s", "seconds to the first step", "peak memory, MiB")


def main(_):
    """Prints a row per value."""
    with tempfile.TemporaryDirectory() as folder:
        points = [(axis, value) for axis, values in AXES.items() for value in values]
        sides = {point: functools.partial(_measure, folder, *point) for point in points}
        runs = interleave(sides, flags.FLAGS.rounds)
    curves = {axis: {} for axis in AXES}
    for (axis, value), rows in runs.items():
        curves[axis][value] = row = [statistics.median(column) for column in zip(*rows)]
        figures = ", ".join(f"{name} {f:,.1f}" for name, f in zip(MEASURES, row))
        print(f"{axis:17}{value:>9,}: {figures}")
    if flags.FLAGS.plot:
        _plot(curves, flags.FLAGS.plot)


def _measure(folder, axis, value):
    examples = value if axis == "examples" else EXAMPLES
    folder = os.path.join(folder, str(examples))
    if not os.path.exists(folder):
        os.mkdir(folder)
        train_speed.prepare(RECIPE, folder, SHAPE, examples)
    sizes = {"hidden_units": 512, "train_batch_size": 128, "cores": os.cpu_count(), axis: value}
    steps = TRAINED // sizes["train_batch_size"]
    result = run_cpu(
        *train_speed.arguments(RECIPE, f"{folder}/{RECIPE}", steps),
        f"--params=hidden_units={sizes['hidden_units']}",
        f"--train_batch_size={sizes['train_batch_size']}",
        before=f"import os\nos.sched_setaffinity(0, range({sizes['cores']}))\n",
    )
    train = result["train"]
    return train["examples_per_second"], train["seconds_to_first_step"], result["peak"]


def _plot(curves, path):
    import matplotlib.pyplot as plt

    figure, rows = plt.subplots(len(MEASURES), len(curves), figsize=(13, 8), sharey="row")
    for column, (axis, points) in enumerate(curves.items()):
        for i, measure in enumerate(MEASURES):
            plot = rows[i][column]
            plot.plot(list(points), [row[i] for row in points.values()], marker="o")
            plot.set_xscale("log", base=2 if axis == "cores" else 10)
            plot.set_xticks(list(points), [f"{value:,}" for value in points], minor=False)
            plot.set_xticks([], minor=True)
            plot.set_xlabel(axis)
            plot.set_ylabel(measure if not column else "")
            plot.grid(alpha=0.3)
    for row in rows:
        row[0].set_ylim(bottom=0)  # shared by the row
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    app.run(main)
