"""Builds, lowers and compiles the step of a mode; adds what went wrong to its `Stages`."""

from __future__ import annotations

import functools
import math

from tensorflow.python.ops import control_flow_util

from tpu.check import compiler, cost, explanations, graph_builder
from tpu.check.compiler import CompilerUnavailableError
from tpu.findings import ERROR, WARNING, user_line
from tpu.graph import hlo, tpu_kernels

LOWERED = "XLA"  # stage
# Errors after which XLA surely fails as well.
_FATAL_CODES = (
    "op", "dtype", "string", "py_func", "print", "summary", "placeholder", "capture", "hbm"
)  # fmt: skip
_FUNCTIONS = "input_fn or model_fn"  # what a build calls
_MEMORY_WARNING = 0.9  # share of a core's memory


class StepCompiler:
    """The step of one mode."""

    def __init__(self, stages, checked: graph_builder.CheckedMode, options):
        """Takes `Stages`, the mode, and `mode.Options`."""
        self._stages, self._checked, self._options = stages, checked, options

    def build(self) -> graph_builder.BuiltStep | None:
        """Returns `graph_builder.build_once`; None after a finding, or a reason in `unchecked`.

        The functions of the program are called once. If the program has control flow of version 2
        and its step cannot be built with that of version 1, they are called again.
        """
        try:
            return graph_builder.build_once(self._checked)
        except BaseException as error:  # any exception of the program is a finding
            if not explanations.is_of_program(error):
                raise
            if not self._may_need_version_2(error):
                self._stages.add_error(error)
                return None
            first = error
        try:
            return graph_builder.build_once(self._checked, control_flow_v2=True)
        except BaseException as error:
            second = self._cause_of_second_error(first, error)
            if second is None:
                self._stages.unchecked = explanations.explain_second_call(error, _FUNCTIONS)
            else:
                self._stages.add_error(second)
        return None

    def _may_need_version_2(self, error):
        """Returns True if the step may be accepted with version 2, which accepts more."""
        if not control_flow_util.ENABLE_CONTROL_FLOW_V2 or not graph_builder.is_in_step(error):
            return False
        # TPUEstimator checks only version 1.
        return not explanations.is_estimator_error(error)

    def _cause_of_second_error(self, first, second):
        """Returns the error of the program; None if it comes from calling the program again.

        The build with version 1 raised `first`, or nothing (None), that with version 2 `second`.
        """
        if not explanations.is_of_program(second):
            raise second
        if first is not None and _is_same(first, second):
            return first
        try:  # the build with version 1 again: without state it ends as before
            graph_builder.build_once(self._checked)
        except BaseException as third:
            if not explanations.is_of_program(third):
                raise
            is_repeatable = first is not None and _is_same(first, third)
        else:
            is_repeatable = first is None
        return second if is_repeatable else None

    def can_lower(self) -> bool:
        """Returns whether XLA can lower the step; says why not."""
        fatal = {
            f.code for f in self._stages.findings if f.level == ERROR and f.code in _FATAL_CODES
        }
        if fatal:
            codes = ", ".join(sorted(fatal))
            self._stages.skip(f"XLA and the TPU compiler: they would fail on the errors ({codes})")
            return False
        cores = self._checked.estimator.config.tpu_config.num_cores_per_replica or 1
        if cores > 1:
            self._stages.skip(
                f"XLA and the TPU compiler: num_cores_per_replica={cores} (model parallelism)"
            )
            return False
        return True

    def compile(self, built, per_core: int, flops: float):
        """Lowers a step of `build` with XLA and compiles it with libtpu if possible.

        Returns:
          (Compiled or None, StepTime or None), given the batch of a core and the step's FLOPs.
        """
        line_of_op = functools.partial(_user_line_by_name, built.program)
        if built.program.has_control_flow:
            built = self._build_with_version_2()
            if built is None:
                return None, None
        try:
            hlo_module = hlo.lower(built.graph, built.program).module
            self._stages.ran.add(LOWERED)
        except NotImplementedError as error:
            self._cannot_lower(error)
            return None, None
        except Exception as error:  # an error of XLA is a finding
            if not explanations.is_xla_error(error):
                raise
            missing = explanations.missing_kernels(error)
            on_tpu = [kind for kind in missing if tpu_kernels.has_kernel(kind)]
            if missing and len(on_tpu) == len(missing):
                self._cannot_lower(hlo.missing_kernel(on_tpu[0]))
                return None, None
            for message, place in explanations.explain_xla_error(error, line_of_op):
                self._stages.add(ERROR, "xla", message, place)
            return None, None
        if not self._options.compile_with_libtpu:
            self._stages.not_checked.append("TPU compiler: skipped")
            return None, None
        if not self._checked.topology.hbm_gib:
            self._stages.not_checked.append(
                f"TPU compiler: unknown slice '{self._checked.topology.name}'"
            )
            return None, None
        try:
            compiled = self._run_libtpu(hlo_module, per_core)
        except CompilerUnavailableError as error:
            self._stages.not_checked.append(f"TPU compiler: {error}")
            return None, None
        if not compiled.fits:
            return compiled, None
        found = self._checked.topology
        return compiled, cost.estimate_step_time(compiled.optimized, found, flops, line_of_op)

    def _cannot_lower(self, reason):
        """Says that XLA on a CPU cannot lower the step: an error if it would for PJRT devices."""
        if self._checked.topology.has_infeed:
            self._stages.skip(f"XLA and the TPU compiler: {reason}")
        else:
            self._stages.add(ERROR, "pjrt", f"PJRT devices cannot run the step: {reason}")

    def _build_with_version_2(self):
        """Returns the step for XLA on a CPU, which compiles loops and conditionals as functions.

        Returns None after adding a finding or a reason if the program cannot be built again.
        """
        try:
            return graph_builder.build_once(self._checked, control_flow_v2=True)
        except BaseException as error:
            cause = self._cause_of_second_error(None, error)
            if cause is None:
                reason = explanations.explain_second_call(error, _FUNCTIONS)
                self._stages.skip(f"XLA and the TPU compiler: {reason}")
            elif control_flow_util.ENABLE_CONTROL_FLOW_V2:  # that of the program
                self._stages.add_error(cause)
            else:
                reason = explanations.describe_with_place(cause)
                self._stages.skip(
                    "XLA and the TPU compiler: the step cannot be built with control flow of "
                    f"version 2, which XLA on a CPU needs: {reason}"
                )
        return None

    def _run_libtpu(self, hlo_module, per_core):
        target, effort = compiler.get_target(self._checked.topology), self._options.effort
        compiled = compiler.compile_hlo(hlo_module, target, effort)
        if compiled.out_of_memory and effort == compiler.QUICK:
            try:  # full effort may need less memory
                compiled = compiler.compile_hlo(hlo_module, target, compiler.FULL)
            except CompilerUnavailableError as error:
                self._stages.skip(f"compilation with full effort: {error}")
        if compiled.out_of_memory:
            fits = self._largest_batch(per_core) if self._options.with_batch else 0
            advise = self._options.memory_advice or explanations.advise_on_memory
            message = explanations.explain_out_of_memory(compiled, advise(self._stages.mode, fits))
            self._stages.add(ERROR, "hbm", message)
        elif not compiled.fits:
            self._stages.add(ERROR, "tpu-compiler", compiled.error[:400])
        elif compiled.peak_bytes > _MEMORY_WARNING * self._checked.topology.hbm_gib * 2**30:
            has_infeed = self._checked.topology.has_infeed
            other = "the older compiler" if has_infeed else "the libtpu"
            message = (
                f"needs more than {_MEMORY_WARNING:.0%} of a core's memory; {other} of a TPU VM "
                "may need more"
            )
            self._stages.add(WARNING, "hbm", message)
        return compiled

    def _largest_batch(self, too_large):
        """Returns the largest global batch size that fits; 0 if none was found.

        Searches multiples of 8 per core, starting below `too_large` per core.
        """
        topology = self._checked.topology
        target, cores = compiler.get_target(topology), topology.num_cores
        is_training = self._stages.mode == "train"
        unit = math.lcm(8, self._options.accumulate_steps) if is_training else 8
        fits, fails = 0, -(-too_large // unit)
        while fails - fits > 1:
            middle = (fits + fails) // 2
            try:
                estimator = self._options.with_batch(self._stages.mode, unit * middle * cores)
                step = graph_builder.build_once(self._checked._replace(estimator=estimator), True)
                module = hlo.lower(step.graph, step.program).module
                compiled = compiler.compile_hlo(module, target, compiler.QUICK)
            except Exception as error:  # does not change that the requested batch does not fit
                self._stages.skip(f"the largest batch that fits: {error}")
                break
            if compiled.fits:
                fits = middle
            else:
                fails = middle
        return unit * fits * cores


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
