"""Checks, without a TPU, that a TPUEstimator program compiles, fits and is correct on a slice.

    from tpu.check import check_program, format_text

    report = check_program(estimator, {"train": train_input_fn, "eval": eval_input_fn}, "v3-8")
    print(format_text(report))

The stages: `graph_builder` lets TPUEstimator build its graph, `lint` applies rules to it, `sizes`
measures it, `hlo` lowers it with XLA, `compiler` compiles it with libtpu, `cost` models the step
time, `input_throughput` measures input_fn.
"""

from __future__ import annotations

import functools
import math
import time
import traceback
from collections.abc import Callable, Iterable, Mapping

import tensorflow as tf

from tpu.check import (
    compiler,
    cost,
    explanations,
    graph_builder,
    hlo,
    input_throughput,
    lint,
    sizes,
)
from tpu.check.compiler import CompilerUnavailableError
from tpu.check.report import ModeReport, Report
from tpu.connect import topology
from tpu.connect.topology import Topology
from tpu.findings import ERROR, NOTE, WARNING, Finding, user_line, user_line_in

_ESTIMATOR_MODES = {"train": "train", "eval": "eval", "predict": "infer"}
# Lint errors that would fail again in XLA and in the compiler.
_FATAL_CODES = ("op", "dtype", "string", "py_func", "print", "summary", "placeholder", "capture")
_MEMORY_WARNING = 0.9  # share of a core's memory


def check_program(
    estimator,
    input_fns: Mapping[str, Callable],
    tpu_topology: Topology | str,
    compile_with_libtpu: bool = True,
    with_batch: Callable | None = None,
    accumulate_steps: int = 1,
    findings: Iterable[Finding] = (),
    effort: float = compiler.QUICK,
    rehearse: Callable[[], Finding] | None = None,
) -> Report:
    """Checks the modes of `input_fns`.

    Args:
      estimator: a `TPUEstimator(use_tpu=True)`, made with any resolver or master.
      input_fns: `{mode: input_fn}`; modes are "train", "eval" and "predict".
      tpu_topology: the slice, or its name.
      compile_with_libtpu: whether to run the TPU compiler, if it is installed.
      with_batch: `(mode, global batch size) -> estimator` with another batch size; used to search
        for the largest batch that fits.
      accumulate_steps: micro-batches per training step; only its multiples are tried as batches.
      findings: findings of earlier stages, added to the report.
      effort: `compiler.QUICK`, or `compiler.FULL` as in a TPU's runtime, for step times that can be
        compared.
      rehearse: trains a few steps on emulated cores; called if the training graph was built.
    """
    if isinstance(tpu_topology, str):
        tpu_topology = topology.find(tpu_topology, any_generation=True)
    checker = _Checker(
        estimator, tpu_topology, compile_with_libtpu, with_batch, accumulate_steps, effort
    )
    checker.check_generation()
    modes = {mode: checker.check_mode(mode, input_fn) for mode, input_fn in input_fns.items()}
    if rehearse is not None:
        checker.run_rehearsal(rehearse, modes.get("train"))
    order = {ERROR: 0, WARNING: 1, NOTE: 2}
    found = sorted([*findings, *checker.findings], key=lambda finding: order[finding.level])
    reports = {mode: report for mode, report in modes.items() if report is not None}
    return Report(tpu_topology, tuple(found), reports, tuple(dict.fromkeys(checker.not_checked)))


class _Checker:
    """Runs the stages of a check and collects their findings."""

    def __init__(
        self, estimator, tpu_topology, compile_with_libtpu, with_batch, accumulate_steps, effort
    ):
        self._estimator = estimator
        self._topology = tpu_topology
        self._compile = compile_with_libtpu
        self._with_batch = with_batch
        self._accumulate_steps = accumulate_steps
        self._effort = effort
        self.findings: list[Finding] = []
        self.not_checked: list[str] = []

    def check_generation(self):
        """Adds a warning if TPUEstimator cannot run on this generation."""
        if not self._topology.has_infeed:
            message = (
                f"TPUEstimator cannot run on a {self._topology.name}, which has no infeed. Only "
                "the compiler's figures of a step apply"
            )
            self._add(WARNING, "generation", message, "", "")

    def check_mode(self, mode, input_fn):
        """Returns the report of one mode; None if TPUEstimator does not support it on the slice."""
        if mode != "train" and self._topology.num_hosts > 1:
            self.not_checked.append(f"{mode}: TPUEstimator supports it on one host only")
            return None
        started = time.monotonic()
        estimator_mode = _ESTIMATOR_MODES[mode]
        with self._estimator._ctx.with_mode(estimator_mode) as context:
            batch_size = (context.global_batch_size or 0) // self._topology.num_cores
        measured = compiled = step_time = throughput = None
        step = self._build_step(mode, estimator_mode, input_fn)
        if step is not None:
            graph, program = step
            found = lint.apply_rules(program, estimator_mode, batch_size)
            self.findings += found
            measured = sizes.measure(graph, program)
            if not any(finding.code in _FATAL_CODES for finding in found):
                compiled, step_time = self._compile_step(
                    mode, input_fn, batch_size, measured.flops, step
                )
        if step_time and mode == "train":
            throughput = self._measure_input(mode, input_fn, batch_size, step_time)
        seconds = time.monotonic() - started
        return ModeReport(batch_size, seconds, measured, compiled, step_time, throughput)

    def _build_step(self, mode, estimator_mode, input_fn):
        """Returns `graph_builder.build_step`, or None after adding a finding for an error."""
        arguments = (self._estimator, input_fn, estimator_mode, self._topology)
        try:
            built = graph_builder.build(*arguments)
            step = graph_builder.build_step(*arguments)
        except Exception as error:  # any exception of the user's program is a finding
            place = user_line_in(traceback.extract_tb(error.__traceback__))
            self._add(ERROR, "graph", explanations.explain(error), mode, place)
            return None
        for hook in built.spec.training_hooks or ():
            tensors = getattr(hook, "_tensors", None)
            for tensor in tensors.values() if isinstance(tensors, dict) else ():
                if isinstance(tensor, tf.Tensor) and not built.graph.is_fetchable(tensor):
                    message = (
                        f"{type(hook).__name__} reads '{tensor.name}' inside the TPU loop. Pass it "
                        "to host_call instead"
                    )
                    self._add(ERROR, "hook", message, mode, user_line(tensor.op))
        return step

    def run_rehearsal(self, rehearse, train_report):
        """Adds the finding of `rehearse`, if the training graph was built."""
        if train_report is None or train_report.sizes is None:
            self.not_checked.append("rehearsal: the training graph could not be built")
            return
        try:
            self.findings.append(rehearse())
        except Exception as error:  # any exception of the user's program is a finding
            place = user_line_in(traceback.extract_tb(error.__traceback__))
            message = f"the rehearsal failed: {explanations.explain(error)}"
            self._add(ERROR, "run", message, "train", place)

    def _measure_input(self, mode, input_fn, batch_size, step_time):
        """Returns examples/s of input_fn here; adds a note if a TPU host consumes more."""
        try:
            supply = input_throughput.measure(
                self._estimator, input_fn, _ESTIMATOR_MODES[mode], self._topology
            )
        except Exception as error:  # the data may be readable on the TPU host only
            self.not_checked.append(f"{mode}, speed of input_fn: {explanations.explain(error)}")
            return None
        demand = batch_size * self._topology.cores_per_host / step_time.seconds
        if demand > supply:
            message = (
                f"the cores of a host can consume {demand:,.0f} examples/s, but input_fn delivers "
                f"{supply:,.0f} on this machine: the TPU waits for input unless its host is faster"
            )
            self._add(NOTE, "host", message, mode, "")
        return supply

    def _compile_step(self, mode, input_fn, batch_size, flops, step):
        """Lowers a step with XLA and compiles it with libtpu if possible.

        Returns:
          (Compiled or None, StepTime or None).
        """
        line_of_op = functools.partial(_user_line_by_name, step[1])
        try:
            if step[1].has_control_flow:
                # XLA on a CPU compiles loops and conditionals only as functions (version 2).
                step = graph_builder.build_step(
                    self._estimator, input_fn, _ESTIMATOR_MODES[mode], self._topology, True
                )
            hlo_module = hlo.lower(*step)
        except NotImplementedError as error:
            self.not_checked.append(f"{mode}, XLA: {error}")
            return None, None
        except Exception as error:  # an error of XLA is a finding
            for message, place in explanations.explain_xla_error(error, line_of_op):
                self._add(ERROR, "xla", message, mode, place)
            return None, None
        if not self._compile:
            self.not_checked.append("TPU compiler: skipped (--check_compiler=off)")
            return None, None
        if not self._topology.hbm_gib:
            self.not_checked.append(f"TPU compiler: unknown slice '{self._topology.name}'")
            return None, None
        try:
            compiled = self._run_libtpu(hlo_module, mode, input_fn, batch_size)
        except CompilerUnavailableError as error:
            self.not_checked.append(f"TPU compiler: {error}")
            return None, None
        if not compiled.fits or not self._topology.has_infeed:
            return compiled, None
        generation = self._topology.generation
        return compiled, cost.estimate_step_time(compiled.optimized, generation, flops, line_of_op)

    def _run_libtpu(self, hlo_module, mode, input_fn, batch_size):
        target = compiler.get_target(self._topology)
        compiled = compiler.compile_hlo(hlo_module, target, self._effort)
        if compiled.out_of_memory and self._effort == compiler.QUICK:
            try:  # full effort may need less memory
                compiled = compiler.compile_hlo(hlo_module, target, compiler.FULL)
            except CompilerUnavailableError as error:
                self.not_checked.append(f"{mode}, compilation with full effort: {error}")
        if compiled.out_of_memory:
            fits = self._largest_batch(mode, input_fn, batch_size) if self._with_batch else None
            message = explanations.explain_out_of_memory(compiled, mode, fits)
            self._add(ERROR, "hbm", message, mode, "")
        elif not compiled.fits:
            self._add(ERROR, "tpu-compiler", compiled.error[:400], mode, "")
        elif compiled.peak_bytes > _MEMORY_WARNING * self._topology.hbm_gib * 2**30:
            message = (
                f"needs more than {_MEMORY_WARNING:.0%} of a core's memory; the older compiler of "
                "a TPU VM may need more"
            )
            self._add(WARNING, "hbm", message, mode, "")
        return compiled

    def _largest_batch(self, mode, input_fn, too_large):
        """Returns the largest global batch size that fits; 0 if none was found.

        Searches multiples of 8 per core, starting below `too_large` per core.
        """
        target, cores = compiler.get_target(self._topology), self._topology.num_cores
        unit = math.lcm(8, self._accumulate_steps) if mode == "train" else 8
        fits, fails = 0, -(-too_large // unit)
        while fails - fits > 1:
            middle = (fits + fails) // 2
            try:
                estimator = self._with_batch(mode, unit * middle * cores)
                step = graph_builder.build_step(
                    estimator, input_fn, _ESTIMATOR_MODES[mode], self._topology, True
                )
                hlo_module = hlo.lower(*step)
                compiled = compiler.compile_hlo(hlo_module, target, compiler.QUICK)
            except Exception as error:  # does not change that the requested batch does not fit
                self.not_checked.append(f"{mode}, the largest batch that fits: {error}")
                break
            if compiled.fits:
                fits = middle
            else:
                fails = middle
        return unit * fits * cores

    def _add(self, level, code, message, mode, place):
        self.findings.append(Finding(level, code, message, place, mode))


def _user_line_by_name(program, name):
    """Returns "file:line" of an operation; inside functions, only the end of its name matches."""
    parts = name.split("/")
    for first in range(max(1, len(parts) - 1)):
        end = "/" + "/".join(parts[first:])
        named = [op for other, op in program.operations.items() if f"/{other}".endswith(end)]
        places = {user_line(op) for op in named}
        if places:
            return places.pop() if len(places) == 1 else ""
    return ""
