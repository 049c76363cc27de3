"""Checks one mode of a program: runs the stages, collects findings and what was not checked.

A stage that raises an unexpected exception is listed as not checked; the other stages run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Callable

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

from tpu.check import (
    batch_size,
    compiler,
    cost,
    embeddings,
    explanations,
    export,
    graph_builder,
    hlo,
    input_throughput,
    kernels,
    lint,
    sizes,
)
from tpu.check.compiler import CompilerUnavailableError
from tpu.check.report import ModeReport
from tpu.findings import ERROR, NOTE, WARNING, Finding, user_line

_ESTIMATOR_MODES = {"train": "train", "eval": "eval", "predict": "infer", "export": "infer"}
# Errors after which XLA surely fails as well.
_FATAL_CODES = (
    "op", "dtype", "string", "py_func", "print", "summary", "placeholder", "capture", "hbm"
)  # fmt: skip
_FUNCTIONS = "input_fn or model_fn"  # what a build calls
_LOWERED = "XLA"  # stage
_MEMORY_WARNING = 0.9  # share of a core's memory


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of a check; see `check.check_program`."""

    compile_with_libtpu: bool
    with_batch: Callable | None
    accumulate_steps: int
    effort: float
    memory_advice: Callable | None


class ModeChecker:
    """Runs the stages of a check for one mode.

    Attributes:
      findings: findings so far.
      not_checked: what was skipped, and why.
      unchecked: why nothing of the mode was checked; "" if something was.
    """

    def __init__(self, estimator, mode, input_fn, tpu_topology, options: Options):
        self._estimator, self._mode, self._input_fn = estimator, mode, input_fn
        self._topology, self._options = tpu_topology, options
        self._estimator_mode = _ESTIMATOR_MODES[mode]
        self.findings: list[Finding] = []
        self.not_checked: list[str] = []
        self.unchecked = ""
        self._arguments = (estimator, input_fn, self._estimator_mode, tpu_topology)
        self._ran: set[str] = set()  # names of the stages that did not fail

    def check(self) -> ModeReport | None:
        """Returns the report of the mode; None if it does not run on a TPU."""
        started = time.monotonic()
        if self._mode == "export":
            outputs = self._check_export()
            return ModeReport(0, time.monotonic() - started, outputs=outputs)
        with self._estimator._ctx.with_mode(self._estimator_mode) as context:
            if context._is_running_on_cpu(False):
                reason = "eval_on_tpu=False" if self._estimator._ctx._use_tpu else "use_tpu=False"
                self.not_checked.append(f"{self._mode}: it runs on a CPU ({reason})")
                return None
        measured = compiled = step_time = throughput = None
        per_core = self._batch_per_core()
        built = self._build()
        if built is not None:
            with self._stage("hooks"):
                self._check_hooks(built)
            with self._stage("lint"):
                self.findings += lint.apply_rules(
                    built.program, self._estimator_mode, per_core, self._num_replicas()
                )
            with self._stage("batch size of input_fn", "input_fn", "with another batch size"):
                self._check_batch_size(built.program.infeed, per_core)
            with self._stage("sizes"):
                measured = sizes.measure(built.graph, built.program)
                message = sizes.explain_variables(measured, self._topology.hbm_gib)
                if message:
                    self._add(ERROR, "hbm", message, "")
            if self._can_lower():
                with self._stage("TPU compiler"):
                    flops = measured.flops if measured else 0
                    compiled, step_time = self._compile_step(per_core, flops, built)
            if not self._ran & {"lint", "sizes", _LOWERED}:
                self.unchecked = "lint, sizes and the TPU compiler failed"
        tables = self._check_embeddings(compiled) if self._uses_embeddings() else ()
        if step_time and self._mode == "train":
            throughput = self._measure_input(step_time)
        return ModeReport(
            per_core,
            time.monotonic() - started,
            measured,
            compiled,
            step_time,
            throughput,
            self._outputs(built),
            self._global_batch(),
            tables,
        )

    # ---- Stages ----

    def _build(self):
        """Returns `graph_builder.build_once`; None after adding a finding, or setting `unchecked`.

        The functions of the program are called once. If the program has control flow of version 2
        and its step cannot be built with that of version 1, they are called again.
        """
        try:
            return graph_builder.build_once(*self._arguments)
        except BaseException as error:  # any exception of the program is a finding
            if not explanations.is_of_program(error):
                raise
            if not self._may_need_version_2(error):
                self._add_error(error)
                return None
            first = error
        try:
            return graph_builder.build_once(*self._arguments, control_flow_v2=True)
        except BaseException as error:
            second = self._cause_of_second_error(first, error)
            if second is None:
                self.unchecked = explanations.explain_second_call(error, _FUNCTIONS)
            else:
                self._add_error(second)
        return None

    def _may_need_version_2(self, error):
        """Returns True if the step may be accepted with version 2, which accepts more."""
        if not control_flow_util.ENABLE_CONTROL_FLOW_V2 or not graph_builder.is_in_step(error):
            return False
        # TPUEstimator checks only version 1.
        return not explanations.is_estimator_error(error)

    def _cause_of_second_error(self, first, second):
        """Returns the error of the program; None if it comes from calling the program again.

        Args:
          first: what the build with version 1 raised; None if it raised nothing.
          second: what the build with version 2 raised.
        """
        if not explanations.is_of_program(second):
            raise second
        if first is not None and _is_same(first, second):
            return first
        try:  # the build with version 1 again: without state it ends as before
            graph_builder.build_once(*self._arguments)
        except BaseException as third:
            if not explanations.is_of_program(third):
                raise
            is_repeatable = first is not None and _is_same(first, third)
        else:
            is_repeatable = first is None
        return second if is_repeatable else None

    def _check_hooks(self, built):
        """Adds an error for each tensor of the TPU loop that a hook of the model_fn reads."""
        spec = built.spec
        for hook in (*spec.training_hooks, *spec.evaluation_hooks, *spec.prediction_hooks):
            tensors = getattr(hook, "_tensors", None)
            for tensor in tensors.values() if isinstance(tensors, dict) else ():
                if isinstance(tensor, tf.Tensor) and not built.graph.is_fetchable(tensor):
                    message = (
                        f"{type(hook).__name__} reads '{tensor.name}' inside the TPU loop. Pass it "
                        "to host_call instead"
                    )
                    self._add(ERROR, "hook", message, user_line(tensor.op))

    def _check_batch_size(self, infeed, per_core):
        """Adds a finding if input_fn batches by another size than TPUEstimator's."""
        if batch_size.is_suspicious(infeed, per_core):
            mistake = batch_size.find_mistake(*self._arguments)
            if mistake:
                self._add(mistake[0], "batch", mistake[1], "")

    def _check_export(self):
        """Builds the graphs of export_saved_model; returns the outputs of the SavedModel."""
        try:
            graphs, outputs = export.build(self._estimator, self._input_fn, self._topology)
        except BaseException as error:  # any exception of the program is a finding
            if not explanations.is_of_program(error):
                raise
            self._add_error(error)
            return None
        if not graphs:
            self._skip("the lint: export_to_tpu=False, no part of the SavedModel runs on a TPU")
        with self._stage("lint of the graph for TPUs"):
            for code, message, op in export.find_faults(graphs):
                self._add(ERROR, code, message, user_line(op))
        return outputs

    def _check_embeddings(self, compiled):
        """Returns the `TableUse` of each table; adds an error if the tables do not fit."""
        self._skip("TPU embeddings: the time of lookups and updates")
        tables = ()
        arguments = (self._estimator_mode, self._topology)
        with self._stage("TPU embeddings"):
            tables = embeddings.find_tables(self._estimator, *arguments)
            step_bytes = compiled.peak_bytes if compiled and compiled.fits else 0
            message = embeddings.explain_memory(tables, self._topology, step_bytes)
            if message:
                self._add(ERROR, "hbm", message, "")
        with self._stage("ids of TPU embeddings", "input_fn"):
            tables = embeddings.count_ids(tables, self._estimator, self._input_fn, *arguments)
        return tuple(tables)

    def _measure_input(self, step_time):
        """Returns examples/s of input_fn here; adds a note if a TPU host consumes more."""
        supply = None
        with self._stage("speed of input_fn", "input_fn"):
            supply = input_throughput.measure(*self._arguments)
        if supply is None:  # the data may be readable on the TPU host only
            return None
        demand = self._global_batch() / self._topology.num_hosts / step_time.seconds
        if demand > supply:
            message = (
                f"the cores of a host can consume {demand:,.0f} examples/s, but input_fn delivers "
                f"{supply:,.0f} on this machine: the TPU waits for input unless its host is faster"
            )
            self._add(NOTE, "host", message, "")
        return supply

    def _can_lower(self):
        """Returns whether XLA can lower the step; says why not."""
        fatal = {f.code for f in self.findings if f.level == ERROR and f.code in _FATAL_CODES}
        if fatal:
            codes = ", ".join(sorted(fatal))
            self._skip(f"XLA and the TPU compiler: they would fail on the errors ({codes})")
            return False
        cores = self._estimator.config.tpu_config.num_cores_per_replica or 1
        if cores > 1:
            self._skip(
                f"XLA and the TPU compiler: num_cores_per_replica={cores} (model parallelism)"
            )
            return False
        return True

    def _compile_step(self, per_core, flops, built):
        """Lowers a step with XLA and compiles it with libtpu if possible.

        Returns:
          (Compiled or None, StepTime or None).
        """
        line_of_op = functools.partial(_user_line_by_name, built.program)
        if built.program.has_control_flow:
            built = self._build_with_version_2()
            if built is None:
                return None, None
        try:
            hlo_module = hlo.lower(built.graph, built.program)
            self._ran.add(_LOWERED)
        except NotImplementedError as error:
            self._skip(f"XLA and the TPU compiler: {error}")
            return None, None
        except Exception as error:  # an error of XLA is a finding
            if not explanations.is_xla_error(error):
                raise
            missing = explanations.missing_kernels(error)
            on_tpu = [kind for kind in missing if kernels.has_kernel(kind)]
            if missing and len(on_tpu) == len(missing):
                self._skip(f"XLA and the TPU compiler: {hlo.missing_kernel(on_tpu[0])}")
                return None, None
            for message, place in explanations.explain_xla_error(error, line_of_op):
                self._add(ERROR, "xla", message, place)
            return None, None
        if not self._options.compile_with_libtpu:
            self.not_checked.append("TPU compiler: skipped")
            return None, None
        if not self._topology.hbm_gib:
            self.not_checked.append(f"TPU compiler: unknown slice '{self._topology.name}'")
            return None, None
        try:
            compiled = self._run_libtpu(hlo_module, per_core)
        except CompilerUnavailableError as error:
            self.not_checked.append(f"TPU compiler: {error}")
            return None, None
        if not compiled.fits or not self._topology.has_infeed:
            return compiled, None
        generation = self._topology.generation
        return compiled, cost.estimate_step_time(compiled.optimized, generation, flops, line_of_op)

    def _build_with_version_2(self):
        """Returns the step for XLA on a CPU, which compiles loops and conditionals as functions.

        Returns None after adding a finding or a reason if the program cannot be built again.
        """
        try:
            return graph_builder.build_once(*self._arguments, control_flow_v2=True)
        except BaseException as error:
            cause = self._cause_of_second_error(None, error)
            if cause is None:
                reason = explanations.explain_second_call(error, _FUNCTIONS)
                self._skip(f"XLA and the TPU compiler: {reason}")
            elif control_flow_util.ENABLE_CONTROL_FLOW_V2:  # that of the program
                self._add_error(cause)
            else:
                reason = explanations.describe_with_place(cause)
                self._skip(
                    "XLA and the TPU compiler: the step cannot be built with control flow of "
                    f"version 2, which XLA on a CPU needs: {reason}"
                )
        return None

    def _run_libtpu(self, hlo_module, per_core):
        target, effort = compiler.get_target(self._topology), self._options.effort
        compiled = compiler.compile_hlo(hlo_module, target, effort)
        if compiled.out_of_memory and effort == compiler.QUICK:
            try:  # full effort may need less memory
                compiled = compiler.compile_hlo(hlo_module, target, compiler.FULL)
            except CompilerUnavailableError as error:
                self._skip(f"compilation with full effort: {error}")
        if compiled.out_of_memory:
            fits = self._largest_batch(per_core) if self._options.with_batch else 0
            advise = self._options.memory_advice or explanations.advise_on_memory
            message = explanations.explain_out_of_memory(compiled, advise(self._mode, fits))
            self._add(ERROR, "hbm", message, "")
        elif not compiled.fits:
            self._add(ERROR, "tpu-compiler", compiled.error[:400], "")
        elif compiled.peak_bytes > _MEMORY_WARNING * self._topology.hbm_gib * 2**30:
            message = (
                f"needs more than {_MEMORY_WARNING:.0%} of a core's memory; the older compiler of "
                "a TPU VM may need more"
            )
            self._add(WARNING, "hbm", message, "")
        return compiled

    def _largest_batch(self, too_large):
        """Returns the largest global batch size that fits; 0 if none was found.

        Searches multiples of 8 per core, starting below `too_large` per core.
        """
        target, cores = compiler.get_target(self._topology), self._topology.num_cores
        is_training = self._mode == "train"
        unit = math.lcm(8, self._options.accumulate_steps) if is_training else 8
        fits, fails = 0, -(-too_large // unit)
        while fails - fits > 1:
            middle = (fits + fails) // 2
            try:
                estimator = self._options.with_batch(self._mode, unit * middle * cores)
                step = graph_builder.build_step(
                    estimator, self._input_fn, self._estimator_mode, self._topology, True
                )
                compiled = compiler.compile_hlo(hlo.lower(*step), target, compiler.QUICK)
            except Exception as error:  # does not change that the requested batch does not fit
                self._skip(f"the largest batch that fits: {error}")
                break
            if compiled.fits:
                fits = middle
            else:
                fails = middle
        return unit * fits * cores

    # ---- Facts about the mode ----

    def _batch_per_core(self):
        """Returns the batch of one core; 0 if the configuration is invalid."""
        try:
            on_slice = graph_builder.on_slice(self._estimator, self._topology)
            with on_slice, self._estimator._ctx.with_mode(self._estimator_mode) as context:
                return context.batch_size_for_model_fn or 0
        except Exception:  # reported by `_build`
            return 0

    def _global_batch(self):
        with self._estimator._ctx.with_mode(self._estimator_mode) as context:
            return context.global_batch_size or 0

    def _num_replicas(self):
        cores_per_replica = self._estimator.config.tpu_config.num_cores_per_replica or 1
        return max(1, self._topology.num_cores // cores_per_replica)

    def _uses_embeddings(self):
        return self._estimator._ctx._embedding_config_spec is not None

    def _outputs(self, built):
        """Returns what the mode returns to its caller: see `ModeReport.outputs`."""
        if built is None:
            return None
        if self._mode == "eval":
            return tuple(sorted(built.spec.eval_metric_ops or {}))
        if self._mode == "predict" and isinstance(built.spec.predictions, dict):
            return {
                name: (tensor.dtype.name, tuple(tensor.shape.as_list()[1:]))
                for name, tensor in built.spec.predictions.items()
            }
        return None

    @contextlib.contextmanager
    def _stage(self, name, calls_again="", other=""):
        """Lists a stage as not checked if it raises an unknown exception.

        Args:
          name: name of the stage.
          calls_again: the function of the program that it calls again; "" if none.
          other: see `explanations.explain_second_call`.
        """
        try:
            yield
            self._ran.add(name)
        except BaseException as error:  # must not hide what other stages found
            if not explanations.is_of_program(error):
                raise
            reason = explanations.describe(error, 300)
            if calls_again and isinstance(error, tf.errors.OpError):  # of its data
                reason = explanations.explain_error(error)
            elif calls_again:
                reason = explanations.explain_second_call(error, calls_again, other)
            self._skip(f"{name}: {reason}")

    def _add_error(self, error):
        place = explanations.place_of(error)
        self._add(ERROR, "graph", explanations.explain_error(error), place)

    def _skip(self, reason):
        self.not_checked.append(f"{self._mode}, {reason}")

    def _add(self, level, code, message, place):
        self.findings.append(Finding(level, code, message, place, self._mode))


def _is_same(a, b):
    """Returns True if two exceptions say the same of the same line."""
    first, second = (
        (type(error), explanations.explain_error(error), explanations.place_of(error))
        for error in (a, b)
    )
    return first == second


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
