"""Speed of evaluation and prediction beside `tf.keras`, interleaved, medians.

    python -m benchmarks.evaluation_speed [--recipes=mnist_mlp,cifar10_cnn] [--rounds=3]

Data and networks are those of benchmarks/train_speed.py: ours reads TFRecord shards, Keras'
`evaluate` and `predict` read arrays in memory. The first evaluation includes building the graph and
the variables, the second is like that of a later checkpoint in a training.
"""

from __future__ import annotations

import json
import tempfile

from absl import app, flags

from benchmarks import train_speed
from benchmarks.peers import train_peers
from benchmarks.subprocesses import format_ratio, run_cpu, run_python

BATCH_SIZE = 500
MEASURES = ("evaluate", "evaluate again", "predict")

OURS = """
import json, sys, time
import tensorflow as tf
tf.keras.layers  # a lazy import, which Keras' side does before its clock starts
from benchmarks import runs
from engine.evaluation.evaluator import Evaluator
settings, estimator, input_fns = runs.build(*sys.argv[1:])
evaluator = Evaluator(estimator, settings, input_fns)
times = [time.time()]
for _ in range(2):
    evaluator.evaluate(settings.checkpoint)
    times.append(time.time())
for _ in estimator.predict(
    input_fns.predict, checkpoint_path=settings.checkpoint, yield_single_examples=False
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
    """Runs the rounds and prints a row per recipe and measure."""
    with tempfile.TemporaryDirectory() as folder:
        for recipe in flags.FLAGS.recipes:
            size, rounds = _bench(recipe, folder)
            for i, measure in enumerate(MEASURES):
                rates = ([size / side[i] for side in sides] for sides in zip(*rounds))
                print(f"{recipe}, {measure}, examples/s: {format_ratio(*rates)}", flush=True)


def _bench(recipe, folder):
    """Returns the number of examples and, per round, the seconds of ours and of Keras."""
    shape, size, _ = train_speed.RECIPES[recipe]
    data_dir, arrays, params, _ = train_speed.prepare(recipe, folder, shape, size)
    ours = [*train_speed.arguments(recipe, data_dir, 1), f"--model_dir={folder}/{recipe}-model"]
    run_cpu(*ours)  # writes a checkpoint
    ours += [
        "--mode=eval",
        "--eval_split=train",
        f"--eval_batch_size={BATCH_SIZE}",
        f"--predict_batch_size={BATCH_SIZE}",
    ]
    values = size, params, BATCH_SIZE, 1, 0, {}, flags.FLAGS.precision
    keras = arrays, *map(json.dumps, values)
    return size, [
        (run_python(OURS, *ours), run_python(KERAS, *keras)) for _ in range(flags.FLAGS.rounds)
    ]


if __name__ == "__main__":
    app.run(main)
