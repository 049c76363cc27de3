"""Several labels per example, beside `tf.keras` and scikit-learn: two Fashion-MNIST images in one.

    python -m benchmarks.several_labels --source=folder/of/idx.gz [--rounds=3]

A picture has two images side by side, and the classes of both. Both sides train the network of
configs/fashion_mnist_cnn.cfg for 5 epochs with batch size 1000 and Adam: Keras from arrays, with
steps_per_execution=20. The metrics of our evaluation are those of scikit-learn on our predictions.
"""

from __future__ import annotations

import statistics
import tempfile

import numpy as np
from absl import app, flags

from benchmarks.subprocesses import format_ratio, run_cpu, run_python
from input_fns.array_pipeline import ArrayPipeline
from input_fns.convert.options import Options
from input_fns.image.sources import idx

STEPS = 300
MEASURES = ("mean_average_precision", "macro_auc", "macro_f1", "micro_f1", "exact_match")

# Predictions and labels of the test split, to the metrics of scikit-learn.
SCORES = """
import json
import numpy as np
from sklearn import metrics

def scores(labels, probabilities):
    guesses = probabilities >= 0.5
    print(json.dumps({
        "mean_average_precision": metrics.average_precision_score(labels, probabilities),
        "macro_auc": metrics.roc_auc_score(labels, probabilities),
        "macro_f1": metrics.f1_score(labels, guesses, average="macro"),
        "micro_f1": metrics.f1_score(labels, guesses, average="micro"),
        "exact_match": metrics.accuracy_score(labels, guesses),
        **more,
    }))
"""
OURS = f"""
import sys
from benchmarks import several_labels
more = {{}}
{SCORES}
path, source = sys.argv[1:]
scores(several_labels.read(source)["test"][1], np.load(path)["probabilities"])
"""
KERAS = f"""
import sys, time
import tensorflow as tf
from benchmarks import runs, several_labels
from benchmarks.peers import keras_twin
{SCORES}
source, seed = sys.argv[1:]
params, flags = runs.recipe("fashion_mnist_cnn")
(images, labels), test = several_labels.read(source).values()
tf.keras.utils.set_random_seed(int(seed))
twin = keras_twin.build(params, images.shape[1:])
loss = tf.keras.losses.BinaryCrossentropy(from_logits=True)
twin.compile(keras_twin.optimizer(params, params["learning_rate"]), loss, steps_per_execution=20)

class Clock(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs):
        times.append(time.time())

times = []
batch = {{"batch_size": flags.train_batch_size, "verbose": 0}}
twin.fit(images, labels, epochs=5, callbacks=[Clock()], **batch)
more = {{"rate": 4 * len(images) / (times[-1] - times[0])}}
scores(test[1], tf.sigmoid(twin.predict(test[0], **batch)).numpy())
"""


def read(source: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Returns `{split: (images uint8 [n, 28, 56, 1], labels float32 [n, 10])}`."""
    found = {}
    for name, split in idx.read(Options("fashion_mnist", source=source)).splits.items():
        other = np.random.default_rng(1).permutation(len(split))
        labels = np.eye(10, dtype=np.float32)[split.labels]
        images = np.concatenate([split.images, split.images[other]], axis=2)
        found[name] = images, np.maximum(labels, labels[other])
    return found


def pairs(data_dir: str) -> ArrayPipeline:
    """Returns the data set: a value of --dataset."""
    splits = {name: ({"image": x}, y) for name, (x, y) in read(data_dir).items()}
    return ArrayPipeline("pairs", splits, properties={"target": "multilabel", "num_classes": 10})


def main(_):
    """Trains both sides in turn; prints their rates and metrics."""
    ours, keras, source = [], [], flags.FLAGS.source
    for seed in range(1, flags.FLAGS.rounds + 1):
        with tempfile.TemporaryDirectory() as folder:
            given = (
                *("--flagfile=configs/fashion_mnist_cnn.cfg", f"--data_dir={source}"),
                *("--dataset=benchmarks.several_labels:pairs", f"--model_dir={folder}"),
            )
            result = run_cpu(*given, f"--seed={seed}", f"--save_checkpoints_steps={STEPS}")
            run_cpu(*given, "--mode=predict", f"--predict_output={folder}/p.npz")
            judged = run_python(OURS, f"{folder}/p.npz", source)
        found = {name: result["eval"][name] for name in MEASURES}
        difference = max(abs(found[name] - judged[name]) for name in MEASURES)
        ours.append({**found, "rate": result["train"]["examples_per_second"]})
        keras.append(run_python(KERAS, source, seed))
        print(f"seed {seed}: within {difference:.1e} of scikit-learn", flush=True)
    for name in MEASURES:
        means = [statistics.mean(row[name] for row in side) for side in (ours, keras)]
        print(f"{name}: ours {means[0]:.4f}, tf.keras {means[1]:.4f}")
    rates = ([row["rate"] for row in side] for side in (ours, keras))
    print(f"training examples/s: {format_ratio(*rates)}")


if __name__ == "__main__":
    flags.DEFINE_string("source", None, "Folder with the original IDX files.", required=True)
    flags.DEFINE_integer("rounds", 3, "Number of runs of each side.")
    app.run(main)
