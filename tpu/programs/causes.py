"""Finds in the graph of a training step why N cores may compute something else than one CPU.

A core sees its own batch only. A sum or mean over the examples of that batch (a statistic) is the
same thing on N cores and on one CPU as long as it is averaged over the cores in the end. It is not
if the step divides by it, takes its logarithm, or normalizes with it: a loss divided by the core's
own number of tokens, batch norm, contrastive losses with the negatives of a core.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tpu.check import lint, value_flow
from tpu.check.executions import Executions
from tpu.check.step import Step
from tpu.findings import user_line
from tpu.graph import gradients
from tpu.graph.op_types import BATCH_NORMS, EXCHANGES, SHAPES, SUMS
from tpu.graph.replicated_graph import ReplicatedGraph
from tpu.graph.walks import CONTROL_FLOW, ancestors, readers_of, root, value_parents

# Findings of the lint that make the results of a slice differ from those of one CPU.
_LINT_CODES = ("clip-before-sum", "no-cross-replica-sum", "per-core-state", "unordered-update")
_CLIP = "clip-before-sum"
_OF_ALL_CORES = (*SUMS, *EXCHANGES)
_REDUCTIONS = ("All", "Any", "EuclideanNorm", "Max", "Mean", "Min", "Prod", "Sum")
_DIVISIONS = ("Div", "DivNoNan", "FloorDiv", "Mod", "RealDiv", "TruncateDiv", "Xdivy")
_INVERSES = ("Inv", "Reciprocal")
_LOGARITHMS = ("Log", "Log1p")
_MATRIX_PRODUCTS = ("BatchMatMulV2", "Einsum", "MatMul")
# Operations that a sum over the batch may pass before it is averaged over the cores.
_LINEAR = (
    *("Add", "AddN", "AddV2", "BiasAdd", "Cast", "ConcatV2", "Enter", "Exit", "ExpandDims"),
    *("Identity", "IdentityN", "Mean", "Merge", "Neg", "NextIteration", "Pack", "Reshape"),
    *("Slice", "Squeeze", "StopGradient", "StridedSlice", "Sub", "Sum", "Switch", "Transpose"),
)
# A TensorArray of version 1 is a handle and a flow, a scalar whose value means nothing.
_FLOWS = ("TensorArrayV3", "TensorArrayWriteV3", "TensorArrayScatterV3", "TensorArraySplitV3")
_READS_OF_ARRAYS = ("TensorArrayReadV3", "TensorListGetItem", "TensorListPopBack")
_SIZES_OF_ARRAYS = ("TensorArraySizeV3", "TensorListLength")
_ARRAYS = ("TensorArray", "TensorList")
_PRODUCTS = ("Mul", "MulNoNan", *_DIVISIONS)  # linear if the other factor is a constant


class Cause(NamedTuple):
    """A reason for different results.

    Attributes:
      text: what the report says after "may differ: ".
      name: short, with its place, if it is something that each core computes on its own batch.
    """

    text: str
    name: str = ""


def find(
    program: ReplicatedGraph, batch_size: int, num_cores: int, differs: bool = True
) -> list[Cause]:
    """Returns the causes in the step of one core.

    Args:
      program: a training step, of `graph_builder.build_once`.
      batch_size: examples per core.
      num_cores: number of cores, or of replicas.
      differs: True if results differ: if there is no likely cause, an unlikely one is named too.
    """
    mode, causes = tf.estimator.ModeKeys.TRAIN, []
    if num_cores == 1:
        return causes
    findings = lint.apply_rules(program, mode, batch_size)
    for code in _LINT_CODES:
        same = [finding for finding in findings if finding.code == code]
        if same:
            number = f"{len(same)} x: " if len(same) > 1 else ""
            hint = ". --without_clipping trains without it" if code == _CLIP else ""
            text = f"{number}{same[0].message} (at {same[0].where}){hint}"
            causes.append(Cause(text, f"clipping at {same[0].where}" if code == _CLIP else ""))
    statistics = _Statistics(program, batch_size, num_cores)
    own = statistics.causes()
    if differs and not own and not any(cause.name for cause in causes):
        own = statistics.other_causes()
    return causes + own


class _Statistics:
    """Follows the statistics of a core's batch through the forward pass of a step."""

    def __init__(self, program, batch_size, num_cores):
        self._batch_size = batch_size
        step = Step(program, tf.estimator.ModeKeys.TRAIN, batch_size)
        self._value = Executions(step.program).value
        operations = step.program.operations
        updates = [op for op in step.updates if step.runs(op)]
        # The gradient of the last operations reads their inputs only, so add the loss itself.
        losses = [operations.get(name.split(":")[0]) for name in program.results]
        needed = ancestors([*updates, *losses], value_parents)
        backward = [op for op in needed.values() if gradients.is_gradient(op)]
        after = ancestors(backward, readers_of)  # the optimizer, too
        forward = [op for name, op in needed.items() if name not in after]
        self._forward = sorted(forward, key=lambda op: op._id)
        infeed = [op for op in operations.values() if op.type == "InfeedDequeueTuple"]
        sums = [op for op in operations.values() if op.type in SUMS]
        groups = [group for op in sums for group in value_flow.groups_of(op)]
        over_groups = [op for op in sums if value_flow.groups_of(op)]
        if value_flow.joins_all(groups, num_cores):
            over_groups = []
        self._over_groups = {op.name for op in over_groups}
        self._on_batch = ancestors(infeed, self._readers_on_core)
        self._of_groups = ancestors(over_groups, self._readers_on_core)
        self._found = {}

    def causes(self):
        """Returns one Cause per kind, with the first place and the number of places."""
        return self._find(
            (
                self._is_batch_norm,
                "batch norm computes its mean and variance per core",
                "batch norm",
            ),
            (
                self._is_division,
                "the loss is divided by a number that each core computes",
                "divisor",
            ),
            (
                self._is_logarithm,
                "the loss is a logarithm of a sum over the batch of a core",
                "logarithm",
            ),
            (
                self._compares_examples,
                "the examples in the batch of a core are compared with each other",
                "pairs of examples",
            ),
        )

    def other_causes(self):
        """Returns a Cause for other operations that are not linear in a statistic."""
        text = "each core computes with a sum over its own batch"
        return self._find((self._is_not_linear, text, "statistics of the batch"))

    def _find(self, *kinds):
        causes = []
        for applies, text, name in kinds:
            found = [op for op in self._forward if applies(op)]
            if not found:
                continue
            places = dict.fromkeys(user_line(op) or "unknown line" for op in found)
            first = next(iter(places))
            text += ", summed over groups of cores" if found[0].name in self._of_groups else ""
            more = f", and at {len(places) - 1} other lines" if len(places) > 1 else ""
            causes.append(Cause(f"{text} ({found[0].type} at {first}{more})", f"{name} at {first}"))
        return causes

    # ---- Kinds of causes ----

    def _is_batch_norm(self, op):
        if op.type in BATCH_NORMS:
            # Keras' LayerNormalization makes all examples channels of one.
            is_layer_norm = op.inputs[0].shape[:1] == [1] and self._batch_size != 1
            return op.get_attr("is_training") and not is_layer_norm
        return (
            op.type == "Rsqrt" and op.inputs[0].shape.rank != 0 and self._is_statistic(op.inputs[0])
        )

    def _is_division(self, op):
        if op.type in _DIVISIONS:
            return self._is_statistic(op.inputs[1])
        is_inverse = op.type in _INVERSES or (op.type == "Rsqrt" and not op.inputs[0].shape.rank)
        if op.type == "Pow":
            exponent = self._value(op.inputs[1])
            is_inverse = exponent is not None and bool((exponent < 0).all())
        return is_inverse and self._is_statistic(op.inputs[0])

    def _is_logarithm(self, op):
        return op.type in _LOGARITHMS and self._is_statistic(op.inputs[0])

    def _compares_examples(self, op):
        """Returns True for a product that has an axis of examples twice."""
        shape = op.outputs[0].shape if op.type in _MATRIX_PRODUCTS else tf.TensorShape(None)
        if shape.rank != 2 or len(op.inputs) != 2 or self._batch_size == 1:
            return False
        has_both = all(size and size % self._batch_size == 0 for size in shape)
        return has_both and all(self._depends_on_batch(tensor.op) for tensor in op.inputs)

    def _is_not_linear(self, op):
        of_batch = [tensor for tensor in op.inputs if self._depends_on_batch(tensor.op)]
        statistics = [tensor for tensor in of_batch if self._is_statistic(tensor)]
        if not statistics:
            return False
        if op.type in ("Sub", "SquaredDifference"):  # centers the examples
            return len(statistics) < len(of_batch) or op.type == "SquaredDifference"
        is_linear = op.type in _LINEAR or (op.type in _PRODUCTS and len(of_batch) == 1)
        is_linear = is_linear or op.type.startswith(_ARRAYS)
        return not is_linear and op.type not in (*SHAPES, *_OF_ALL_CORES)

    # ---- Statistics ----

    def _is_statistic(self, tensor):
        """Returns True for values computed from sums over the examples of the batch of a core."""
        if tensor.name not in self._found:
            self._found[tensor.name] = False  # for the back edge of a loop
            self._found[tensor.name] = self._find_statistic(tensor)
        return self._found[tensor.name]

    def _find_statistic(self, tensor):
        op = tensor.op
        if not self._depends_on_batch(op):
            return False
        if tensor.shape.rank == 0 and op.type not in _READS_OF_ARRAYS and not _is_array(tensor):
            return True
        if op.type == "InfeedDequeueTuple":
            return False
        if op.type in _REDUCTIONS and self._reduces_batch(op):
            return True
        of_batch = [i for i in op.inputs if self._depends_on_batch(i.op)]
        return bool(of_batch) and all(map(self._is_statistic, of_batch))

    def _reduces_batch(self, op):
        axes, shape = self._value(op.inputs[1]), op.inputs[0].shape
        if axes is None or not shape.rank:
            return False
        shape = shape.as_list()  # With v2 behavior disabled, an element is a Dimension, never None.
        axes = {int(axis) % len(shape) for axis in np.ravel(axes)}
        # The first axis may be the examples times their positions.
        if shape[0] is None or shape[0] % self._batch_size == 0:
            return 0 in axes
        return any(shape[axis] == self._batch_size for axis in axes)

    def _depends_on_batch(self, op):
        return op.name in self._on_batch

    def _readers_on_core(self, op):
        """Returns the operations that use values of an operation, and may differ between cores."""
        same = (*SHAPES, *_SIZES_OF_ARRAYS, *_OF_ALL_CORES)
        return [
            reader
            for reader in readers_of(op)
            if reader.type not in same or reader.name in self._over_groups
        ]


def _is_array(tensor):
    """Returns True for the flow or the variant of a TensorArray, False for numbers."""
    source = root(tensor, (*CONTROL_FLOW, "Identity")).op
    return tensor.dtype == tf.variant or source.type in _FLOWS
