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
import types
from collections.abc import Callable, Iterable, Mapping

from tpu.check import compiler, explanations
from tpu.check.mode import ModeChecker, Options
from tpu.check.report import Report
from tpu.connect import topology
from tpu.connect.topology import Topology
from tpu.findings import ERROR, NOTE, WARNING, Finding


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
    memory_advice: Callable[[str, int], str] | None = None,
    title: str = "",
    hooks: Mapping[str, Iterable] = types.MappingProxyType({}),
) -> Report:
    """Checks the modes of `input_fns`.

    Args:
      estimator: a `TPUEstimator(use_tpu=True)`, made with any resolver or master.
      input_fns: `{mode: input_fn}`; modes are "train", "eval", "predict", and "export" with a
        serving_input_receiver_fn.
      tpu_topology: the slice, or its name.
      compile_with_libtpu: whether to run the TPU compiler, if it is installed.
      with_batch: `(mode, global batch size) -> estimator` with another batch size; used to search
        for the largest batch that fits.
      accumulate_steps: micro-batches per training step; only its multiples are tried as batches.
      findings: findings of earlier stages, added to the report.
      effort: `compiler.QUICK`, or `compiler.FULL` as in a TPU's runtime, for step times that can be
        compared.
      rehearse: trains a few steps on emulated cores; called if the training graph was built.
      memory_advice: `(mode, largest global batch that fits or 0) -> what to do` in the terms of the
        program's own flags, if a step does not fit.
      title: what is checked, for the first line of the report.
      hooks: `{mode: hooks}` that the program gives to the call, besides those of its model_fn.
    """
    if isinstance(tpu_topology, str):
        tpu_topology = topology.find(tpu_topology)
    options = Options(compile_with_libtpu, with_batch, accumulate_steps, effort, memory_advice)
    found, not_checked, modes, unchecked = [*findings], [], {}, {}
    for mode, input_fn in input_fns.items():
        given = hooks.get(mode) or ()
        checker = ModeChecker(estimator, mode, input_fn, tpu_topology, options, given)
        report, stages = checker.check(), checker.stages
        found += stages.findings
        not_checked += stages.not_checked
        if stages.unchecked:
            unchecked[mode] = stages.unchecked
        if report is not None:
            modes[mode] = report
    if rehearse is not None:
        is_built = "train" in modes and modes["train"].sizes is not None
        _run_rehearsal(rehearse, is_built, found, not_checked)
    found.sort(key=functools.partial(_importance, modes))
    not_checked = tuple(dict.fromkeys(not_checked))
    return Report(tpu_topology, tuple(found), modes, not_checked, title, unchecked)


def _importance(modes, finding):
    """Returns a sort key: errors first, and the costliest of a level first."""
    report = modes.get(finding.mode)
    instructions = report.step_time.largest if report and report.step_time else ()
    share = sum(part.share for part in instructions if part.where and part.where == finding.where)
    return (ERROR, WARNING, NOTE).index(finding.level), -share, -finding.waste


def _run_rehearsal(rehearse, is_built, findings, not_checked):
    """Adds the finding of `rehearse`, if the training graph was built."""
    if not is_built:
        not_checked.append("rehearsal: the training graph could not be built")
        return
    try:
        findings.append(rehearse())
    except BaseException as error:  # any exception of the user's program is a finding
        if not explanations.is_of_program(error):
            raise
        place = explanations.place_of(error)
        message = f"the rehearsal failed: {explanations.explain_error(error)}"
        findings.append(Finding(ERROR, "run", message, place, "train"))
