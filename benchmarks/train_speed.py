"""Training speed of the recipes beside Keras, a plain Estimator and PyTorch, interleaved.

    python -m benchmarks.train_speed [--recipes=digits,mnist_mlp] [--peers=keras] [--rounds=5]

All sides train the same network on the same random data in child processes: ours from TFRecord
shards, Keras from a compressed .npz, like `tf.keras.datasets`. Peers: `Model.fit` with defaults
(keras), with steps_per_execution=20 (keras_steps), and with jit_compile too (keras_xla); an
Estimator as in TensorFlow's guide (estimator); PyTorch with data in memory (torch), channels last
(torch_channels_last), and torch.compile too (torch_compiled). --torch_python is the Python of its
environment (benchmarks/peers/torch_twin.py). Keras also computes the accuracy of every batch.
Examples/s are from the end of the first step to the end of the last; the time to the first step is
from the start of the process. Prints medians, and the median ratio of a round.
"""

from __future__ import annotations

import functools
import json
import pathlib
import statistics
import tempfile

from absl import app, flags

from benchmarks.peers import train_peers
from benchmarks.subprocesses import interleave, run_cpu, run_python

# Recipe -> (shape of images, examples, training steps); about ten seconds each.
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

# Turns off features that the twins lack, on all sides.
DISABLED = "ema_decay=0,weight_decay=0,label_smoothing=0,clip_norm=0,trainable=.*"

flags.DEFINE_list("recipes", list(RECIPES), "Recipes to run.")
flags.DEFINE_list("peers", ["keras"], f"Peers: {', '.join(train_peers.PEERS)}.")
flags.register_validator(
    "peers",
    lambda names: set(names) <= set(train_peers.PEERS),
    f"valid peers: {', '.join(train_peers.PEERS)}",
)
flags.DEFINE_integer("rounds", 3, "Rounds; each runs every side once.")
flags.DEFINE_string("json", "", "File for the results.")
flags.DEFINE_string("page", "", "Docs page to update with the results.")


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
    """Updates the table of a page: a row per recipe; in brackets the ratio ours / peer."""
    names = list(next(iter(table.values())))
    rows = []
    for recipe, sides in table.items():
        ours, *others = sides.values()
        rates = [f"{ours['rate']:,.0f}"]
        rates += [f"{other['rate']:,.0f} ({other['ratio']:.2f})" for other in others]
        firsts = " / ".join(f"{side['first']:.1f}" for side in sides.values())
        rows.append([recipe, *rates, f"{firsts} s"])
    header = ["recipe", *names, "first step, in the same order"]
    _replace_table(page, f"train_speed {flags.FLAGS.precision}", header, rows)


def _replace_table(path, name, header, rows):
    """Replaces the Markdown table between `<!-- name -->` and `<!-- end of name -->` by a table.

    Raises:
      ValueError: the page has no such lines.
    """
    page = pathlib.Path(path).read_text()
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, found, rest = page.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found or not found_end:
        raise ValueError(f"{path} has no lines '{begin.strip()}' and '{end}'")
    lines = [header, ["---"] * len(header), *rows]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    pathlib.Path(path).write_text(f"{before}{begin}{table}{end}{after}")


def _bench(recipe, folder):
    """Returns `{side: {"rate", "first" (seconds to the first step), "ratio" (ours / side)}}`."""
    shape, size, steps = RECIPES[recipe]
    data_dir, arrays, params, batch_size = prepare(recipe, folder, shape, size)
    used, epochs = whole_epochs(size, steps, batch_size)
    given = arrays, used, params, batch_size, epochs
    runs = {"ours": functools.partial(_ours, recipe, data_dir, steps)}
    for name in flags.FLAGS.peers:
        runs[name] = functools.partial(train_peers.PEERS[name], *given)
    runs = interleave(runs, flags.FLAGS.rounds)
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
    """Returns the number of examples and of epochs of the peers, for about `steps` steps."""
    # A partial last batch would make Keras retrace its step.
    used = min(size // batch_size, steps) * batch_size
    return used, steps * batch_size // used


def prepare(recipe, folder, shape, size):
    """Writes random data as shards and as arrays.

    Returns:
      (path of the shards, path of the arrays, hyperparameters, batch size).
    """
    params, batch_size, dataset = settings(recipe)
    code = f"""
import numpy as np
from input_fns.convert import source, writer
random = np.random.default_rng(0)
images = random.integers(0, 256, ({size}, *{shape}), dtype=np.uint8)
images[random.random(images.shape) < 0.5] = 0  # like MNIST, most of which is black
labels = random.integers(0, 10, {size})
split = source.RawArrays(images, labels)
raw = source.RawDataset("{dataset}", tuple("0123456789"), {{"train": split}})
writer.write(raw, "{folder}/{recipe}")
np.savez_compressed("{folder}/{recipe}.npz", images=images, labels=labels)
print(0)
"""
    run_python(code)
    return f"{folder}/{recipe}", f"{folder}/{recipe}.npz", params, batch_size


def settings(recipe):
    """Returns (hyperparameters, batch size, name of the data set) of a recipe."""
    code = f"""
import json
from benchmarks import runs
params, flags = runs.recipe("{recipe}", "--params={DISABLED}")
print(json.dumps([params, flags.train_batch_size, flags.dataset]))
"""
    return run_python(code)


def _ours(recipe, data_dir, steps):
    """Returns the seconds to the first step, and examples/s after it."""
    result = run_cpu(*arguments(recipe, data_dir, steps))
    train = result["train"]
    return result["start"] + train["seconds_to_first_step"], train["examples_per_second"]


def arguments(recipe, data_dir, steps):
    """Returns the flags of run_cpu.py, without the features that a Keras twin lacks."""
    return [
        f"--flagfile=configs/{recipe}.cfg",
        "--mode=train",
        f"--data_dir={data_dir}",
        f"--train_steps={steps}",
        "--best_metric=",
        "--early_stop_evals=0",
        "--augment=",  # the Keras twin does not augment
        f"--params={DISABLED}",
        "--save_checkpoints_steps=1000000",
        f"--precision={flags.FLAGS.precision}",
    ]


if __name__ == "__main__":
    app.run(main)
