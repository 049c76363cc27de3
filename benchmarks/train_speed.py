"""Training speed of the recipes against `tf.keras` `Model.fit`, interleaved in one run.

    python -m benchmarks.train_speed [--recipes=digits,mnist_mlp] [--rounds=5]

Both sides train the same network on the same random data in processes of their own: ours from
TFRecord shards, Keras from a compressed .npz, as `tf.keras.datasets` keeps MNIST. Examples/s are
counted from the end of the first step to the end of the last; the time to the first step is from
the start of the process. The table gives medians, and the ratio of each round's pair.
"""

from __future__ import annotations

import json
import pathlib
import statistics
import tempfile
import time

from absl import app, flags

from benchmarks.children import last_line

# Recipe -> shape of its images, examples, and steps to train (about ten seconds).
RECIPES = {
    "digits": ((8, 8, 1), 1438, 1500),
    "mnist_mlp": ((28, 28, 1), 60000, 3000),
    "mnist_cnn": ((28, 28, 1), 60000, 400),
    "fashion_mnist_cnn": ((28, 28, 1), 60000, 120),
    "fashion_mnist_tuned": ((28, 28, 1), 60000, 30),
    "fashion_mnist_best": ((28, 28, 1), 60000, 150),
    "cifar10_cnn": ((32, 32, 3), 50000, 200),
    "cifar10_fast": ((32, 32, 3), 50000, 30),
    "cifar10_resnet": ((32, 32, 3), 50000, 40),
    "apple_leaf_transfer": ((224, 224, 3), 1000, 20),
}

flags.DEFINE_list("recipes", list(RECIPES), "Recipes to run.")
flags.DEFINE_integer("rounds", 3, "Times that each side runs.")
flags.DEFINE_string("json", "", "File for the figures.")

KERAS = """
import json, sys, time
import numpy as np
import tensorflow as tf
from benchmarks import keras_twin
data, used, params, batch_size, epochs, started = sys.argv[1], *map(json.loads, sys.argv[2:])
with np.load(data) as arrays:
    x, y = arrays["images"][:used], arrays["labels"][:used]
twin = keras_twin.build(params, x.shape[1:])
twin.compile(
    keras_twin.optimizer(params, params["learning_rate"]),
    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
twin.fit(x[:batch_size], y[:batch_size], batch_size=batch_size, verbose=0)
first = time.time()
twin.fit(x, y, batch_size=batch_size, epochs=epochs, verbose=0)
print(json.dumps([first - started, epochs * len(x) / (time.time() - first)]))
"""

OURS = """
import sys, time
offset = time.time() - float(sys.argv.pop(1))
import json, os, runpy
runpy.run_path("run_cpu.py", run_name="__main__")
from training.flags import FLAGS
path = os.path.join(FLAGS.model_dir, f"result_{FLAGS.train_steps}.json")
with open(path) as file:
    record = json.load(file)["train"]
print(json.dumps([offset + record["seconds_to_first_step"], record["examples_per_second"]]))
"""


def main(_):
    """Runs the rounds and prints the table."""
    table = {}
    print(f"{'recipe':22}{'ours /s':>10}{'keras /s':>10}{'ratio':>7}  ratios of the rounds")
    with tempfile.TemporaryDirectory() as folder:
        for recipe in flags.FLAGS.recipes:
            table[recipe] = row = _bench(recipe, folder)
            print(
                f"{recipe:22}{row['ours']:10,.0f}{row['keras']:10,.0f}{row['ratio']:7.2f}  "
                f"{' '.join(f'{ratio:.2f}' for ratio in row['ratios'])}; first step after "
                f"{row['ours_first']:.1f} s, keras {row['keras_first']:.1f} s",
                flush=True,
            )
    if flags.FLAGS.json:
        pathlib.Path(flags.FLAGS.json).write_text(json.dumps(table, indent=1) + "\n")


def _bench(recipe, folder):
    shape, size, steps = RECIPES[recipe]
    data_dir, arrays, params, batch_size = _prepare(recipe, folder, shape, size)
    used = min(size, steps * batch_size)  # Keras counts in whole epochs of what it is given
    epochs = steps * batch_size // used
    ours, keras = [], []
    for i in range(flags.FLAGS.rounds):
        ours.append(_ours(recipe, data_dir, f"{folder}/{recipe}-{i}", steps))
        keras.append(_keras(arrays, used, params, batch_size, epochs))
    ratios = [a[1] / b[1] for a, b in zip(ours, keras)]
    return {
        "ours": statistics.median(rate for _, rate in ours),
        "keras": statistics.median(rate for _, rate in keras),
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "ours_first": statistics.median(first for first, _ in ours),
        "keras_first": statistics.median(first for first, _ in keras),
    }


def _prepare(recipe, folder, shape, size):
    """Writes the same random data as shards and as arrays; returns both paths and the params."""
    code = f"""
import json, numpy as np
from absl import flags
from training.flags import FLAGS
from training import hparams
from models import registry
from input_fns.convert import source, writer
FLAGS(["", "--flagfile=configs/{recipe}.cfg", "--data_dir=x", "--model_dir=x"])
random = np.random.default_rng(0)
images = random.integers(0, 256, ({size}, *{shape}), dtype=np.uint8)
images[random.random(images.shape) < 0.5] = 0  # half of MNIST's pixels and more are black
labels = random.integers(0, 10, {size})
split = source.RawArrays(images, labels)
raw = source.RawDataset(FLAGS.dataset, tuple("0123456789"), {{"train": split}})
writer.write(raw, "{folder}/{recipe}")
np.savez_compressed("{folder}/{recipe}.npz", images=images, labels=labels)
params = hparams.resolve(registry.find(FLAGS.model), FLAGS.params, 10)
print(json.dumps([params, FLAGS.train_batch_size]))
"""
    params, batch_size = last_line(code)
    return f"{folder}/{recipe}", f"{folder}/{recipe}.npz", params, batch_size


def _ours(recipe, data_dir, model_dir, steps):
    arguments = [
        f"--flagfile=configs/{recipe}.cfg",
        "--mode=train",
        f"--data_dir={data_dir}",
        f"--model_dir={model_dir}",
        f"--train_steps={steps}",
        "--best_metric=",
        "--early_stop_evals=0",
        "--augment=",  # Keras' twin sees the images as they are
        "--params=ema_decay=0,weight_decay=0,label_smoothing=0,trainable=.*",  # as the twin
        "--save_checkpoints_steps=1000000",
    ]
    return last_line(OURS, time.time(), *arguments)


def _keras(arrays, used, params, batch_size, epochs):
    values = [json.dumps(value) for value in (used, params, batch_size, epochs, time.time())]
    return last_line(KERAS, arrays, *values)


if __name__ == "__main__":
    app.run(main)
