"""A whole program of TensorFlow 1.x, from the command line."""

import subprocess
import sys

import pytest

PROGRAM = """
import numpy as np
import tensorflow as tf
from tensorflow.contrib import layers as contrib_layers
from tensorflow.contrib.tpu.python.tpu import tpu_config

flags = tf.app.flags
flags.DEFINE_string("model_dir", None, "folder")
FLAGS = flags.FLAGS


def input_fn(params):
    inputs = np.arange(64, dtype=np.float32).reshape(32, 2) / 64
    dataset = tf.data.Dataset.from_tensor_slices((inputs, inputs.sum(1).astype(np.float)))
    dataset = dataset.map(lambda x, y: (x, tf.to_float(y))).repeat()
    return dataset.apply(tf.contrib.data.batch_and_drop_remainder(params["batch_size"]))


def model_fn(features, labels, mode, params):
    hidden = contrib_layers.layer_norm(tf.layers.dense(features, params["hparams"].units))
    loss = tf.losses.mean_squared_error(labels, tf.squeeze(tf.layers.dense(hidden, 1), axis=-1))
    if mode == tf.estimator.ModeKeys.EVAL:
        metrics = (lambda y: {"mean": tf.metrics.mean(y)}, [labels])
        return tf.contrib.tpu.TPUEstimatorSpec(mode, loss=loss, eval_metrics=metrics)
    optimizer = tf.contrib.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.contrib.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def main(_):
    resolver = tf.contrib.cluster_resolver.TPUClusterResolver("my-tpu")
    config = tf.contrib.tpu.RunConfig(
        cluster=resolver,
        model_dir=FLAGS.model_dir,
        tpu_config=tpu_config.TPUConfig(iterations_per_loop=2, num_shards=2),
    )
    estimator = tf.contrib.tpu.TPUEstimator(
        model_fn,
        config=config,
        use_tpu=True,
        train_batch_size=16,
        eval_batch_size=16,
        params={"hparams": tf.contrib.training.HParams(units=3).parse("units=4")},
    )
    estimator.train(input_fn, max_steps=4)
    found = estimator.evaluate(input_fn, steps=2)
    print("step", found["global_step"], "mean", found["mean"])


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.ERROR)
    tf.app.run()
"""


@pytest.mark.slow
def test_an_old_program_trains_and_evaluates(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    command = [sys.executable, "-m", "tpu", "emulate", "--topology=1x2", "--tf1", str(path)]
    done = subprocess.run(
        [*command, f"--model_dir={tmp_path / 'model'}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "step 4 mean 0.984375" in done.stdout
