"""Time of each stage from the start of the process to the end of the first training step.

    python -m benchmarks.start_up [--recipe=mnist_mlp] [--rounds=5]

Compares ours with a `tf.keras` script of the same network and data, interleaved, medians.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time

from absl import app, flags

from benchmarks import train_speed
from benchmarks.subprocesses import interleave, run_python

flags.DEFINE_string("recipe", "mnist_mlp", "A recipe of train_speed.")

MARKS = """
import json, sys, time
last, stages = float(sys.argv.pop(1)), {}
def mark(stage):
    global last
    now = time.time()
    stages[stage], last = now - last, now
mark("Python")
"""

OURS = (
    MARKS
    + """
from engine.cli import startup, tensorflow_import
startup.start(sys.argv, "", "engine.cli.flags", "engine.cli.cpu_flags")
mark("flags, versions")
tensorflow_import.import_tensorflow()
import tensorflow as tf
mark("import tensorflow, Estimator")
import run_cpu
mark("import the rest")
resolve = run_cpu.resolve_flags.resolve
def timed(*arguments, **named):
    resolved = resolve(*arguments, **named)
    mark("data set, params, checkpoint")
    return resolved
run_cpu.resolve_flags.resolve = timed

class Stages(tf.estimator.SessionRunHook):
    def begin(self):
        mark("graph")
    def after_create_session(self, session, coord):
        mark("session, variables")
    def after_run(self, *arguments):
        if "first step" not in stages:
            mark("first step")

train = tf.estimator.Estimator.train
def with_stages(self, input_fn, hooks, **named):
    return train(self, input_fn, [*hooks, Stages()], **named)
tf.estimator.Estimator.train = with_stages
startup.run(run_cpu.main)
print(json.dumps(stages))
"""
)

KERAS = (
    MARKS
    + """
import numpy as np
import tensorflow as tf
tf.keras.Model
mark("import tensorflow, Keras")
from benchmarks.peers import keras_twin
data, params, batch_size, precision = sys.argv[1], *map(json.loads, sys.argv[2:])
with np.load(data) as arrays:
    x, y = arrays["images"], arrays["labels"]
mark("data set")
if precision == "bfloat16":
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
twin = keras_twin.compiled(params, x.shape[1:])
mark("model")
twin.fit(x[:batch_size], y[:batch_size], batch_size=batch_size, verbose=0)
mark("graph, first step")
print(json.dumps(stages))
"""
)


def main(_):
    """Prints the stages of both sides."""
    recipe = flags.FLAGS.recipe
    shape, size, _ = train_speed.RECIPES[recipe]
    with tempfile.TemporaryDirectory() as folder:
        data_dir, arrays, params, batch_size = train_speed.prepare(recipe, folder, shape, size)
        values = params, batch_size, flags.FLAGS.precision
        sides = {
            "ours": lambda: _ours(train_speed.arguments(recipe, data_dir, 3)),
            "tf.keras": lambda: run_python(KERAS, time.time(), arrays, *map(json.dumps, values)),
        }
        rates = interleave(sides, flags.FLAGS.rounds)
    for name, rounds in rates.items():
        total = statistics.median(sum(stages.values()) for stages in rounds)
        print(f"{name}: {total:.2f} s to the end of the first step")
        for stage in rounds[0]:
            print(f"  {stage:32}{statistics.median(stages[stage] for stages in rounds):6.2f} s")


def _ours(arguments):
    with tempfile.TemporaryDirectory() as model_dir:
        return run_python(OURS, time.time(), *arguments, f"--model_dir={model_dir}")


if __name__ == "__main__":
    app.run(main)
