"""Looks for the reason why training on emulated cores and on the CPU differs, by more trainings.

The program is right, and each core only computes something on its own batch, such as the moments of
batch norm, if
1. the cores may exchange their batches without changing the weights: each core counts the same, and
   the gradients of all of them arrive, and
2. cores that all get the same batch equal a CPU that gets it as often: nothing but the split of the
   global batch makes a difference.
"""

from __future__ import annotations

import contextlib
from unittest import mock

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import ops

from tpu.graph.op_types import SUMS
from tpu.programs import comparison, cpu_graph, failures

_EXCHANGED = "on emulated cores that exchange their batches"
_SAME_BATCH = "on emulated cores with the same batch"
_COPIES = "on the CPU with copies of that batch"
_ONE_BATCH = "on the CPU with that batch"


@contextlib.contextmanager
def groups_of_sums():
    """A context manager that yields a list of the group assignments of sums that are built."""
    original, found = ops.Graph._create_op_internal, []

    def create(self, op_type, *args, **kwargs):
        op = original(self, op_type, *args, **kwargs)
        groups = tf.get_static_value(op.inputs[1]) if op_type in SUMS else None
        if np.ndim(groups) == 2 and len(groups) > 1:
            found.append(groups.tolist())
        return op

    with mock.patch.object(ops.Graph, "_create_op_internal", create):
        yield found


def prove(trainings, emulated, facts, groups, rounding, has_factors):
    """Returns whether variables differ only by what each core computes on its own batch, and why.

    See the head of this file. Returns (False, reasons) if that is not so, or cannot be shown.
    `groups` is the list of `groups_of_sums` of the cores; `has_factors` is True if the report
    already shows that gradients are a multiple.
    """
    if facts.random_operations:
        return False, ["no reason was looked for: random numbers differ from core to core"]
    if not facts.trainable:
        return False, ["no reason was looked for: the program has no trainable variables"]
    if trainings.has_embeddings:
        return False, ["no reason was looked for: the ids of TPU embeddings are not recorded"]
    shift = find_shift(trainings.num_replicas, groups)
    if not shift:
        return False, [
            "no reason was looked for: the program sums over groups of cores, and no exchange of "
            "batches keeps the groups"
        ]
    try:
        return _Proof(trainings, emulated, facts, rounding, has_factors).run(shift)
    except Exception as error:  # does not change that the variables differ
        return False, [f"no reason was found: {failures.explain(error)}"]


def find_shift(num_cores: int, groups) -> int:
    """Returns the least shift of batches that keeps those of a group in one group; 0 if none does.

    Args:
      num_cores: number of cores; core i gets the batch of core (i + shift) % num_cores.
      groups: group assignments, lists of lists of cores.
    """
    for shift in range(1, num_cores):
        shifted = [
            [sorted((core + shift) % num_cores for core in group) for group in assignment]
            for assignment in groups
        ]
        if all(
            sorted(after) == sorted(map(sorted, before)) for after, before in zip(shifted, groups)
        ):
            return shift
    return 0


class _Proof:
    """Further trainings after one whose variables differ."""

    def __init__(self, trainings, emulated, facts, rounding, has_factors):
        self._trainings, self._emulated = trainings, emulated
        self._trainable, self._rounding = facts.trainable, rounding
        self._has_factors, self._row_updates = has_factors, facts.row_updates

    def run(self, shift):
        """Returns (whether the cores differ only by what they compute on their own, reasons)."""
        exchanged = self._trainings.play(_EXCHANGED, lambda core, cores: (core + shift) % cores)
        different = self._different(self._emulated, exchanged, self._trainable)
        if different:
            return False, [
                f"not excused: if the cores exchange their batches, {_describe(different)}: the "
                "cores do not count alike. Are the gradients of all cores summed?"
            ]
        proofs = ["shown: if the cores exchange their batches, the weights are equal"]
        same = self._trainings.play(_SAME_BATCH, lambda core, cores: 0)
        with cpu_graph.single_replica(), cpu_graph.ordered_updates():
            copies = self._trainings.join(same_batch=True)
            on_cpu = self._trainings.run(_COPIES, copies.input_fn)
            different = self._different(same, on_cpu)
            if different:
                # Not all results are the same with copies: a variance depends on the number of
                # examples, and a loss divided by that number plus 1, too.
                own = self._trainings.own(0)
                small = self._trainings.run(_ONE_BATCH, own.input_fn, is_one_core=True)
                weights = {d.name for d in different if d.is_trainable}
                if not weights or (not self._has_factors and self._is_mean(copies, own)):
                    names = {d.name for d in different} if not weights else None
                    different = self._different(same, small, names)
        if different:
            hint = "Is the loss summed or averaged over the examples and the cores alike?"
            if any(comparison.includes(different, name) for name in self._row_updates):
                hint = "The CPU updates only the rows of the batch, see 'may differ'"
            if self._has_factors:
                hint = "The gradients are not of the same size, see 'factors'"
            return False, [
                *proofs,
                f"not excused: if all cores get the same batch, {_describe(different)} on a CPU "
                "that gets it as often: not only the split of the batch makes a difference. "
                f"{hint}",
            ]
        return True, [*proofs, "shown: if all cores get the same batch, they equal the CPU"]

    def _is_mean(self, copies, own):
        """Returns True if copies of a batch update the weights like the batch: not N times as much.

        A loss that is summed over the examples would be the mean of the sums of the cores.
        """
        for steps in sorted({1, self._trainings.steps}):  # a warmup may begin with a rate of 0
            large = self._trainings.run(f"{_COPIES}, {steps}", copies.input_fn, steps=steps)
            small = self._trainings.run(
                f"{_ONE_BATCH}, {steps}", own.input_fn, is_one_core=True, steps=steps
            )
            product = square = 0.0
            for name in self._trainable & small.keys():
                first = self._trainings.first[name].astype(np.float64)
                change = small[name].astype(np.float64) - first
                product += np.vdot(large[name].astype(np.float64) - first, change)
                square += np.vdot(change, change)
            if square:
                limit = self._trainings.num_replicas**0.5
                return bool(1 / limit < product / square < limit)
        return False

    def _different(self, a, b, names=None):
        """Returns the differences that are more than rounding, of the variables in `names`."""
        names = b.keys() if names is None else names
        b = {name: value for name, value in b.items() if name in names and name in a}
        found = comparison.compare(
            a, b, self._trainable, self._trainings.num_replicas, self._rounding
        )
        return comparison.not_rounding(found, self._trainings.steps)


def _describe(differences):
    """Returns "2 variables differ (...)"."""
    largest = differences[0]
    are = "variable differs" if len(differences) == 1 else "variables differ"
    return f"{len(differences)} {are} ('{largest.name}' by {largest.relative:.1e} of its largest)"
