"""Training speed of the recipes against what people would use instead, interleaved in one run.

    python -m benchmarks.train_speed [--recipes=digits,mnist_mlp] [--peers=keras] [--rounds=5]

All train the same network on the same random data in processes of their own: ours from TFRecord
shards, Keras from a compressed .npz, as `tf.keras.datasets` keeps MNIST. Peers: `Model.fit` as it
is (keras), with steps_per_execution=20 (keras_steps) and jit_compile beside it (keras_xla), an
Estimator as TensorFlow's guide writes one (estimator), and PyTorch with its data in memory, as it
is (torch), with channels last, and with torch.compile too (torch_compiled); --torch_python names
its environment, made as in benchmarks/torch_twin.py. Keras computes the accuracy of every batch
too, as its users have it; the others do not. Examples/s are counted from the end of the first step
to the end of the last; the time to the first step is from the start of the process. The table gives
medians, and the median of the ratios of each round's pair.
"""

from __future__ import annotations

import json
import pathlib
import statistics
import tempfile
import time

from absl import app, flags

from benchmarks import tables, train_peers
from benchmarks.children import last_line

# Recipe -> shape of its images, examples, and steps to train (about ten seconds).
RECIPES = {
    "digits": ((8, 8, 1), 1438, 1500),
    "mnist_mlp": ((28, 28, 1), 60000, 2000),
    "mnist_cnn": ((28, 28, 1), 60000, 250),
    "fashion_mnist_cnn": ((28, 28, 1), 60000, 120),
    "fashion_mnist_tuned": ((28, 28, 1), 60000, 30),
    "fashion_mnist_best": ((28, 28, 1), 60000, 150),
    "cifar10_cnn": ((32, 32, 3), 50000, 100),
    "cifar10_fast": ((32, 32, 3), 50000, 30),
    "cifar10_resnet": ((32, 32, 3), 50000, 30),
    "apple_leaf_transfer": ((224, 224, 3), 1000, 20),
}

# What a recipe has beyond its network and optimizer, and the twins have not, is left out on all
# sides.
WITHOUT = "ema_decay=0,weight_decay=0,label_smoothing=0,clip_norm=0,trainable=.*"

flags.DEFINE_list("recipes", list(RECIPES), "Recipes to run.")
flags.DEFINE_list("peers", ["keras"], f"Of {', '.join(train_peers.PEERS)}.")
flags.register_validator(
    "peers", lambda names: set(names) <= set(train_peers.PEERS), "must be of those in --help"
)
flags.DEFINE_integer("rounds", 3, "Times that each side runs.")
flags.DEFINE_string("json", "", "File for the figures.")
flags.DEFINE_string("page", "", "Page whose table of these figures is replaced.")

OURS = """
import sys, time
offset = time.time() - float(sys.argv.pop(1))
import json, os, runpy
runpy.run_path("run_cpu.py", run_name="__main__")
from engine.cli.flags import FLAGS
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
                    f"{recipe:22}{name:20}{side['rate']:10,.0f} examples/s, first step after "
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
    used, epochs = whole_epochs(size, steps, batch_size)
    runs = {name: [] for name in ("ours", *flags.FLAGS.peers)}
    for i in range(flags.FLAGS.rounds):
        for name, done in runs.items():
            if name == "ours":
                done.append(_ours(recipe, data_dir, f"{folder}/{recipe}-{i}", steps))
            else:
                peer = train_peers.PEERS[name]
                done.append(peer(arrays, used, params, batch_size, epochs))
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


def whole_epochs(size, steps, batch_size):
    """Returns how many examples peers get, and in how many epochs they make about `steps` steps."""
    # A rest smaller than a batch would have Keras trace and compile its step anew, in its time.
    used = min(size // batch_size, steps) * batch_size
    return used, steps * batch_size // used


def prepare(recipe, folder, shape, size):
    """Writes the same random data as shards and as arrays; returns both paths and the settings."""
    params, batch_size, dataset = settings(recipe)
    code = f"""
import numpy as np
from input_fns.convert import source, writer
random = np.random.default_rng(0)
images = random.integers(0, 256, ({size}, *{shape}), dtype=np.uint8)
images[random.random(images.shape) < 0.5] = 0  # half of MNIST's pixels and more are black
labels = random.integers(0, 10, {size})
split = source.RawArrays(images, labels)
raw = source.RawDataset("{dataset}", tuple("0123456789"), {{"train": split}})
writer.write(raw, "{folder}/{recipe}")
np.savez_compressed("{folder}/{recipe}.npz", images=images, labels=labels)
print(0)
"""
    last_line(code)
    return f"{folder}/{recipe}", f"{folder}/{recipe}.npz", params, batch_size


def settings(recipe):
    """Returns what all sides train: hyperparameters, batch size, and the name of the data set."""
    code = f"""
import json
from engine.cli.flags import FLAGS
from engine.cli import hparams
from models import registry
recipe = "--flagfile=configs/{recipe}.cfg"
FLAGS(["", recipe, "--params={WITHOUT}", "--data_dir=x", "--model_dir=x"])
params = hparams.resolve(registry.find(FLAGS.model), FLAGS.params, {"num_classes": 10})
print(json.dumps([params, FLAGS.train_batch_size, FLAGS.dataset]))
"""
    return last_line(code)


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
        f"--params={WITHOUT}",
        "--save_checkpoints_steps=1000000",
        f"--precision={flags.FLAGS.precision}",
    ]


if __name__ == "__main__":
    app.run(main)
