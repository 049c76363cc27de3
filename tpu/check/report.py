"""The report of a check. `report_text` formats it for a terminal."""

from __future__ import annotations

import dataclasses
import json

from tpu.check.compiler import Compiled
from tpu.check.cost import StepTime
from tpu.check.embeddings import TableUse
from tpu.check.sizes import Sizes
from tpu.connect.topology import Topology
from tpu.findings import ERROR, WARNING, Finding
from tpu.graph import tpu_kernels


@dataclasses.dataclass(frozen=True)
class ModeReport:
    """Results of checking one mode.

    Attributes:
      batch_size: per core.
      seconds: duration of the check.
      global_batch_size: examples per step of the slice.
      embeddings: tables of TPU embeddings.
      sizes: None if the graph could not be built.
      compiled: None if the compiler did not run.
      step_time: None if the step did not compile, or its cost is unknown.
      host_examples_per_second: throughput of input_fn on this machine; None if not measured.
      outputs: names of the metrics for "eval"; `{name: (dtype, shape of an example)}` for "predict"
        and "export"; None for "train" or if the graph could not be built.
    """

    batch_size: int
    seconds: float
    sizes: Sizes | None = None
    compiled: Compiled | None = None
    step_time: StepTime | None = None
    host_examples_per_second: float | None = None
    outputs: dict[str, tuple] | tuple[str, ...] | None = None
    global_batch_size: int = 0
    embeddings: tuple[TableUse, ...] = ()


@dataclasses.dataclass(frozen=True)
class Report:
    """Results of a check.

    Attributes:
      topology: the slice.
      findings: all findings, errors first.
      modes: `{mode: ModeReport}`.
      not_checked: what was skipped, and why.
      title: what was checked; "" for the only program.
      unchecked: `{mode or other part: why nothing of it was checked}`.
    """

    topology: Topology
    findings: tuple[Finding, ...]
    modes: dict[str, ModeReport]
    not_checked: tuple[str, ...]
    title: str = ""
    unchecked: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def checked_steps(self) -> list[str]:
        """The modes of which a step was checked; an export has none."""
        return [m for m in self.modes if m.split()[0] != "export" and m not in self.unchecked]

    @property
    def status(self) -> int:
        """Exit status: 1 with errors, else 2 if a mode or every step is unchecked, else 0."""
        if self.num_errors:
            return 1
        return 2 if self.unchecked or not self.checked_steps else 0

    @property
    def num_errors(self) -> int:
        """Number of findings of level ERROR."""
        return sum(finding.level == ERROR for finding in self.findings)

    @property
    def num_warnings(self) -> int:
        """Number of findings of level WARNING."""
        return sum(finding.level == WARNING for finding in self.findings)


def to_json(report: Report) -> str:
    """Returns the report as JSON; sizes in bytes, times in seconds."""
    fields = dataclasses.asdict(report)
    for mode in fields["modes"].values():
        if mode["compiled"]:
            del mode["compiled"]["optimized"]
    fields.update(num_errors=report.num_errors, num_warnings=report.num_warnings)
    fields["status"] = report.status
    fields["kernels"] = tpu_kernels.provenance()
    return json.dumps(fields, indent=1) + "\n"
