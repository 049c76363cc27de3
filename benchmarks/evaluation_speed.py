"""Evaluation and prediction of the recipes against `tf.keras`, interleaved in one run.

    python -m benchmarks.evaluation_speed [--recipes=mnist_mlp,cifar10_cnn] [--rounds=3]

The data and the networks are those of benchmarks/train_speed.py: ours from TFRecord shards, Keras'
`evaluate` and `predict` from arrays in memory. Seconds are of a whole pass, the first with the
graph and, of ours, the variables that have to be made for it, the second as after a later
checkpoint of a training; processes of their own, medians.
"""

from __future__ import annotations

import json
import tempfile
import time

from absl import app, flags

from benchmarks import train_peers, train_speed
from benchmarks.children import beside_keras, last_line

BATCH_SIZE = 500
WAYS = ("evaluate", "evaluate again", "predict")

OURS = """
import json, sys, time
import run_cpu
import tensorflow as tf
tf.keras.layers  # imported when first touched: by tf.layers, and on the other side before the clock
from engine.cli import resolve_flags, runtime
from engine.evaluation.evaluator import Evaluator
from engine.cli.flags import FLAGS
FLAGS(["", *sys.argv[1:]])
runtime.prepare()
run, state = resolve_flags.resolve()
estimator = run_cpu.build_estimator(run, state)
input_fns = run_cpu.build_input_fns(run, state)
evaluator = Evaluator(estimator, run, input_fns)
times = [time.time()]
for _ in range(2):
    evaluator.evaluate(run.checkpoint)
    times.append(time.time())
for _ in estimator.predict(
    input_fns.predict, checkpoint_path=run.checkpoint, yield_single_examples=False
):
    pass
times.append(time.time())
print(json.dumps([end - start for start, end in zip(times, times[1:])]))
"""

KERAS = (
    train_peers.TWIN
    + """
twin = keras_twin.build(params, x.shape[1:])
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
twin.compile(loss=loss, metrics=["accuracy"])
times = [time.time()]
for _ in range(2):
    twin.evaluate(x, y, batch_size=batch_size, verbose=0)
    times.append(time.time())
twin.predict(x, batch_size=batch_size, verbose=0)
times.append(time.time())
print(json.dumps([end - start for start, end in zip(times, times[1:])]))
"""
)


def main(_):
    """Runs the rounds and prints a row for each recipe and way."""
    with tempfile.TemporaryDirectory() as folder:
        for recipe in flags.FLAGS.recipes:
            size, rounds = _bench(recipe, folder)
            for i, way in enumerate(WAYS):
                rates = ([size / side[i] for side in sides] for sides in zip(*rounds))
                print(f"{recipe}, {way}, examples/s: {beside_keras(*rates)}", flush=True)


def _bench(recipe, folder):
    """Returns the number of examples, and of each round the seconds of ours and of Keras'."""
    shape, size, _ = train_speed.RECIPES[recipe]
    data_dir, arrays, params, _ = train_speed.prepare(recipe, folder, shape, size)
    ours = train_speed.arguments(recipe, data_dir, f"{folder}/{recipe}-model", 1)
    last_line(train_speed.OURS, time.time(), *ours)  # a checkpoint to be evaluated
    ours += [
        "--mode=eval",
        "--eval_split=train",
        f"--eval_batch_size={BATCH_SIZE}",
        f"--predict_batch_size={BATCH_SIZE}",
    ]
    values = size, params, BATCH_SIZE, 1, 0, {}, flags.FLAGS.precision
    keras = arrays, *map(json.dumps, values)
    return size, [
        (last_line(OURS, *ours), last_line(KERAS, *keras)) for _ in range(flags.FLAGS.rounds)
    ]


if __name__ == "__main__":
    app.run(main)
