"""`run_tpu.py --mode=check`: checks without a TPU that a run will compile, fit and be correct."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import sys

import tensorflow as tf

import run_cpu
from common import files
from engine.cli import modes, parity_check, resolve_flags
from engine.cli.flags import FLAGS
from engine.train import tpu_embeddings
from tpu import emulator
from tpu.check import check_program, compiler, format_text, to_json
from tpu.connect import connection, topology
from tpu.connect import flags as tpu_flags
from tpu.connect.connection import Connection
from tpu.findings import NOTE, WARNING, Finding
from tpu.interruption import StopProgram


# As engine/cli/modes.py does. Converting the input_fn would take half a second.
@tf.autograph.experimental.do_not_convert
def run(request, build_estimator, build_input_fns) -> int:
    """Checks the TPU program of the flags; prints a report; returns `Report.status`.

    Args:
      request: a `tpu.connect.request.Request`.
      build_estimator: `(RunSettings, TrainingState, Connection) -> TPUEstimator`.
      build_input_fns: `RunSettings -> modes.InputFns`.

    Raises:
      UsageError, TPUError, DataError, ModelError: a flag or the data set is invalid.
    """
    findings = connection.environment_findings(request)
    settings, state = resolve_flags.resolve(
        tpu_flags.iterations_per_loop(FLAGS.save_checkpoints_steps), use_tpu=True
    )
    local = tf.distribute.cluster_resolver.TPUClusterResolver("local")
    tpu = Connection(topology.find(FLAGS.tpu_topology), local)
    input_fns = build_input_fns(settings)

    def with_batch_size(mode, size):
        task = {"eval": "evaluation", "predict": "prediction"}.get(mode, mode)
        changed = dataclasses.replace(getattr(settings, task), batch_size=size)
        return build_estimator(dataclasses.replace(settings, **{task: changed}), state, tpu)

    def train_on_emulator(settings, state):
        with emulator.emulate(tpu.topology):
            estimator = build_estimator(settings, state, tpu)
            modes.train(estimator, settings, state, build_input_fns(settings))

    checked = {"train": input_fns.train(0)}
    # Of several hosts, one at a time evaluates and predicts; with TPU embeddings its CPU does.
    has_tables = tpu_embeddings.find_tables(settings.model, settings.params)
    if tpu.topology.num_hosts == 1 and not has_tables:
        evaluate = input_fns.evaluate(settings.evaluation.split)
        checked.update(eval=evaluate, predict=input_fns.predict)
    with _ended_by_sigterm():
        report = check_program(
            build_estimator(settings, state, tpu),
            checked,
            tpu.topology,
            compile_with_libtpu=FLAGS.check_compiler != "off",
            with_batch=with_batch_size,
            accumulate_steps=settings.train.accumulate_steps,
            findings=findings,
            memory_advice=_advise_on_memory,
            effort=compiler.FULL if FLAGS.check_compiler == "full" else compiler.QUICK,
            rehearse=(
                (lambda: _compare_wrappers(settings, train_on_emulator))
                if FLAGS.check_run_steps
                else None
            ),
        )
    print(format_text(report, color=sys.stdout.isatty()))
    if FLAGS.check_report:
        with files.atomic_write(FLAGS.check_report) as file:
            file.write(to_json(report))
    return report.status


def _advise_on_memory(mode, fits):
    """Returns the flags that make a step need less memory; see `check_program`."""
    fitting = f"--{mode}_batch_size={fits} fits; " if fits else ""
    if mode == "train":
        return f"{fitting}--accumulate_steps and --precision=bfloat16 need less"
    return f"{fitting}--precision=bfloat16 needs less"


@contextlib.contextmanager
def _ended_by_sigterm():
    """Turns SIGTERM into SystemExit, so that child processes and temporary folders are removed."""

    def stop(*_):  # a SystemExit within model_fn would be an error of it
        raise StopProgram

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except StopProgram:
        sys.exit(128 + signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


def _compare_wrappers(settings, train_on_emulator) -> Finding:
    """Trains a few steps with both wrappers; returns the difference of the variables."""

    def train_on_cpu(settings, state):
        estimator = run_cpu.build_estimator(settings, state)
        modes.train(estimator, settings, state, run_cpu.build_input_fns(settings, state))

    steps = FLAGS.check_run_steps
    print(f"training {steps} steps with run_cpu.py and on emulated cores, in temporary folders")
    difference, name = parity_check.largest_difference(
        settings, train_on_cpu, train_on_emulator, steps
    )
    message = f"after {steps} steps the largest relative difference is {difference:.1e} in '{name}'"
    if difference < 1e-4:
        return Finding(NOTE, "run", f"{message}: rounding", mode="train")
    reasons = (
        "possible causes are dropout, per-core batch norm, the kink of a ReLU, and Adam's division "
        "by gradients that are almost 0 (--params=epsilon=0.01 excludes the last)"
    )
    return Finding(WARNING, "run", f"{message}: {reasons}", mode="train")
