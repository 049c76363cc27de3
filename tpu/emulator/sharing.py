"""Which operations of the program of a core have the same results on all cores.

Cores share these operations: one core runs them for all. They are what variables, sums over all
cores and constants determine, such as the updates of the optimizer. Infeed, the number of the core
and random numbers differ between cores, and so does what depends on them: by its inputs, by the
conditionals and loops around it, or by a variable that a core updates with its own value.
"""

from __future__ import annotations

import dataclasses

from tpu.emulator import functions
from tpu.graph import variables
from tpu.graph.control_flow import GraphAnalysis
from tpu.graph.replicated_graph import group_assignment

_SUMS = ("CrossReplicaSum", "XlaAllReduce")


@dataclasses.dataclass(frozen=True)
class Sharing:
    """What all cores share.

    Attributes:
      shared: names of the operations that one core runs for all.
      together: names of the operations that all cores reach, or none, each time.
      loops: names of the loops that all cores run together.
    """

    shared: set[str]
    together: set[str]
    loops: set[str]


def find(analysis: GraphAnalysis, inputs: dict, library: functions.Library) -> Sharing:
    """Finds what all cores of a program share.

    Args:
      analysis: of the operations and their inputs, which are handles of variables or Placeholders.
      inputs: `{name of an input: whether its values differ between cores}`.
      library: the functions.
    """
    deciders = {op: _deciders(analysis, op) for op in analysis.operations}
    accesses = variables.accesses(analysis, variables.Origins())
    own = [
        op
        for op in analysis.operations
        if (inputs[op.name] if op.name in inputs else _differs(op, library))
    ]
    separate = set()
    while own:  # each time with the handles of further variables that differ
        separate |= _dependents(own, deciders, analysis, separate)
        written = {
            variable
            for variable, found in accesses.items()
            if any(is_write and op in separate for op, is_write in found)
        }
        own = [
            op
            for op in analysis.operations
            if op.type == "VarHandleOp" and op not in separate and variables.name_of(op) in written
        ]
    return Sharing(
        {op.name for op in analysis.operations if op not in separate},
        {op.name for op in analysis.operations if not deciders[op] & separate},
        {name for name, condition in analysis.loops.items() if condition not in separate},
    )


def _deciders(analysis, op):
    """Returns the operations of the conditions that decide whether an operation runs."""
    found = {condition.predicate for condition in analysis.conditions_of(op)}
    loops = (analysis.loops.get(name) for name in analysis.frame_after(op))
    return found.union(filter(None, loops)) - {op}


def _dependents(own, deciders, analysis, known):
    """Returns `own` and what depends on it, by a value or by a condition, without `known`."""
    decided = {}
    for op, conditions in deciders.items():
        for condition in conditions:
            decided.setdefault(condition, []).append(op)
    found, pending = set(), list(own)
    while pending:
        op = pending.pop()
        if op not in found and op not in known and op in analysis.position:
            found.add(op)
            pending += decided.get(op, ())
            readers = (reader for tensor in op.outputs for reader in tensor.consumers())
            pending += (reader for reader in readers if not _adds_all_cores(reader))
    return found


def _differs(op, library):
    """Returns True if the results of an operation may differ though its inputs do not."""
    if _adds_all_cores(op):
        return False
    by_reference = any(tensor.dtype._is_ref_dtype for tensor in op.inputs)
    return by_reference or library.has_state(op.node_def)


def _adds_all_cores(op):
    """Returns True for an operation whose result is the same on all cores, whatever its inputs."""
    if op.type not in _SUMS:
        return False
    groups = group_assignment(op)
    return groups is not None and len(groups) <= 1
