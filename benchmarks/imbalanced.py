"""Macro F1 of class weights and oversampling on an imbalanced split of Fashion-MNIST.

    python -m benchmarks.imbalanced --source=folder/of/idx.gz

Class c of ten has 2500 / 50^(c / 9) training images, 2500 to 50; the test split is whole. Each
side trains `fashion_mnist_cnn` with the same seeds, which also draw the images.
"""

from __future__ import annotations

import statistics
import tempfile

from absl import app, flags

from benchmarks.subprocesses import run_cpu, run_python

FLAGS = flags.FLAGS
flags.DEFINE_string("source", None, "Folder with the original IDX files.", required=True)
flags.DEFINE_integer("seeds", 3, "Number of seeds.")

SIDES = {
    "none": [],
    "class_weights=balanced": ["--params=class_weights=balanced"],
    "class_weights=effective:0.999": ["--params=class_weights=effective:0.999"],
    "oversample=sqrt": ["--oversample=sqrt"],
    "oversample=balanced": ["--oversample=balanced"],
}
TRAIN = [
    *("--flagfile=configs/fashion_mnist_cnn.cfg", "--dataset=imbalanced", "--train_epochs=10"),
    *("--train_batch_size=128", "--save_checkpoints_steps=1000"),
]

PREPARE = """
import sys
import numpy as np
from input_fns.convert import source, writer
from input_fns.convert.options import Options
from input_fns.image.sources import idx
path, folder, seed = sys.argv[1:]
raw = idx.read(Options("fashion_mnist", source=path))
train, random = raw.splits["train"], np.random.default_rng(int(seed))
counts = np.round(2500 / 50 ** (np.arange(10) / 9)).astype(int)
rows = [random.permutation(np.flatnonzero(train.labels == c))[:n] for c, n in enumerate(counts)]
rows = np.concatenate(rows)
splits = {**raw.splits, "train": source.RawArrays(train.images[rows], train.labels[rows])}
writer.write(source.RawDataset("imbalanced", raw.class_names, splits), folder)
print("null")
"""


def main(_):
    """Trains every side with every seed; prints macro F1, accuracy and recall."""
    found = {side: [] for side in SIDES}
    for seed in range(1, FLAGS.seeds + 1):
        with tempfile.TemporaryDirectory() as folder:
            data_dir = f"{folder}/data"
            run_python(PREPARE, FLAGS.source, data_dir, str(seed))
            for number, (side, more) in enumerate(SIDES.items()):
                places = [f"--data_dir={data_dir}", f"--model_dir={folder}/{number}"]
                result = run_cpu(*TRAIN, *places, f"--seed={seed}", *more)["eval"]
                classes = result["classes"].values()
                f1 = statistics.mean(row["f1"] or 0 for row in classes)
                found[side].append((f1, result["accuracy"], min(row["recall"] for row in classes)))
                print(f"seed {seed}, {side}: macro F1 {f1:.4f}", flush=True)
    for side, rows in found.items():
        means = [statistics.mean(column) for column in zip(*rows)]
        each = " ".join(f"{row[0]:.4f}" for row in rows)
        print(
            f"{side}: macro F1 {means[0]:.4f} ({each}), accuracy {means[1]:.4f}, "
            f"recall of the worst class {means[2]:.4f}"
        )


if __name__ == "__main__":
    app.run(main)
