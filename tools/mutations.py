"""Mutation tests: puts a fault into a copy of the code and requires that tests fail.

    python -m tools.mutations [--only=WORD]

A fault replaces one text of one file. Takes half an hour.
"""

from __future__ import annotations

import os
import pathlib
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


FAULTS = [
    Fault(
        "models/layers/losses.py",
        "1.0 - label_smoothing + off, off",
        "1.0 - label_smoothing, off",
        "tests/models",
    ),
    Fault(
        "models/layers/losses.py",
        "return upstream * (probabilities - targets), upstream * surprise",
        "return probabilities - targets, upstream * surprise",
        "tests/models tests/test_against_keras_transformer.py",
    ),
    Fault(
        "models/layers/normalization.py",
        'decay = 1 - params["batch_norm_momentum"]',
        'decay = params["batch_norm_momentum"]',
        "tests/models",
    ),
    Fault(
        "models/layers/normalization.py",
        "(variables.moving_variance, variance))",
        "(variables.moving_variance, mean))",
        "tests/models",
    ),
    Fault(
        "models/layers/conv_batch_norm.py",
        "tf.linalg.matvec(weights, constant - mean * slope)",
        "tf.linalg.matvec(weights, constant)",
        "tests/models",
    ),
    Fault(
        "models/layers/conv_batch_norm.py",
        "inside[0], inside[:, 0] = False, False",
        "inside[0] = False",
        "tests/models",
    ),
    Fault(
        "models/text/decoding.py",
        "((5.0 + length) / 6.0)",
        "((6.0 + length) / 6.0)",
        "tests/models",
    ),
    Fault(
        "models/vision/resnet.py",
        "strides = [2 if stage and not i",
        "strides = [1 if stage and not i",
        "tests/models/vision/test_resnet.py",
    ),
    Fault(
        "input_fns/core/records.py",
        "weighted = {**features, EXAMPLE_WEIGHT: tf.ones([present])}",
        "weighted = {**features, EXAMPLE_WEIGHT: tf.ones([present]) * 2}",
        "tests/input_fns",
    ),
    Fault(
        "input_fns/core/records.py",
        "first = start_step * host_shard.batches_per_step\n    numbers",
        "first = 0 * host_shard.batches_per_step\n    numbers",
        "tests/input_fns",
    ),
    Fault(
        "input_fns/core/records.py",
        "first = host_shard.host * host_shard.host_batch_size",
        "first = 0 * host_shard.host_batch_size",
        "tests/input_fns",
    ),
    Fault(
        "input_fns/image/augment/mixing.py",
        "return tf.where(inside[..., tf.newaxis], others, images), share",
        "return tf.where(inside[..., tf.newaxis], others, images), 1 - share",
        "tests/input_fns",
    ),
    Fault(
        "engine/train/schedules.py",
        "step < warmup_steps, params",
        "step > warmup_steps, params",
        "tests/engine/train/test_schedules.py",
    ),
    Fault(
        "engine/train/optimizers.py",
        "[is_decayed(variable) for variable in variables]",
        "[True for _ in variables]",
        "tests/engine tests/test_run_cpu.py",
    ),
    Fault(
        "engine/checkpoints/ema.py",
        'if params["ema_decay"] and not training:',
        'if params["ema_decay"] and training:',
        "tests/engine tests/test_run_cpu.py",
    ),
    Fault(
        "engine/evaluation/metrics.py",
        "total = tf.reduce_sum(term.values * counted)",
        "total = tf.reduce_sum(term.values)",
        "tests/engine tests/test_run_cpu.py",
    ),
    Fault(
        "engine/checkpoints/recovery.py",
        "for step in sorted(checkpoints.keys() - set(interrupted), reverse=True):",
        "for step in sorted(checkpoints.keys() - set(interrupted)):",
        "tests/engine/checkpoints/test_recovery.py",
    ),
    Fault(
        "engine/hooks/nan_guard.py",
        "if not np.isfinite(run_values.results):",
        "if np.isnan(run_values.results):",
        "tests/engine/hooks/test_nan_guard.py",
    ),
    Fault(
        "engine/serving/export.py",
        "publish(path, settings.export.dir, bool(report.problems))",
        "publish(path, settings.export.dir, False)",
        "tests/engine/serving/test_export.py",
    ),
    Fault(
        "engine/hooks/preemption.py",
        "run_context.request_stop()",
        "pass",
        "tests/test_interruption.py",
    ),
    Fault(
        "tpu/emulator/collectives.py",
        '"AddN", values, **attributes',
        '"AddN", [values[0], *values[:-1]], **attributes',
        "tests/tpu/emulator/test_emulator.py",
    ),
    Fault(
        "tpu/check/lint.py",
        "if waste >= _MIN_PADDING * total and waste:",
        "if waste > total:",
        "tests/tpu/check/test_lint.py",
    ),
]


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
