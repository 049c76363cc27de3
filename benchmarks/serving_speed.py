"""Serving speed by runtime: our SavedModel beside the same network exported from `tf.keras`.

    python -m benchmarks.serving_speed [--recipes=cifar10_cnn] [--rounds=11] [--json=FILE]

One process loads both SavedModels and calls them in turn with 1 (latency) and 32 (throughput) uint8
images; outputs are classes, class names and probabilities. Each runtime uses all cores. Prints
medians; a ratio above 1 means that ours is faster.
"""

from __future__ import annotations

import json
import os
import pathlib
import statistics
import tempfile

from absl import app, flags

from benchmarks.subprocesses import run_cpu, run_python

# Recipe -> (image size, number of classes).
RECIPES = {"cifar10_cnn": ("32x32", 10), "apple_leaf_transfer": ("224x224", 4)}
BATCH_SIZES = (1, 32)

flags.DEFINE_list("recipes", list(RECIPES), "Recipes to run.")
flags.DEFINE_list("runtimes", [], "Runtimes; default: all that are installed.")
flags.DEFINE_integer("rounds", 11, "Rounds; each runs both sides for some 0.3 s.")
flags.DEFINE_string("json", "", "File for the results.")

KERAS = """
import json, os, sys
import tensorflow as tf
from benchmarks.peers import keras_twin
ours, path, shape = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
with open(os.path.join(ours, "MODEL_CARD.json")) as file:
    twin = keras_twin.build(json.load(file)["params"], shape)
image = tf.keras.layers.Input(shape, dtype="uint8", name="image")
logits = twin(tf.cast(image, tf.float32))
classes = tf.argmax(logits, axis=-1, output_type=tf.int32)
with open(os.path.join(ours, "assets.extra", "class_names.txt")) as file:
    names = tf.gather(tf.constant(file.read().split()), classes)
answers = {"classes": classes, "class_names": names, "probabilities": tf.nn.softmax(logits)}
tf.keras.Model(image, answers).export(path)
print(json.dumps(path))
"""

NAMES = """
import json
from tools import runtimes
slow = ("saved_model_cli", "Triton")  # they start a process per call
names = [name for name in runtimes.RUNTIMES if name not in slow and not runtimes.missing(name)]
print(json.dumps(names))
"""

MEASURE = """
import json, sys
import numpy as np
from tools import runtimes
name, batch_size, rounds, shape = sys.argv[1], *map(json.loads, sys.argv[2:5])
random = np.random.default_rng(0)
inputs = {"image": random.integers(0, 256, [batch_size, *shape], dtype=np.uint8)}
sides = [runtimes.RUNTIMES[name](path) for path in sys.argv[5:]]
repeats = max(3, int(0.3 / min(side.seconds(inputs, 3) for side in sides)))
print(json.dumps([[side.seconds(inputs, repeats) for side in sides] for _ in range(rounds)]))
"""


def main(_):
    """Runs the rounds and prints the table."""
    names = flags.FLAGS.runtimes or run_python(NAMES)
    table = []
    print(f"{'recipe':22}{'runtime':22}{'images':>7}{'ours ms':>10}{'keras ms':>10}{'ratio':>7}")
    for recipe in flags.FLAGS.recipes:
        with tempfile.TemporaryDirectory() as folder:
            shape, paths = _export(recipe, folder)
            for name in names:
                for batch_size in BATCH_SIZES:
                    row = _measure(name, batch_size, shape, paths)
                    table.append({"recipe": recipe, "runtime": name, **row})
                    print(
                        f"{recipe:22}{name:22}{batch_size:7}{row['ours_ms']:10.3f}"
                        f"{row['keras_ms']:10.3f}{row['ratio']:7.2f}  "
                        f"{min(row['ratios']):.2f} to {max(row['ratios']):.2f}",
                        flush=True,
                    )
    if flags.FLAGS.json:
        pathlib.Path(flags.FLAGS.json).write_text(json.dumps(table, indent=1) + "\n")


def _export(recipe, folder):
    """Exports both sides with random weights; returns the image shape and both paths."""
    size, num_classes = RECIPES[recipe]
    given = (
        f"--flagfile=configs/{recipe}.cfg",
        "--dataset=synthetic",
        f"--image_size={size}",
        f"--synthetic_classes={num_classes}",
        "--augment=",
        "--best_metric=",
        "--eval_split=test",
        "--early_stop_evals=0",
        "--warm_start_from=",
        "--predict_batch_size=8",
        "--train_batch_size=8",
        f"--model_dir={folder}/model",
    )
    run_cpu(*given, "--mode=train", "--train_steps=1")
    run_cpu(*given, "--mode=export", f"--export_dir={folder}/ours")
    (version,) = os.listdir(f"{folder}/ours")
    ours = os.path.join(folder, "ours", version)
    shape = [*map(int, size.split("x")), 3]
    keras = run_python(KERAS, ours, os.path.join(folder, "keras"), json.dumps(shape))
    return shape, (ours, keras)


def _measure(name, batch_size, shape, paths):
    arguments = (json.dumps(value) for value in (batch_size, flags.FLAGS.rounds, shape))
    rounds = run_python(MEASURE, name, *arguments, *paths)
    ratios = [keras / ours for ours, keras in rounds]
    return {
        "batch_size": batch_size,
        "ours_ms": 1e3 * statistics.median(ours for ours, _ in rounds),
        "keras_ms": 1e3 * statistics.median(keras for _, keras in rounds),
        "ratio": statistics.median(ratios),
        "ratios": ratios,
    }


if __name__ == "__main__":
    app.run(main)
