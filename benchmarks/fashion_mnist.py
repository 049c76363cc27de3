"""Test accuracy of the Fashion-MNIST CNN beside its `tf.keras` twin.

    python -m benchmarks.fashion_mnist --source=folder/of/idx.gz [--seeds=3]

Both sides train the network of configs/fashion_mnist_cnn.cfg for 5 epochs with batch size 1000 and
Adam.
"""

from __future__ import annotations

import statistics
import tempfile

from absl import app, flags

from benchmarks.subprocesses import run_python

flags.DEFINE_string("source", None, "Folder with the original IDX files.", required=True)
flags.DEFINE_integer("seeds", 3, "Number of runs of each side.")

OURS = """
import json, os, runpy, sys
source, folder, seed = sys.argv[1:]
data_dir, model_dir = os.path.join(folder, "data"), os.path.join(folder, f"model-{seed}")
sys.argv = ["", "--dataset=fashion_mnist", f"--source={source}", f"--data_dir={data_dir}"]
runpy.run_path("prepare_data.py", run_name="__main__")
sys.argv = ["", "--flagfile=configs/fashion_mnist_cnn.cfg", f"--data_dir={data_dir}"]
sys.argv += [f"--model_dir={model_dir}", f"--seed={seed}", "--save_checkpoints_steps=300"]
runpy.run_path("run_cpu.py", run_name="__main__")
with open(os.path.join(model_dir, "result_300.json")) as file:
    print(json.dumps(json.load(file)["eval"]["accuracy"]))
"""

KERAS = """
import json, sys
import numpy as np
import tensorflow as tf
from absl import flags
from benchmarks.peers import keras_twin
from input_fns.convert import idx
from input_fns.convert.options import Options
from models import registry
from engine.cli import hparams
from engine.cli.flags import FLAGS
source, folder, seed = sys.argv[1:]
FLAGS(["", "--flagfile=configs/fashion_mnist_cnn.cfg", "--data_dir=x", "--model_dir=x"])
params = hparams.resolve(registry.find(FLAGS.model), FLAGS.params, {"num_classes": 10})
raw = idx.read(Options("fashion_mnist", source=source))
tf.keras.utils.set_random_seed(int(seed))
twin = keras_twin.compiled(params, (28, 28, 1))
train, test = raw.splits["train"], raw.splits["test"]
twin.fit(train.images, train.labels, batch_size=FLAGS.train_batch_size, epochs=5, verbose=0)
_, accuracy = twin.evaluate(test.images, test.labels, batch_size=1000, verbose=0)
print(json.dumps(accuracy))
"""


def main(_):
    """Runs both sides and prints their test accuracies."""
    ours, keras = [], []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(1, flags.FLAGS.seeds + 1):
            ours.append(run_python(OURS, flags.FLAGS.source, folder, seed))
            keras.append(run_python(KERAS, flags.FLAGS.source, folder, seed))
            print(f"seed {seed}: ours {ours[-1]:.4f}, tf.keras {keras[-1]:.4f}", flush=True)
    print(f"median: ours {statistics.median(ours):.4f}, tf.keras {statistics.median(keras):.4f}")


if __name__ == "__main__":
    app.run(main)
