"""Trains the networks of the recipes with Keras, a plain Estimator or PyTorch."""

from __future__ import annotations

import functools
import json
import sys
import time

from absl import flags

from benchmarks.subprocesses import run_python

flags.DEFINE_enum("precision", "float32", ["float32", "bfloat16"], "Precision of all sides.")
flags.DEFINE_string("torch_python", sys.executable, "Python with PyTorch.")

# The beginning of the Keras and Estimator programs.
TWIN = """
import json, sys, time
import numpy as np
import tensorflow as tf
from benchmarks.peers import keras_twin
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
twin = keras_twin.compiled(params, x.shape[1:], **more)
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
    optimizer = keras_twin.v1_optimizer(params)
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

TORCH = """
import json, sys
from benchmarks.peers import torch_twin
torch_twin.main(sys.argv[1], json.loads(sys.argv[2]))
"""


def _tensorflow(code, arrays, used, params, batch_size, epochs, **compile_arguments):
    """Returns the seconds to the first step, and examples/s after it."""
    values = used, params, batch_size, epochs, time.time(), compile_arguments
    return run_python(code, arrays, *map(json.dumps, (*values, flags.FLAGS.precision)))


def _torch(arrays, used, params, batch_size, epochs, channels_last, compiled):
    settings = {
        "used": used,
        "params": params,
        "batch_size": batch_size,
        "epochs": epochs,
        "started": time.time(),
        "precision": flags.FLAGS.precision,
        "channels_last": channels_last,
        "compiled": compiled,
    }
    return run_python(TORCH, arrays, json.dumps(settings), python=flags.FLAGS.torch_python)


# Name -> function (path of arrays, number of examples, params, batch size, epochs) ->
# (seconds to the first step, examples/s after it).
PEERS = {
    "keras": functools.partial(_tensorflow, KERAS),
    "keras_steps": functools.partial(_tensorflow, KERAS, steps_per_execution=20),
    "keras_xla": functools.partial(_tensorflow, KERAS, steps_per_execution=20, jit_compile=True),
    "estimator": functools.partial(_tensorflow, ESTIMATOR),
    "torch": functools.partial(_torch, channels_last=False, compiled=False),
    "torch_channels_last": functools.partial(_torch, channels_last=True, compiled=False),
    "torch_compiled": functools.partial(_torch, channels_last=True, compiled=True),
}
