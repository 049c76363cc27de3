"""Test accuracy and training time of the CIFAR-10 CNN beside its `tf.keras` twin.

    python -m benchmarks.cifar10_cnn --data_dir=DATA_DIR --source=BATCHES [--epochs=50]

DATA_DIR is the data set that prepare_data.py wrote from BATCHES, a folder with the binary version.
Both sides train the network of configs/cifar10_cnn.cfg with Adam, the same learning rates and EMA:
ours with `--augment`, Keras with `ImageDataGenerator` and the same flips, shifts and rotations.
"""

from __future__ import annotations

import time

from absl import app, flags

from benchmarks.subprocesses import run_cpu, run_python

flags.DEFINE_string("data_dir", None, "CIFAR-10 as prepare_data.py wrote it.", required=True)
flags.DEFINE_string("source", None, "Folder of data_batch_1.bin and the others.", required=True)
flags.DEFINE_integer("epochs", 50, "Passes over the training images.")
flags.DEFINE_list("sides", ["ours", "keras"], "Sides that run.")
flags.DEFINE_integer("seed", 1, "Seed of both sides.")

KERAS = """
import json, sys
import tensorflow as tf
from benchmarks import runs
from benchmarks.peers import keras_twin
from input_fns.convert.options import Options
from input_fns.image.sources import cifar
source, epochs, seed = sys.argv[1:]
params, flags = runs.recipe("cifar10_cnn")
raw = cifar.read(Options("cifar10", source=source))
train, test = raw.splits["train"], raw.splits["test"]
tf.keras.utils.set_random_seed(int(seed))
twin = keras_twin.build(params, (32, 32, 3))
boundaries = list(params["decay_boundaries"])
rates = [params["learning_rate"] * params["decay_rate"] ** i for i in range(len(boundaries) + 1)]
rate = tf.keras.optimizers.schedules.PiecewiseConstantDecay(boundaries, rates)
twin.compile(
    keras_twin.optimizer(params, rate),
    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
augmented = tf.keras.preprocessing.image.ImageDataGenerator(
    rotation_range=20, width_shift_range=0.2, height_shift_range=0.2, horizontal_flip=True
).flow(train.images, train.labels, batch_size=flags.train_batch_size)
held_out = test.images, test.labels
twin.fit(augmented, epochs=int(epochs), validation_data=held_out, workers=2, verbose=2)
# fit() ends with the averages of the weights in the model.
_, accuracy = twin.evaluate(*held_out, verbose=2)
print(json.dumps(accuracy))
"""


def main(_):
    """Runs the sides and prints their test accuracies after the last epoch."""
    values = flags.FLAGS
    for side in values.sides:
        started = time.time()
        if side == "ours":
            result = run_cpu(
                "--flagfile=configs/cifar10_cnn.cfg",
                f"--data_dir={values.data_dir}",
                f"--train_epochs={values.epochs}",
                f"--seed={values.seed}",
                "--early_stop_evals=0",
            )
            accuracy = result["eval"]["accuracy"]
        else:
            accuracy = run_python(KERAS, values.source, values.epochs, values.seed)
        seconds = time.time() - started
        print(f"{side}: test accuracy {accuracy:.4f} in {seconds / 60:.1f} minutes", flush=True)


if __name__ == "__main__":
    app.run(main)
