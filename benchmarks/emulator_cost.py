"""Cost of the TPU emulator: CPU time to build the graph, and of a step.

    python -m benchmarks.emulator_cost [--baseline=CHECKOUT] [--model=resnet50] [--slice=v2-8]

Trains ResNet-50 at 64 px and a BERT-tiny (2 layers of width 128) on emulated slices, with two
examples per core. With --baseline, runs alternate between this tree and another checkout. CPU time
of all threads, which other processes on the machine hardly change.
"""

from __future__ import annotations

import functools
import statistics

from absl import app, flags

from benchmarks.subprocesses import ROOT, interleave, run_python

flags.DEFINE_string("baseline", "", "Another checkout of this project, to compare with.")
flags.DEFINE_multi_string("model", ["resnet50", "bert"], "Models: resnet50, bert.")
flags.DEFINE_multi_string("slice", ["v2-8", "4x8"], "Slices to emulate.")
flags.DEFINE_integer("rounds", 3, "Interleaved runs of each side.")
flags.DEFINE_integer("steps", 4, "Timed training steps, after as many that are not timed.")

CODE = """
import json, sys, tempfile, time
root, model, name, steps = sys.argv[1:]
sys.path.insert(0, root)
import numpy as np, tensorflow as tf
from tpu.emulator import emulator
tf1, steps = tf.compat.v1, int(steps)
tf1.disable_v2_behavior()
tf1.logging.set_verbosity(tf1.logging.ERROR)


def attention(x, width=128, heads=2):
    def split(y):
        return tf.reshape(y, [-1, x.shape[1], heads, width // heads])
    q, k, v = (split(tf1.layers.dense(x, width)) for _ in range(3))
    weights = tf.nn.softmax(tf.einsum("bqhd,bkhd->bhqk", q, k) / 8)
    y = tf.reshape(tf.einsum("bhqk,bkhd->bqhd", weights, v), [-1, x.shape[1], width])
    return tf.keras.layers.LayerNormalization()(x + tf1.layers.dense(y, width))


def bert(features):
    x = tf.gather(tf1.get_variable("words", [1000, 128]), features)
    for _ in range(2):
        x = attention(x)
        hidden = tf1.layers.dense(x, 512, tf.nn.gelu)
        x = tf.keras.layers.LayerNormalization()(x + tf1.layers.dense(hidden, 128))
    return tf1.layers.dense(x[:, 0], 10)


def resnet50(features):
    network = tf.keras.applications.ResNet50(
        weights=None, input_shape=(64, 64, 3), classes=10, classifier_activation=None)
    return network(features, training=True)


def model_fn(features, labels, mode, params):
    logits = globals()[model](features)
    loss = tf1.losses.sparse_softmax_cross_entropy(labels, logits)
    optimizer = tf1.tpu.CrossShardOptimizer(tf1.train.AdamOptimizer(1e-3))
    op = optimizer.minimize(loss, tf1.train.get_global_step())
    return tf1.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=op)


def input_fn(params):
    size = params["batch_size"]
    if model == "bert":
        x = np.arange(size * 32, dtype=np.int32).reshape([size, 32]) % 1000
    else:
        x = np.random.RandomState(0).rand(size, 64, 64, 3).astype(np.float32)
    data = (x, np.arange(size, dtype=np.int32) % 10)
    return tf.data.Dataset.from_tensors(data).repeat()


class Clock(tf.estimator.SessionRunHook):
    times = []

    def begin(self):
        self.built = time.process_time()

    def after_run(self, context, values):
        self.times.append(time.process_time())


clock = Clock()
with emulator.emulate(name) as tpu_slice:
    cluster = tf.distribute.cluster_resolver.TPUClusterResolver("any")
    config = tf1.estimator.tpu.RunConfig(
        cluster=cluster, model_dir=tempfile.mkdtemp(), save_checkpoints_steps=None,
        save_checkpoints_secs=None, save_summary_steps=None,
        tpu_config=tf1.estimator.tpu.TPUConfig(
            steps, per_host_input_for_training=tf1.estimator.tpu.InputPipelineConfig.PER_HOST_V2))
    estimator = tf1.estimator.tpu.TPUEstimator(
        model_fn, config=config, train_batch_size=2 * tpu_slice.num_cores)
    started = time.process_time()
    estimator.train(input_fn, steps=2 * steps, hooks=[clock])
first, last = clock.times
print(json.dumps([clock.built - started, first - clock.built, (last - first) / steps]))
"""
MEASURES = ("CPU seconds to build", "to the end of the first loop", "a step")


def main(_):
    """Prints a line per model, slice and side: medians of the runs."""
    sides = {"this tree": functools.partial(run_python, CODE, ROOT)}
    if flags.FLAGS.baseline:
        sides["baseline"] = functools.partial(run_python, CODE, flags.FLAGS.baseline)
    for model in flags.FLAGS.model:
        for name in flags.FLAGS.slice:
            runs = interleave(sides, flags.FLAGS.rounds, model, name, flags.FLAGS.steps)
            for side, rows in runs.items():
                medians = [statistics.median(column) for column in zip(*rows)]
                figures = ", ".join(f"{n} {m:.2f}" for n, m in zip(MEASURES, medians))
                print(f"{model:9}{name:6}{side:10}: {figures}", flush=True)


if __name__ == "__main__":
    app.run(main)
