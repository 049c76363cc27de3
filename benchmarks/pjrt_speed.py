"""Training speed on PJRT devices beside emulated cores and run_cpu.py, interleaved; host costs.

    python -m benchmarks.pjrt_speed [--rounds=5] [--models=resnet18,bert_tiny] [--pjrt_python=PATH]

Eight CPU devices against eight emulated cores, and one device against run_cpu.py, all on random
data: examples/s after the first step, and the ratios of each round. Then the costs of the way to
the devices: how much of a step of ResNet-18 on one device, in loops of 50, is not the step itself,
which the same batches without TensorFlow show (a loop of `client.Devices`), and the time to
exchange 1 GB of variables, up and down.
"""

from __future__ import annotations

import functools
import sys
import tempfile

from absl import app, flags

from benchmarks.subprocesses import compare, run_python, train_rate

FLAGS = flags.FLAGS
flags.DEFINE_integer("rounds", 5, "Interleaved runs of each side.")
flags.DEFINE_list("models", ["resnet18", "bert_tiny"], "Models.")
flags.DEFINE_integer("steps", 60, "Training steps of a run.")
flags.DEFINE_string("pjrt_python", sys.executable, "The interpreter that has JAX.")

_BATCH_SIZE = 64
_SMALL_BATCH_SIZE = 8
# A loop ends with the download of the variables: with few steps that is most of the host's part.
_LONG_LOOPS = ("--train_steps=200", "--save_checkpoints_steps=200", "--iterations_per_loop=50")
MODELS = {
    "resnet18": (
        *("--model=resnet", "--params=depth=18", "--synthetic_classes=10", "--image_size=32"),
        f"--train_batch_size={_BATCH_SIZE}",
    ),
    "bert_tiny": (
        *("--model=bert_classifier", "--synthetic_task=classification", "--params=size=tiny"),
        *("--synthetic_text=64x2000", f"--train_batch_size={_BATCH_SIZE}"),
    ),
}
# Prints seconds per GB, up and down.
_EXCHANGE = """
import json, sys, time
import numpy as np, tensorflow as tf
from tpu.pjrt.client import Devices, Program
count, python = int(sys.argv[1]), sys.argv[2]
state = [np.ones([2**26], np.float32) for _ in range(4)]
specs = [tf.TensorSpec(x.shape, x.dtype) for x in state]
step = tf.function(lambda *values: [x + 1 for x in values], specs, jit_compile=True)
hlo = step.experimental_get_compiler_ir(*specs)(stage="hlo_serialized")
times = []
with Devices(python, "cpu", count) as devices:
    program = devices.load(Program(hlo, 0, 0, 4, [], [0, 1, 2, 3]))
    for _ in range(3):
        started = time.monotonic()
        devices.begin(program, [], state)
        begun = time.monotonic()
        devices.submit([])
        devices.finish([])
        computed = time.monotonic()
        state = devices.finish(range(4))
        times.append((begun - started, time.monotonic() - computed))
gigabytes = sum(x.nbytes for x in state) / 1e9
print(json.dumps([min(column) / gigabytes for column in zip(*times)]))
"""
# Prints the seconds of a step of run_tpu.py on one device, and of the same step without TensorFlow.
_SHARE = """
import json, sys
from unittest import mock
from benchmarks import pjrt_step, runs
from tpu.pjrt import client
recorder = []
def start(*arguments, **options):
    recorder.append(pjrt_step.Recorder(*arguments, **options))
    return recorder[0]
batch_size = int(sys.argv.pop(1))
keep_open = mock.patch.object(pjrt_step.Recorder, "close")
with mock.patch.object(client, "Devices", start), keep_open:
    rate = runs.run("run_tpu")["train"]["examples_per_second"]
devices = recorder[0]
devices.begin(0, devices.arguments, devices.state)
alone = pjrt_step.seconds_per_step(devices, devices.program, devices.batches)
print(json.dumps([batch_size / rate, alone]))
"""


def main(_):
    """Prints a line per model and side, then the costs of the host."""
    steps = (f"--train_steps={FLAGS.steps}", f"--save_checkpoints_steps={FLAGS.steps}")
    common = ("--dataset=synthetic", *steps)
    python = f"--pjrt_python={FLAGS.pjrt_python}"

    loops = f"--iterations_per_loop={FLAGS.steps // 4}"  # the first is not timed

    def on_devices(devices, *arguments):
        tpu = ("--tpu=pjrt", f"--devices={devices}", python, loops)
        return train_rate(*tpu, *arguments, wrapper="run_tpu")

    def emulated(*arguments):
        return train_rate("--tpu=emulator", loops, *arguments, wrapper="run_tpu")

    for model in FLAGS.models:
        arguments = (*MODELS[model], *common)
        sides = {"ours": functools.partial(on_devices, "cpu:8"), "emulated cores": emulated}
        compare(f"{model}, 8 devices", sides, FLAGS.rounds, *arguments)
        sides = {"ours": functools.partial(on_devices, "cpu:1"), "run_cpu.py": train_rate}
        compare(f"{model}, 1 device", sides, FLAGS.rounds, *arguments)
    with tempfile.TemporaryDirectory() as folder:
        tpu = ("--tpu=pjrt", "--devices=cpu:1", python, loops, "--mode=train", "--best_metric=")
        small = (f"--train_batch_size={_SMALL_BATCH_SIZE}", *_LONG_LOOPS)
        arguments = (*MODELS["resnet18"], *common, *tpu, *small, f"--model_dir={folder}")
        whole, alone = run_python(_SHARE, _SMALL_BATCH_SIZE, *arguments)
    share = 1 - alone / whole
    print(
        f"resnet18, 1 device: {1e3 * whole:.0f} ms a step, {1e3 * alone:.0f} ms alone: {share:.1%}"
    )
    for count in (1, 8):
        up, down = run_python(_EXCHANGE, count, FLAGS.pjrt_python)
        print(f"variables, {count} devices: {up:.2f} s/GB up, {down:.2f} s/GB down")


if __name__ == "__main__":
    app.run(main)
