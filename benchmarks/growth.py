"""Speed and memory of training as data, model, batch and number of cores grow.

    python -m benchmarks.growth [--plot=docs/growth.svg]

Trains configs/mnist_mlp.cfg on random images with one setting changed at a time, interleaved,
medians of --rounds. The plot needs matplotlib.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time

from absl import app, flags

from benchmarks import train_speed
from benchmarks.subprocesses import run_python

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

CODE = (
    """
import os, sys
os.sched_setaffinity(0, range(int(sys.argv.pop(1))))
"""
    + train_speed.OURS
    + """
import resource
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([record["examples_per_second"], record["seconds_to_first_step"], peak]))
"""
)


def main(_):
    """Prints a row per value."""
    runs = {(axis, value): [] for axis, values in AXES.items() for value in values}
    with tempfile.TemporaryDirectory() as folder:
        for i in range(flags.FLAGS.rounds):
            for (axis, value), rows in runs.items():
                rows.append(_measure(folder, i, axis, value))
    curves = {axis: {} for axis in AXES}
    for (axis, value), rows in runs.items():
        curves[axis][value] = row = [statistics.median(column) for column in zip(*rows)]
        figures = ", ".join(f"{name} {f:,.1f}" for name, f in zip(MEASURES, row))
        print(f"{axis:17}{value:>9,}: {figures}")
    if flags.FLAGS.plot:
        _plot(curves, flags.FLAGS.plot)


def _measure(folder, i, axis, value):
    examples = value if axis == "examples" else EXAMPLES
    folder = os.path.join(folder, str(examples))
    if not os.path.exists(folder):
        os.mkdir(folder)
        train_speed.prepare(RECIPE, folder, SHAPE, examples)
    sizes = {"hidden_units": 512, "train_batch_size": 128, "cores": os.cpu_count(), axis: value}
    steps = TRAINED // sizes["train_batch_size"]
    model_dir = os.path.join(folder, f"{axis}-{value}-{i}")
    arguments = [
        *train_speed.arguments(RECIPE, f"{folder}/{RECIPE}", model_dir, steps),
        f"--params=hidden_units={sizes['hidden_units']}",
        f"--train_batch_size={sizes['train_batch_size']}",
    ]
    return run_python(CODE, sizes["cores"], time.time(), *arguments)


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
