"""Mutation tests: puts a fault into a copy of the code and requires that tests fail.

    python -m tools.mutations [--only=WORD]

A fault replaces one text of one file. Takes half an hour.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import NamedTuple

from engine.cli import startup

if __name__ == "__main__":
    startup.check(startup.check_environment)

from absl import app, flags

flags.DEFINE_string("only", "", "Only faults in files with this in their path.")

_MAX_SECONDS = 1200.0  # of the tests of one fault
_ROOT = pathlib.Path(__file__).resolve().parent.parent


class Fault(NamedTuple):
    """A fault.

    Attributes:
      path: the file.
      right: text that occurs once in the file.
      wrong: its replacement.
      tests: test files or folders that should fail, separated by spaces.
    """

    path: str
    right: str
    wrong: str
    tests: str


# A fault is "PATH: TESTS", lines to replace and their replacement, like a diff.
_TABLE = """
models/layers/losses.py: tests/models
-1.0 - label_smoothing + off, off
+1.0 - label_smoothing, off
models/layers/losses.py: tests/models tests/test_against_keras_transformer.py
-return upstream * (probabilities - targets), upstream * surprise
+return probabilities - targets, upstream * surprise
models/layers/normalization.py: tests/models
-decay = 1 - params["batch_norm_momentum"]
+decay = params["batch_norm_momentum"]
models/layers/normalization.py: tests/models
-(variables.moving_variance, variance))
+(variables.moving_variance, mean))
models/layers/conv_batch_norm.py: tests/models
-tf.linalg.matvec(weights, constant - mean * slope)
+tf.linalg.matvec(weights, constant)
models/layers/conv_batch_norm.py: tests/models
-inside[0], inside[:, 0] = False, False
+inside[0] = False
models/text/decoding.py: tests/models
-((5.0 + length) / 6.0)
+((6.0 + length) / 6.0)
models/vision/resnet.py: tests/models/vision/test_resnet.py
-strides = [2 if stage and not i
+strides = [1 if stage and not i
input_fns/core/records.py: tests/input_fns
-weighted = {**features, EXAMPLE_WEIGHT: tf.ones([present])}
+weighted = {**features, EXAMPLE_WEIGHT: tf.ones([present]) * 2}
input_fns/core/records.py: tests/input_fns
-first = start_step * host_shard.batches_per_step
-    numbers
+first = 0 * host_shard.batches_per_step
+    numbers
input_fns/core/records.py: tests/input_fns
-first = host_shard.host * host_shard.host_batch_size
+first = 0 * host_shard.host_batch_size
input_fns/image/augment/mixing.py: tests/input_fns
-return tf.where(inside[..., tf.newaxis], others, images), share
+return tf.where(inside[..., tf.newaxis], others, images), 1 - share
engine/train/schedules.py: tests/engine/train/test_schedules.py
-step < warmup_steps, params
+step > warmup_steps, params
engine/train/optimizers.py: tests/engine tests/test_run_cpu.py
-[is_decayed(variable) for variable in variables]
+[True for _ in variables]
engine/checkpoints/ema.py: tests/engine tests/test_run_cpu.py
-if params["ema_decay"] and not training:
+if params["ema_decay"] and training:
engine/evaluation/metrics.py: tests/engine tests/test_run_cpu.py
-total = tf.reduce_sum(term.values * counted)
+total = tf.reduce_sum(term.values)
engine/checkpoints/recovery.py: tests/engine/checkpoints/test_recovery.py
-for step in sorted(checkpoints.keys() - set(interrupted), reverse=True):
+for step in sorted(checkpoints.keys() - set(interrupted)):
engine/hooks/nan_guard.py: tests/engine/hooks/test_nan_guard.py
-if not np.isfinite(run_values.results):
+if np.isnan(run_values.results):
engine/serving/export.py: tests/engine/serving/test_export.py
-publish(path, settings.export.dir, bool(report.problems))
+publish(path, settings.export.dir, False)
engine/hooks/preemption.py: tests/test_interruption.py
-run_context.request_stop()
+pass
tpu/emulator/collectives.py: tests/tpu/emulator/test_emulator.py
-"AddN", values, **attributes
+"AddN", [values[0], *values[:-1]], **attributes
tpu/check/lint.py: tests/tpu/check/test_lint.py
-if waste >= _MIN_PADDING * total and waste:
+if waste > total:
"""


def _parse(table):
    for path, tests, lines in re.findall(
        r"^([^-+\n]+): (.+)\n((?:[-+].*\n)+)", table, re.MULTILINE
    ):
        right, wrong = ("\n".join(re.findall(rf"^[{sign}](.*)", lines, re.M)) for sign in "-+")
        yield Fault(path, right, wrong, tests)


FAULTS = list(_parse(_TABLE))


def main(_):
    """Prints whether each fault is detected; exits with status 1 if one is not."""
    num_missed = 0
    chosen = [fault for fault in FAULTS if flags.FLAGS.only in fault.path]
    for fault in chosen:
        is_detected = _is_detected(fault)
        num_missed += not is_detected
        result = "detected" if is_detected else "NOT DETECTED"
        print(f"{result:13} {fault.path}: {' '.join(fault.wrong.split())}", flush=True)
    print(f"{len(chosen) - num_missed} of {len(chosen)} faults detected")
    sys.exit(num_missed > 0)


def _is_detected(fault):
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "copy"
        ignored = shutil.ignore_patterns(".*", "data", "runs", "__pycache__")
        shutil.copytree(_ROOT, copy, ignore=ignored)
        text = (copy / fault.path).read_text()
        if text.count(fault.right) != 1:
            sys.exit(
                f"{fault.path} contains {text.count(fault.right)} times, not once: {fault.right}"
            )
        (copy / fault.path).write_text(text.replace(fault.right, fault.wrong))
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow"]
        command += ["-p", "no:cacheprovider", *fault.tests.split()]
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        output = copy.with_name("output")
        with open(output, "w") as file:
            tests = subprocess.Popen(
                command, cwd=copy, env=environment, stdout=file, stderr=file, start_new_session=True
            )
        try:
            status = tests.wait(_MAX_SECONDS)
        except subprocess.TimeoutExpired:  # tests that hang detect a fault, too
            os.killpg(tests.pid, signal.SIGKILL)
            tests.wait()
            return True
        if status not in (0, 1):
            sys.exit(output.read_text())
        return status == 1


if __name__ == "__main__":
    app.run(main)
