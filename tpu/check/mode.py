"""Checks one mode of a program: runs the stages, collects findings and what was not checked.

A stage that raises an unexpected exception is listed as not checked; the other stages run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable

import tensorflow as tf

from tpu.check import (
    batch_size,
    embeddings,
    explanations,
    export,
    graph_builder,
    hooks,
    input_throughput,
    lint,
    sizes,
    step_compiler,
)
from tpu.check.report import ModeReport
from tpu.findings import ERROR, NOTE, Finding, user_line

_ESTIMATOR_MODES = {"train": "train", "eval": "eval", "predict": "infer", "export": "infer"}


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of a check; see `check.check_program`."""

    compile_with_libtpu: bool
    with_batch: Callable | None
    accumulate_steps: int
    effort: float
    memory_advice: Callable | None


class Stages:
    """Findings of the stages of a mode.

    Attributes:
      mode: "train", "eval", "predict" or "export".
      findings: findings so far.
      not_checked: what was skipped, and why.
      unchecked: why nothing of the mode was checked; "" if something was.
      ran: names of the stages that did not fail.
    """

    def __init__(self, mode: str):
        self.mode, self.unchecked = mode, ""
        self.findings: list[Finding] = []
        self.not_checked: list[str] = []
        self.ran: set[str] = set()

    @contextlib.contextmanager
    def stage(self, name, calls_again="", other=""):
        """Lists a stage as not checked if it raises an unknown exception.

        `calls_again` is the function of the program that it calls again, "" if none; for `other`
        see `explanations.explain_second_call`.
        """
        try:
            yield
            self.ran.add(name)
        except BaseException as error:  # must not hide what other stages found
            if not explanations.is_of_program(error):
                raise
            reason = explanations.describe(error, 300)
            if calls_again and isinstance(error, tf.errors.OpError):  # of its data
                reason = explanations.explain_error(error)
            elif calls_again:
                reason = explanations.explain_second_call(error, calls_again, other)
            self.skip(f"{name}: {reason}")

    def add_error(self, error):
        """Adds the finding of an exception of the program."""
        place = explanations.place_of(error)
        self.add(ERROR, "graph", explanations.explain_error(error), place)

    def skip(self, reason):
        """Adds what was skipped, and why."""
        self.not_checked.append(f"{self.mode}, {reason}")

    def add(self, level, code, message, place=""):
        """Adds a finding."""
        self.findings.append(Finding(level, code, message, place, self.mode))


class ModeChecker:
    """Runs the stages of a check for one mode.

    Attributes:
      stages: what they found.
    """

    def __init__(self, estimator, mode, input_fn, tpu_topology, options: Options, hooks=()):
        """`hooks` are those of the call."""
        self._mode, self._estimator, self._topology = mode, estimator, tpu_topology
        self._hooks = hooks
        self._checked = graph_builder.CheckedMode(
            estimator, input_fn, _ESTIMATOR_MODES[mode], tpu_topology
        )
        self.stages = Stages(mode)
        self._compiler = step_compiler.StepCompiler(self.stages, self._checked, options)

    def check(self) -> ModeReport | None:
        """Returns the report of the mode; None if it does not run on a TPU."""
        started = time.monotonic()
        if self._mode == "export":
            outputs = self._check_export()
            return ModeReport(0, time.monotonic() - started, outputs=outputs)
        with self._estimator._ctx.with_mode(self._checked.mode) as context:
            if context._is_running_on_cpu(False):
                reason = "eval_on_tpu=False" if self._estimator._ctx._use_tpu else "use_tpu=False"
                self.stages.not_checked.append(f"{self._mode}: it runs on a CPU ({reason})")
                return None
        measured = compiled = step_time = throughput = None
        tables = ()
        per_core = self._batch_per_core()
        built = self._compiler.build()
        if built is None and not self.stages.unchecked:
            self.stages.skip("everything else: the step cannot be built")
        if built is not None:
            with self.stages.stage("hooks"):
                self._check_hooks(built)
            with self.stages.stage("lint"):
                cores = self._estimator.config.tpu_config.num_cores_per_replica or 1
                num_replicas = max(1, self._topology.num_cores // cores)
                on_pjrt = not self._topology.has_infeed
                merges_summaries = built.spec.scaffold.summary_op is None
                self.stages.findings += lint.apply_rules(
                    built.program,
                    self._checked.mode,
                    per_core,
                    num_replicas,
                    on_pjrt,
                    merges_summaries,
                )
            with self.stages.stage("batch size of input_fn", "input_fn", "with another batch size"):
                self._check_batch_size(built.program.infeed, per_core)
            with self.stages.stage("sizes"):
                measured = sizes.measure(built.graph, built.program)
                message = sizes.explain_variables(measured, self._topology.hbm_gib)
                if message:
                    self.stages.add(ERROR, "hbm", message)
            if self._compiler.can_lower():
                with self.stages.stage("TPU compiler"):
                    flops = measured.flops if measured else 0
                    compiled, step_time = self._compiler.compile(built, per_core, flops)
            if not self.stages.ran & {"lint", "sizes", step_compiler.LOWERED}:
                self.stages.unchecked = "lint, sizes and the TPU compiler failed"
        has_embeddings = self._estimator._ctx._embedding_config_spec is not None
        if not self._topology.has_infeed:
            self._check_limits_of_pjrt(has_embeddings)
        elif has_embeddings:
            tables = self._check_embeddings(compiled)
        if step_time and self._mode == "train":
            throughput = self._measure_input(step_time)
        return ModeReport(
            batch_size=per_core,
            seconds=time.monotonic() - started,
            sizes=measured,
            compiled=compiled,
            step_time=step_time,
            host_examples_per_second=throughput,
            outputs=self._outputs(built),
            global_batch_size=self._global_batch(),
            embeddings=tables,
        )

    # ---- Stages ----

    def _check_hooks(self, built):
        """Adds a finding for each tensor of the TPU loop that a hook reads or keeps."""
        spec = built.spec
        of_spec = (*spec.training_hooks, *spec.evaluation_hooks, *spec.prediction_hooks)
        for level, message, op in hooks.find_faults((*of_spec, *self._hooks), built.graph):
            self.stages.add(level, "hook", message, user_line(op))

    def _check_batch_size(self, infeed, per_core):
        """Adds a finding if input_fn batches by another size than TPUEstimator's."""
        if batch_size.is_suspicious(infeed, per_core):
            mistake = batch_size.find_mistake(self._checked)
            if mistake:
                self.stages.add(mistake[0], "batch", mistake[1])

    def _check_export(self):
        """Builds the graphs of export_saved_model; returns the outputs of the SavedModel."""
        try:
            graphs, outputs = export.build(self._checked)
        except BaseException as error:  # any exception of the program is a finding
            if not explanations.is_of_program(error):
                raise
            self.stages.add_error(error)
            return None
        if not graphs:
            self.stages.skip(
                "the lint: export_to_tpu=False, no part of the SavedModel runs on a TPU"
            )
        with self.stages.stage("lint of the graph for TPUs"):
            for code, message, op in export.find_faults(graphs):
                self.stages.add(ERROR, code, message, user_line(op))
        return outputs

    def _check_limits_of_pjrt(self, has_embeddings):
        """Adds errors for what PJRT devices do not support, except for what the lint sees."""
        cores = self._estimator.config.tpu_config.num_cores_per_replica or 1
        for is_used, message in (
            (has_embeddings, "TPU embeddings. Use tf.nn.embedding_lookup on a variable"),
            (cores > 1, f"model parallelism (num_cores_per_replica={cores}). Remove it"),
        ):
            if is_used:
                self.stages.add(ERROR, "pjrt", f"PJRT devices do not support {message}")

    def _check_embeddings(self, compiled):
        """Returns the `TableUse` of each table; adds an error if the tables do not fit."""
        self.stages.skip("TPU embeddings: the time of lookups and updates")
        tables = ()
        with self.stages.stage("TPU embeddings"):
            tables = embeddings.find_tables(self._checked)
            step_bytes = compiled.peak_bytes if compiled and compiled.fits else 0
            message = embeddings.explain_memory(tables, self._topology, step_bytes)
            if message:
                self.stages.add(ERROR, "hbm", message)
        with self.stages.stage("ids of TPU embeddings", "input_fn"):
            tables = embeddings.count_ids(tables, self._checked)
        return tuple(tables)

    def _measure_input(self, step_time):
        """Returns examples/s of input_fn here; adds a note if a TPU host consumes more."""
        supply = None
        with self.stages.stage("speed of input_fn", "input_fn"):
            supply = input_throughput.measure(self._checked)
        if supply is None:  # the data may be readable on the TPU host only
            return None
        demand = self._global_batch() / self._topology.num_hosts / step_time.seconds
        if demand > supply:
            message = (
                f"the cores of a host can consume {demand:,.0f} examples/s, but input_fn delivers "
                f"{supply:,.0f} on this machine: the TPU waits for input unless its host is faster"
            )
            self.stages.add(NOTE, "host", message)
        return supply

    # ---- Facts about the mode ----

    def _batch_per_core(self):
        """Returns the batch of one core; 0 if the configuration is invalid."""
        try:
            with self._checked.context() as context:
                return context.batch_size_for_model_fn or 0
        except Exception:  # reported by the build
            return 0

    def _global_batch(self):
        with self._estimator._ctx.with_mode(self._checked.mode) as context:
            return context.global_batch_size or 0

    def _outputs(self, built):
        """Returns what the mode returns to its caller: see `ModeReport.outputs`."""
        if built is None:
            return None
        if self._mode == "eval":
            return tuple(sorted(built.spec.eval_metric_ops or {}))
        if self._mode == "predict" and isinstance(built.spec.predictions, dict):
            return export.describe(built.spec.predictions)
        return None
