"""Profiles training steps on a CPU: share of peak FLOP/s, and time per type of operation.

    python -m benchmarks.cpu_profile [--recipes=cifar10_cnn,cifar10_resnet] [--precision=bfloat16]

FLOPs are counted in the graph; times are those of TensorFlow's tracer. The peak is the speed of
oneDNN's product of two 4096 x 4096 matrices in the same process and precision.
"""

from __future__ import annotations

import tempfile

from absl import app, flags

from benchmarks import train_speed
from benchmarks.subprocesses import run_python

flags.FLAGS.set_default("recipes", ["cifar10_cnn", "cifar10_resnet"])

MIN_SHARE = 0.01  # of the traced time; other operations are summed

CODE = """
import collections, json, sys, time
precision, steps, *arguments = sys.argv[1:]
steps = int(steps)
import tensorflow as tf
from benchmarks import flops, runs
v1 = tf.compat.v1

def peak():
    size = 4096
    with tf.Graph().as_default(), tf.device("/cpu:0"):
        square = tf.random.uniform([size, size], dtype=tf.float32)
        square = v1.Variable(tf.cast(square, precision), use_resource=True)
        product = tf.matmul(square, square).op
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            seconds = []
            for _ in range(8):
                started = time.perf_counter()
                session.run(product)
                seconds.append(time.perf_counter() - started)
    return 2 * size**3 / min(seconds)

class Trace(tf.estimator.SessionRunHook):
    def __init__(self):
        self.runs = 0
        self.seconds = []
        self.totals = collections.Counter()

    def before_run(self, context):
        if not self.runs:
            self.flops = flops.count(context.original_args.fetches)
        self.started = time.perf_counter()
        level = v1.RunOptions.FULL_TRACE if self.runs % 2 else v1.RunOptions.NO_TRACE
        return tf.estimator.SessionRunArgs(None, options=v1.RunOptions(trace_level=level))

    def after_run(self, context, values):
        self.runs += 1
        if self.runs <= 6:
            return
        if self.runs % 2:
            self.seconds.append(time.perf_counter() - self.started)
            return
        for device in values.run_metadata.step_stats.dev_stats:
            if "CPU:0" in device.device:
                for node in device.node_stats:
                    kind = node.timeline_label.split(" = ")[-1].split("(")[0]
                    self.totals[kind] += node.op_end_rel_micros - node.op_start_rel_micros

reached = peak()
_, estimator, input_fns = runs.build(*arguments)  # one step per session.run
trace = Trace()
estimator.train(input_fns.train(0), [trace], max_steps=steps)
seconds = sorted(trace.seconds)[len(trace.seconds) // 2]
print(json.dumps([reached, trace.flops, seconds, trace.totals]))
"""


def main(_):
    """Prints a profile per recipe."""
    with tempfile.TemporaryDirectory() as folder:
        for recipe in flags.FLAGS.recipes:
            shape, size, _ = train_speed.RECIPES[recipe]
            data_dir, _, _, batch_size = train_speed.prepare(recipe, folder, shape, size)
            steps = 46  # 6 warm-up steps, then every second step is traced
            arguments = train_speed.arguments(recipe, data_dir, steps)
            precision, model_dir = flags.FLAGS.precision, f"--model_dir={folder}/{recipe}-model"
            peak, flops, seconds, totals = run_python(CODE, precision, steps, *arguments, model_dir)
            print(
                f"{recipe}, {precision}: {flops / 1e9:.2f} GFLOP per step of {batch_size}, "
                f"{1000 * seconds:.1f} ms: {flops / seconds / 1e9:.0f} GFLOP/s, "
                f"{flops / seconds / peak:.0%} of the {peak / 1e9:,.0f} of a large matrix product"
            )
            _print_operations(totals)


def _print_operations(totals):
    total = sum(totals.values())
    shown = {kind: micros for kind, micros in totals.items() if micros >= MIN_SHARE * total}
    for kind, micros in sorted(shown.items(), key=lambda item: -item[1]):
        print(f"  {micros / total:5.1%} {kind}")
    print(f"  {1 - sum(shown.values()) / total:5.1%} all others", flush=True)


if __name__ == "__main__":
    app.run(main)
