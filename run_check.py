"""`run_tpu.py --mode=check`: will this program compile, fit and be right on that TPU?"""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import sys

import tensorflow as tf

import run_cpu
from common import files
from common.errors import UsageError
from engine.cli import modes, parity_check, run_settings
from engine.cli.flags import FLAGS
from tpu.check import check_program, compiler, format_text, to_json
from tpu.connect import connection, topology
from tpu.connect import flags as tpu_flags
from tpu.connect.connection import Connection
from tpu.emulator import emulator
from tpu.findings import NOTE, WARNING, Finding


def run(request, build_estimator, build_input_fns) -> int:
    """Checks what the flags ask for; returns the exit status: 1 if there are errors.

    Args:
      request: a `tpu.connect.request.Request`.
      build_estimator: `(Job, Connection) -> TPUEstimator`.
      build_input_fns: `Job -> modes.InputFns`.

    Raises:
      UsageError, TPUError, DataError, ModelError: it could not even begin.
    """
    if not FLAGS.tpu_topology:
        raise UsageError("--mode=check needs --tpu_topology, such as v3-8")
    findings = connection.environment_findings(request)
    asked = run_settings.from_flags(tpu_flags.iterations_per_loop(FLAGS.save_checkpoints_steps))
    local = tf.distribute.cluster_resolver.TPUClusterResolver("local")
    tpu = Connection(topology.find(FLAGS.tpu_topology, any_generation=True), local)
    input_fns = build_input_fns(asked)

    def train_on_tpu(small_job):
        with emulator.emulate(tpu.topology):
            estimator = build_estimator(small_job, tpu)
            modes.train(estimator, small_job, build_input_fns(small_job))

    with _ended_by_sigterm():
        report = check_program(
            build_estimator(asked, tpu),
            {"train": input_fns.train(0), "eval": input_fns.evaluate, "predict": input_fns.predict},
            tpu.topology,
            compile_with_libtpu=FLAGS.check_compiler != "off",
            with_batch=lambda mode, size: build_estimator(
                dataclasses.replace(asked, **{f"{mode}_batch_size": size}), tpu
            ),
            accumulate_steps=asked.accumulate_steps,
            findings=findings,
            effort=compiler.FULL if FLAGS.check_compiler == "full" else compiler.QUICK,
            rehearse=(lambda: _rehearse(asked, train_on_tpu)) if FLAGS.check_run_steps else None,
        )
    print(format_text(report, color=sys.stdout.isatty()))
    if FLAGS.check_report:
        with files.atomic_write(FLAGS.check_report) as file:
            file.write(to_json(report))
    return int(report.num_errors > 0)


@contextlib.contextmanager
def _ended_by_sigterm():
    """Makes SIGTERM an exit that leaves no compiler and no folder behind."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _rehearse(asked, train_on_tpu) -> Finding:
    """Trains some steps with both wrappers; returns by how much they differ."""

    def train_on_cpu(small_job):
        estimator = run_cpu.build_estimator(small_job)
        modes.train(estimator, small_job, run_cpu.build_input_fns(small_job))

    steps = FLAGS.check_run_steps
    print(f"rehearsal: {steps} steps by run_cpu.py and on emulated cores, in folders that go again")
    difference, name = parity_check.largest_difference(asked, train_on_cpu, train_on_tpu, steps)
    message = f"after {steps} steps on emulated cores '{name}' differs most, by {difference:.1e}"
    if difference < 1e-4:
        return Finding(NOTE, "run", f"{message} of its size: rounding", mode="train")
    reasons = (
        "dropout, the batch norm of each core alone, the kink of a ReLU, and Adam's division of "
        "gradients that are almost 0 (--params=epsilon=0.01 tells them from a fault) do that, and "
        "little else should"
    )
    return Finding(WARNING, "run", f"{message} of its size: {reasons}", mode="train")
