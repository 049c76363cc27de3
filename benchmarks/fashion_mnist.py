"""Test accuracy of the Fashion-MNIST CNN beside its `tf.keras` twin.

    python -m benchmarks.fashion_mnist --source=folder/of/idx.gz [--seeds=3]

Both sides train the network of configs/fashion_mnist_cnn.cfg for 5 epochs with batch size 1000 and
Adam.
"""

from __future__ import annotations

import statistics
import tempfile

from absl import app, flags

from benchmarks.subprocesses import prepare_data, run_cpu, run_python

flags.DEFINE_string("source", None, "Folder with the original IDX files.", required=True)
flags.DEFINE_integer("seeds", 3, "Number of runs of each side.")

KERAS = """
import json, sys
import tensorflow as tf
from benchmarks import runs
from benchmarks.peers import keras_twin
from input_fns.convert.options import Options
from input_fns.image.sources import idx
source, seed = sys.argv[1:]
params, flags = runs.recipe("fashion_mnist_cnn")
raw = idx.read(Options("fashion_mnist", source=source))
tf.keras.utils.set_random_seed(int(seed))
twin = keras_twin.compiled(params, (28, 28, 1))
train, test = raw.splits["train"], raw.splits["test"]
twin.fit(train.images, train.labels, batch_size=flags.train_batch_size, epochs=5, verbose=0)
_, accuracy = twin.evaluate(test.images, test.labels, batch_size=1000, verbose=0)
print(json.dumps(accuracy))
"""


def main(_):
    """Runs both sides and prints their test accuracies."""
    ours, keras = [], []
    source = flags.FLAGS.source
    with tempfile.TemporaryDirectory() as folder:
        data_dir = f"--data_dir={folder}/data"
        prepare_data("--dataset=fashion_mnist", f"--source={source}", data_dir)
        for seed in range(1, flags.FLAGS.seeds + 1):
            given = "--flagfile=configs/fashion_mnist_cnn.cfg", data_dir, f"--seed={seed}"
            result = run_cpu(*given, "--save_checkpoints_steps=300")
            ours.append(result["eval"]["accuracy"])
            keras.append(run_python(KERAS, source, seed))
            print(f"seed {seed}: ours {ours[-1]:.4f}, tf.keras {keras[-1]:.4f}", flush=True)
    print(f"median: ours {statistics.median(ours):.4f}, tf.keras {statistics.median(keras):.4f}")


if __name__ == "__main__":
    app.run(main)
