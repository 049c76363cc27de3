"""Seconds from the start of the process to a test accuracy, beside `tf.keras`, on Fashion-MNIST.

    python -m benchmarks.time_to_accuracy --source=folder/of/idx.gz [--rounds=3]

`mnist_mlp` to 0.87 and `fashion_mnist_cnn` to 0.86. All sides train the network of the recipe at a
constant learning rate, interleaved, and evaluate all 10,000 test images after each epoch: ours from
prepared TFRecord shards with a checkpoint per epoch, Keras from a compressed .npz, like
`tf.keras.datasets`, with default arguments and with steps_per_execution=20.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time

from absl import app, flags

from benchmarks import train_speed
from benchmarks.peers import train_peers
from benchmarks.subprocesses import format_ratios, run_python

flags.DEFINE_string("source", None, "Folder with the original IDX files.", required=True)

# Recipe -> (target test accuracy, maximum number of epochs).
TARGETS = {
    "mnist_mlp": (0.87, 10),
    "fashion_mnist_cnn": (0.86, 10),
}

PREPARE = """
import sys
import numpy as np
from input_fns.convert import writer
from input_fns.convert.options import Options
from input_fns.image.sources import idx
path, folder = sys.argv[1:]
raw = idx.read(Options("fashion_mnist", source=path))
writer.write(raw, f"{folder}/data")
train, test = raw.splits["train"], raw.splits["test"]
np.savez_compressed(
    f"{folder}/data.npz",
    images=train.images,
    labels=train.labels,
    test_images=test.images,
    test_labels=test.labels,
)
print("null")
"""

OURS = """
import json, os, runpy, sys
target, started = map(float, sys.argv[1:3])
del sys.argv[1:3]
runpy.run_path("run_cpu.py", run_name="__main__")
from engine.cli.flags import FLAGS
paths = [entry.path for entry in os.scandir(FLAGS.model_dir) if entry.name.startswith("result_")]
reached = []
for path in paths:
    with open(path) as file:
        if json.load(file)["eval"]["accuracy"] >= target:
            reached.append(os.path.getmtime(path))
print(json.dumps(min(reached) - started if reached else None))
"""

KERAS = (
    train_peers.TWIN
    + """
more, target, seed = more["compile"], more["target"], more["seed"]
with np.load(data) as arrays:
    test = arrays["test_images"], arrays["test_labels"]
tf.keras.utils.set_random_seed(seed)
twin = keras_twin.compiled(params, x.shape[1:], **more)

class Target(tf.keras.callbacks.Callback):
    seconds = None

    def on_epoch_end(self, epoch, logs):
        if logs["val_accuracy"] >= target:
            self.model.stop_training = True
            self.seconds = time.time() - started

reached = Target()
twin.fit(
    x, y, batch_size=batch_size, epochs=epochs, validation_data=test,
    validation_batch_size=1000, verbose=0, callbacks=[reached],
)
print(json.dumps(reached.seconds))
"""
)


def main(_):
    """Prints a line per recipe and side."""
    with tempfile.TemporaryDirectory() as folder:
        data_dir, arrays = _prepare(folder)
        for recipe in TARGETS:
            rounds = [
                _race(recipe, data_dir, arrays, f"{folder}/{recipe}-{seed}", seed)
                for seed in range(1, flags.FLAGS.rounds + 1)
            ]
            for name in rounds[0]:
                text = _format(name, rounds, TARGETS[recipe][1])
                print(f"{recipe} to {TARGETS[recipe][0]}: {name} {text}", flush=True)


def _format(name, rounds, epochs):
    """Formats the median of a side, and its ratios to ours if both reached the target."""
    seconds = [sides[name] for sides in rounds]
    if None in seconds:
        missed = seconds.count(None)
        return f"not within {epochs} epochs in {missed} of {len(rounds)} rounds"
    text = f"{statistics.median(seconds):.1f} s"
    ours = [sides["ours"] for sides in rounds]
    return text if None in ours else f"{text}, this / ours {format_ratios(seconds, ours)}"


def _prepare(folder):
    """Writes the images as shards and as arrays; returns both paths."""
    run_python(PREPARE, flags.FLAGS.source, folder)
    return f"{folder}/data", f"{folder}/data.npz"


def _race(recipe, data_dir, arrays, model_dir, seed):
    """Returns `{side: seconds}`; None for a side that missed the target."""
    target, epochs = TARGETS[recipe]
    params, batch_size, _ = train_speed.settings(recipe)
    steps = 60_000 // batch_size
    ours = [
        *train_speed.arguments(recipe, data_dir, epochs * steps),
        f"--model_dir={model_dir}",
        "--dataset=fashion_mnist",
        "--mode=train_and_eval",
        f"--save_checkpoints_steps={steps}",
        "--params=schedule=constant,warmup_steps=0",
        f"--seed={seed}",
    ]
    seconds = {"ours": run_python(OURS, target, time.time(), *ours)}
    for name, more in (("keras", {}), ("keras_steps", {"steps_per_execution": 20})):
        more = {"compile": more, "target": target, "seed": seed}
        values = 60_000, params, batch_size, epochs, time.time(), more, flags.FLAGS.precision
        seconds[name] = run_python(KERAS, arrays, *map(json.dumps, values))
    return seconds


if __name__ == "__main__":
    app.run(main)
