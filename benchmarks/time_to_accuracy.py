"""Seconds from the start of the process to a test accuracy, beside `tf.keras`, on the real data.

    python -m benchmarks.time_to_accuracy --source=folder/of/idx.gz [--rounds=3]

Fashion-MNIST, `mnist_mlp` to 0.87 and `fashion_mnist_cnn` to 0.86. Both sides train the recipe's
network at a constant rate, in turns and in processes of their own, and evaluate all 10,000 test
images after each epoch: ours from TFRecord shards that are prepared beforehand, with a checkpoint
an epoch, Keras from a compressed .npz as `tf.keras.datasets` does, `Model.fit` as it is and with
steps_per_execution=20.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time

from absl import app, flags

from benchmarks import train_peers, train_speed
from benchmarks.children import last_line

flags.DEFINE_string("source", None, "Folder with the original IDX files.", required=True)

# Recipe -> the test accuracy to be reached, and the epochs in which it must be.
TARGETS = {
    "mnist_mlp": (0.87, 10),
    "fashion_mnist_cnn": (0.86, 10),
}

PREPARE = """
import sys
import numpy as np
from input_fns.convert import idx, source, writer
path, folder = sys.argv[1:]
raw = idx.read(source.Options("fashion_mnist", source=path))
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
    """Prints a line for each recipe and side."""
    with tempfile.TemporaryDirectory() as folder:
        data_dir, arrays = _prepare(folder)
        for recipe in TARGETS:
            rounds = [
                _race(recipe, data_dir, arrays, f"{folder}/{recipe}-{seed}", seed)
                for seed in range(1, flags.FLAGS.rounds + 1)
            ]
            for name in rounds[0]:
                words = _words(name, rounds, TARGETS[recipe][1])
                print(f"{recipe} to {TARGETS[recipe][0]}: {name} {words}", flush=True)


def _words(name, rounds, epochs):
    """Returns a side's median, and its ratios to ours where each round has both."""
    seconds = [sides[name] for sides in rounds]
    if None in seconds:
        missed = seconds.count(None)
        return f"not within {epochs} epochs in {missed} of {len(rounds)} rounds"
    words = f"{statistics.median(seconds):.1f} s"
    if None in [sides["ours"] for sides in rounds]:
        return words
    ratios = [sides[name] / sides["ours"] for sides in rounds]
    listed = " ".join(f"{ratio:.2f}" for ratio in ratios)
    return f"{words}, this / ours {statistics.median(ratios):.2f} ({listed})"


def _prepare(folder):
    """Writes the images as shards and as arrays; returns both paths."""
    last_line(PREPARE, flags.FLAGS.source, folder)
    return f"{folder}/data", f"{folder}/data.npz"


def _race(recipe, data_dir, arrays, model_dir, seed):
    """Returns the seconds of each side, None of one that missed the target."""
    target, epochs = TARGETS[recipe]
    params, batch_size, _ = train_speed.settings(recipe)
    steps = 60_000 // batch_size
    ours = [
        *train_speed.arguments(recipe, data_dir, model_dir, epochs * steps),
        "--dataset=fashion_mnist",
        "--mode=train_and_eval",
        f"--save_checkpoints_steps={steps}",
        "--params=schedule=constant,warmup_steps=0",
        f"--seed={seed}",
    ]
    seconds = {"ours": last_line(OURS, target, time.time(), *ours)}
    for name, more in (("keras", {}), ("keras_steps", {"steps_per_execution": 20})):
        more = {"compile": more, "target": target, "seed": seed}
        values = 60_000, params, batch_size, epochs, time.time(), more, flags.FLAGS.precision
        seconds[name] = last_line(KERAS, arrays, *map(json.dumps, values))
    return seconds


if __name__ == "__main__":
    app.run(main)
