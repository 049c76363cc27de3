"""Training speed of the recipes against what people would use instead, interleaved in one run.

    python -m benchmarks.train_speed [--recipes=digits,mnist_mlp] [--peers=keras] [--rounds=5]

All train the same network on the same random data in processes of their own: ours from TFRecord
shards, Keras from a compressed .npz, as `tf.keras.datasets` keeps MNIST. Peers: `Model.fit` as it
is (keras), with steps_per_execution=20 (keras_steps) and jit_compile beside it (keras_xla), and an
Estimator as TensorFlow's guide writes one (estimator). Examples/s are counted from the end of the
first step to the end of the last; the time to the first step is from the start of the process. The
table gives medians, and the median of the ratios of each round's pair.
"""

from __future__ import annotations

import json
import pathlib
import statistics
import tempfile
import time

from absl import app, flags

from benchmarks import tables
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

# Peer -> arguments of compile; the Estimator has none.
PEERS = {
    "keras": {},
    "keras_steps": {"steps_per_execution": 20},
    "keras_xla": {"steps_per_execution": 20, "jit_compile": True},
    "estimator": None,
}

flags.DEFINE_list("recipes", list(RECIPES), "Recipes to run.")
flags.DEFINE_list("peers", ["keras"], f"Of {', '.join(PEERS)}.")
flags.DEFINE_integer("rounds", 3, "Times that each side runs.")
flags.DEFINE_enum("precision", "float32", ["float32", "bfloat16"], "Of ours and of Keras'.")
flags.DEFINE_string("json", "", "File for the figures.")
flags.DEFINE_string("page", "", "Page whose table of these figures is replaced.")

# What both of TensorFlow's own ways begin with.
TWIN = """
import json, sys, time
import numpy as np
import tensorflow as tf
from benchmarks import keras_twin
data, used, params, batch_size, epochs, started, more, precision = (
    sys.argv[1], *map(json.loads, sys.argv[2:])
)
with np.load(data) as arrays:
    x, y = arrays["images"][:used], arrays["labels"][:used]
if precision == "bfloat16":
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
"""

KERAS = (
    TWIN
    + """
twin = keras_twin.build(params, x.shape[1:])
twin.compile(
    keras_twin.optimizer(params, params["learning_rate"]),
    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
    **more,
)
twin.fit(x[:batch_size], y[:batch_size], batch_size=batch_size, verbose=0)
first = time.time()
twin.fit(x, y, batch_size=batch_size, epochs=epochs, verbose=0)
print(json.dumps([first - started, epochs * len(x) / (time.time() - first)]))
"""
)

ESTIMATOR = (
    TWIN
    + """
import tempfile

def model_fn(features, labels, mode):
    twin = keras_twin.build(params, x.shape[1:])
    logits = twin(features, training=True)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    loss = tf.reduce_mean(losses)
    optimizer = tf.compat.v1.train.AdamOptimizer(params["learning_rate"])
    with tf.control_dependencies(twin.get_updates_for(None) + twin.get_updates_for(features)):
        step = optimizer.minimize(loss, tf.compat.v1.train.get_or_create_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step)

def input_fn():
    examples = tf.data.Dataset.from_tensor_slices((x, y))
    return examples.shuffle(len(x)).repeat().batch(batch_size, drop_remainder=True).prefetch(2)

class Times(tf.estimator.SessionRunHook):
    def __init__(self):
        self.steps = []

    def after_run(self, *arguments):
        self.steps.append(time.time())

times = Times()
with tempfile.TemporaryDirectory() as folder:
    estimator = tf.estimator.Estimator(model_fn, folder)
    estimator.train(input_fn, [times], steps=epochs * len(x) // batch_size)
first, last = times.steps[0], times.steps[-1]
rate = (len(times.steps) - 1) * batch_size / (last - first)
print(json.dumps([first - started, rate]))
"""
)

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
    wanted = flags.FLAGS
    table = {}
    with tempfile.TemporaryDirectory() as folder:
        for recipe in wanted.recipes:
            table[recipe] = sides = _bench(recipe, folder)
            for name, side in sides.items():
                ratios = " ".join(f"{ratio:.2f}" for ratio in side["ratios"])
                print(
                    f"{recipe:22}{name:12}{side['rate']:10,.0f} examples/s, first step after "
                    f"{side['first']:.1f} s; ours / this {side['ratio']:.2f} ({ratios})",
                    flush=True,
                )
    if wanted.json:
        pathlib.Path(wanted.json).write_text(json.dumps(table, indent=1) + "\n")
    if wanted.page:
        _write(wanted.page, table)


def _write(page, table):
    """Replaces the table of the page: a row a recipe, each peer with ours / it in brackets."""
    names = list(next(iter(table.values())))
    rows = []
    for recipe, sides in table.items():
        ours, *others = sides.values()
        rates = [f"{ours['rate']:,.0f}"]
        rates += [f"{other['rate']:,.0f} ({other['ratio']:.2f})" for other in others]
        firsts = " / ".join(f"{side['first']:.1f}" for side in sides.values())
        rows.append([recipe, *rates, f"{firsts} s"])
    header = ["recipe", *names, "first step, in the same order"]
    tables.replace(page, f"train_speed {flags.FLAGS.precision}", header, rows)


def _bench(recipe, folder):
    """Returns `{side: its median rate and time to the first step, and ours / its rate}`."""
    shape, size, steps = RECIPES[recipe]
    data_dir, arrays, params, batch_size = prepare(recipe, folder, shape, size)
    used = min(size, steps * batch_size)  # Keras counts in whole epochs of what it is given
    epochs = steps * batch_size // used
    runs = {name: [] for name in ("ours", *flags.FLAGS.peers)}
    for i in range(flags.FLAGS.rounds):
        for name, done in runs.items():
            if name == "ours":
                done.append(_ours(recipe, data_dir, f"{folder}/{recipe}-{i}", steps))
            else:
                done.append(_peer(name, arrays, used, params, batch_size, epochs))
    sides = {}
    for name, done in runs.items():
        ratios = [ours / rate for (_, ours), (_, rate) in zip(runs["ours"], done)]
        sides[name] = {
            "rate": statistics.median(rate for _, rate in done),
            "first": statistics.median(first for first, _ in done),
            "ratio": statistics.median(ratios),
            "ratios": ratios,
        }
    return sides


def prepare(recipe, folder, shape, size):
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
    return last_line(OURS, time.time(), *arguments(recipe, data_dir, model_dir, steps))


def arguments(recipe, data_dir, model_dir, steps):
    """Returns the flags of our training, without what a Keras twin does not do."""
    return [
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
        f"--precision={flags.FLAGS.precision}",
    ]


def _peer(name, arrays, used, params, batch_size, epochs):
    values = used, params, batch_size, epochs, time.time(), PEERS[name], flags.FLAGS.precision
    code = ESTIMATOR if name == "estimator" else KERAS
    return last_line(code, arrays, *map(json.dumps, values))


if __name__ == "__main__":
    app.run(main)
