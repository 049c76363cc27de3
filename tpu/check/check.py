"""Will this program compile, fit and be right on that TPU? Answered without one.

Works on anybody's TPUEstimator:

    report = check.check(estimator, {"train": train_input_fn, "eval": eval_input_fn}, "v3-8")
    print(check_report.text(report))
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
import traceback
from collections.abc import Callable, Iterable, Mapping

import tensorflow as tf

from tpu.check import compiler, cost, explanations, feeding, graph_builder, hlo, lint, sizes
from tpu.check.compiler import Compiled, NotChecked
from tpu.check.cost import StepTime
from tpu.check.sizes import Sizes
from tpu.connect import topology
from tpu.connect.topology import Topology
from tpu.findings import ERROR, NOTE, WARNING, Finding, where, where_in

_MODES = {"train": "train", "eval": "eval", "predict": "infer"}
# Codes after which compiling would only say the same again.
_HOPELESS = ("op", "dtype", "string", "py_func", "print", "summary", "placeholder", "capture")
_NEAR_LIMIT = 0.9


@dataclasses.dataclass(frozen=True)
class ModeReport:
    """What was found out about one mode.

    Attributes:
      batch_size: of one core.
      seconds: that the check took.
      sizes: None if the graph could not be built.
      compiled: None if the compiler was not asked.
      step_time: None if it did not compile, or its cost is not known.
      host_examples_per_second: what input_fn gave on this machine; None if it was not measured.
    """

    batch_size: int
    seconds: float
    sizes: Sizes | None = None
    compiled: Compiled | None = None
    step_time: StepTime | None = None
    host_examples_per_second: float | None = None


@dataclasses.dataclass(frozen=True)
class Report:
    """What was found out.

    Attributes:
      topology: the slice.
      findings: all of them, errors first.
      modes: `{mode: ModeReport}`.
      not_checked: what could not be, and why.
    """

    topology: Topology
    findings: tuple[Finding, ...]
    modes: dict[str, ModeReport]
    not_checked: tuple[str, ...]

    @property
    def num_errors(self) -> int:
        """Findings that keep the program from running, or from being right."""
        return self._number_of(ERROR)

    @property
    def num_warnings(self) -> int:
        """Findings that may do so, or make it slow."""
        return self._number_of(WARNING)

    def _number_of(self, level):
        return sum(finding.level == level for finding in self.findings)


def check(
    estimator,
    input_fns: Mapping[str, Callable],
    tpu_topology: Topology | str,
    compile_with_libtpu: bool = True,
    with_batch: Callable | None = None,
    batch_parts: int = 1,
    findings: Iterable[Finding] = (),
    effort: float = compiler.QUICK,
    rehearse: Callable[[], Finding] | None = None,
) -> Report:
    """Checks the modes that `input_fns` has.

    Args:
      estimator: a `TPUEstimator(use_tpu=True)`, made with a resolver or master of any kind.
      input_fns: `{"train", "eval" or "predict": input_fn}`.
      tpu_topology: the slice, or its name.
      compile_with_libtpu: whether to ask the TPU compiler, if it is installed.
      with_batch: `(mode, global batch size) -> estimator`, the same with another batch; to find
        the largest one that fits, where the given one does not.
      batch_parts: into so many a core's training batch is cut, so only its multiples are tried.
      findings: of earlier stages, to be a part of the report.
      effort: of the compiler: `compiler.QUICK`, or `compiler.FULL`, which a TPU's runtime uses and
        whose step times are the ones to compare with others'.
      rehearse: trains a few steps on emulated cores; called if the graph of training could be
        built.
    """
    if isinstance(tpu_topology, str):
        tpu_topology = topology.find(tpu_topology, any_generation=True)
    checks = _Check(estimator, tpu_topology, compile_with_libtpu, with_batch, batch_parts, effort)
    checks.generation()
    modes = {mode: checks.mode(mode, input_fn) for mode, input_fn in input_fns.items()}
    if rehearse is not None:
        checks.rehearsal(rehearse, modes.get("train"))
    order = {ERROR: 0, WARNING: 1, NOTE: 2}
    found = sorted([*findings, *checks.findings], key=lambda finding: order[finding.level])
    reports = {mode: report for mode, report in modes.items() if report is not None}
    return Report(tpu_topology, tuple(found), reports, tuple(dict.fromkeys(checks.not_checked)))


class _Check:
    """The stages of a check, and what they find."""

    def __init__(
        self, estimator, tpu_topology, compile_with_libtpu, with_batch, batch_parts, effort
    ):
        self._estimator = estimator
        self._topology = tpu_topology
        self._compile = compile_with_libtpu
        self._with_batch = with_batch
        self._batch_parts = batch_parts
        self._effort = effort
        self.findings: list[Finding] = []
        self.not_checked: list[str] = []

    def generation(self):
        """Says so where TPUEstimator cannot run, and only a step is checked."""
        if not self._topology.has_infeed:
            message = (
                f"TPUEstimator cannot run on a {self._topology.name}: it has no infeed. Only what "
                "the compiler says of a step is of use"
            )
            self._add(WARNING, "generation", message, "", "")

    def mode(self, mode, input_fn):
        """Returns the report of one mode, None if TPUEstimator has none on this slice."""
        if mode != "train" and self._topology.num_hosts > 1:
            self.not_checked.append(f"{mode}: TPUEstimator does it on one host only")
            return None
        started = time.monotonic()
        key = _MODES[mode]
        with self._estimator._ctx.with_mode(key) as context:
            batch_size = (context.global_batch_size or 0) // self._topology.num_cores
        measured = compiled = step_time = None
        step = self._graph(mode, key, input_fn)
        if step is not None:
            graph, cluster = step
            found = lint.lint(cluster, key, batch_size)
            self.findings += found
            measured = sizes.measure(graph, cluster)
            if not any(finding.code in _HOPELESS for finding in found):
                compiled, step_time = self._xla(mode, input_fn, batch_size, measured.flops, step)
        host = self._host(mode, key, input_fn, batch_size, step_time) if step_time else None
        seconds = time.monotonic() - started
        return ModeReport(batch_size, seconds, measured, compiled, step_time, host)

    def _graph(self, mode, key, input_fn):
        """Lets TPUEstimator build what it would run; returns `program.one_step`, None on error."""
        try:
            built = graph_builder.build(self._estimator, input_fn, key, self._topology)
            step = graph_builder.one_step(self._estimator, input_fn, key, self._topology)
        except Exception as error:  # whatever a program raises is a finding
            self._add(
                ERROR,
                "graph",
                explanations.translated(error),
                mode,
                where_in(traceback.extract_tb(error.__traceback__)),
            )
            return None
        for hook in built.spec.training_hooks or ():
            tensors = getattr(hook, "_tensors", None)
            for tensor in tensors.values() if isinstance(tensors, dict) else ():
                if isinstance(tensor, tf.Tensor) and not built.graph.is_fetchable(tensor):
                    message = (
                        f"{type(hook).__name__} reads '{tensor.name}' of the TPU's loop: send it "
                        "out through host_call"
                    )
                    self._add(ERROR, "hook", message, mode, where(tensor.op))
        return step

    def rehearsal(self, rehearse, of_training):
        """Adds what `rehearse` finds, if there is something to train."""
        if of_training is None or of_training.sizes is None:
            self.not_checked.append("a rehearsal: the graph of training could not be built")
            return
        try:
            self.findings.append(rehearse())
        except Exception as error:  # whatever a training raises is a finding
            place = where_in(traceback.extract_tb(error.__traceback__))
            message = f"the rehearsal failed: {explanations.translated(error)}"
            self._add(ERROR, "run", message, "train", place)

    def _host(self, mode, key, input_fn, batch_size, step_time):
        """Returns what input_fn gives on this machine; says if a host of the TPU takes more."""
        if mode != "train":
            return None
        try:
            given = feeding.examples_per_second(self._estimator, input_fn, key, self._topology)
        except Exception as error:  # it was built; data that cannot be read here may be there
            self.not_checked.append(f"{mode}, speed of input_fn: {explanations.translated(error)}")
            return None
        taken = batch_size * self._topology.cores_per_host / step_time.seconds
        if taken > given:
            message = (
                f"a host's cores could take {taken:,.0f} examples/s, and input_fn gives "
                f"{given:,.0f} on this machine: the TPU will wait for it unless its host is faster"
            )
            self._add(NOTE, "host", message, mode, "")
        return given

    def _xla(self, mode, input_fn, batch_size, flops, step):
        """Lets XLA take one step and, if that is wanted and possible, the TPU compiler.

        `step` is what `program.one_step` returned.
        """
        where_of = functools.partial(_where_of, step[1])
        try:
            if step[1].has_control_flow:
                # XLA on a CPU takes loops and conditions as functions only.
                key = _MODES[mode]
                step = graph_builder.one_step(self._estimator, input_fn, key, self._topology, True)
            program_hlo = hlo.step_of(*step).hlo()
        except NotImplementedError as error:
            self.not_checked.append(f"{mode}, XLA: {error}")
            return None, None
        except Exception as error:  # XLA's refusal is a finding
            for message, place in explanations.refusals(error, where_of):
                self._add(ERROR, "xla", message, mode, place)
            return None, None
        if not self._compile:
            self.not_checked.append("TPU compiler: it was not to be asked")
            return None, None
        if not self._topology.hbm_gib:
            self.not_checked.append(f"TPU compiler: it knows no slice '{self._topology.name}'")
            return None, None
        try:
            compiled = self._libtpu(program_hlo, mode, input_fn, batch_size)
        except NotChecked as error:
            self.not_checked.append(f"TPU compiler: {error}")
            return None, None
        if not compiled.fits or not self._topology.has_infeed:
            return compiled, None
        time_of_step = cost.step_time(
            compiled.optimized, self._topology.generation, flops, where_of
        )
        return compiled, time_of_step

    def _libtpu(self, program_hlo, mode, input_fn, batch_size):
        target = compiler.target_of(self._topology)
        compiled = compiler.compile_hlo(program_hlo, target, self._effort)
        if compiled.out_of_memory and self._effort == compiler.QUICK:
            try:
                compiled = compiler.compile_hlo(program_hlo, target, compiler.FULL)
            except NotChecked as error:
                reason = "the compiler's full effort, which may find room"
                self.not_checked.append(f"{mode}, {reason}: {error}")
        if compiled.out_of_memory:
            fits = self._largest_batch(mode, input_fn, batch_size) if self._with_batch else None
            self._add(ERROR, "hbm", explanations.too_large(compiled, mode, fits), mode, "")
        elif not compiled.fits:
            self._add(ERROR, "tpu-compiler", compiled.error[:400], mode, "")
        elif compiled.peak_bytes > _NEAR_LIMIT * self._topology.hbm_gib * 2**30:
            message = (
                f"more than {_NEAR_LIMIT:.0%} of a core's memory is needed: a TPU VM's own, older "
                "compiler may need more than there is"
            )
            self._add(WARNING, "hbm", message, mode, "")
        return compiled

    def _largest_batch(self, mode, input_fn, too_large):
        """Returns the largest global batch that fits, in steps of 8 a core; 0 if none is known."""
        target, cores = compiler.target_of(self._topology), self._topology.num_cores
        unit = math.lcm(8, self._batch_parts) if mode == "train" else 8
        fits, fails = 0, -(-too_large // unit)
        while fails - fits > 1:
            middle = (fits + fails) // 2
            try:
                estimator = self._with_batch(mode, unit * middle * cores)
                step = graph_builder.one_step(
                    estimator, input_fn, _MODES[mode], self._topology, True
                )
                program_hlo = hlo.step_of(*step).hlo()
                compiled = compiler.compile_hlo(program_hlo, target, compiler.QUICK)
            except Exception as error:  # it is known already that the batch asked for does not fit
                self.not_checked.append(f"{mode}, the largest batch that fits: {error}")
                break
            if compiled.fits:
                fits = middle
            else:
                fails = middle
        return unit * fits * cores

    def _add(self, level, code, message, mode, place):
        self.findings.append(Finding(level, code, message, place, mode))


def _where_of(cluster, name):
    """Returns "file:line" of an operation, which loops as functions name by the end of its name."""
    parts = name.split("/")
    for first in range(max(1, len(parts) - 1)):
        end = "/" + "/".join(parts[first:])
        named = [op for other, op in cluster.operations.items() if f"/{other}".endswith(end)]
        places = {where(op) for op in named}
        if places:
            return places.pop() if len(places) == 1 else ""
    return ""
