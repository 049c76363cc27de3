"""The step of one core as lint rules see it, and the registry of the rules."""

from __future__ import annotations

import functools

import tensorflow as tf

from tpu.check import value_flow
from tpu.graph import op_types
from tpu.graph.flat_program import Node
from tpu.graph.flattener import flatten
from tpu.graph.placement import Placement
from tpu.graph.replicated_graph import ReplicatedGraph
from tpu.graph.variables import handle_name, name_of_handle, variable_name
from tpu.graph.walks import root, topological_order

OPTIMIZER_OPS = ("ResourceApply", "ResourceSparseApply")
_STATIC_OPS = ("Const", *op_types.SIZES, "BroadcastGradientArgs")

RULES = []


def rule(function):
    """Registers a rule."""
    RULES.append(function)
    return function


class Step:
    """A step of one core.

    Attributes:
      program: the `FlatProgram` of `graph_builder.build_once`, without functions.
      mode: "train", "eval" or "infer".
      batch_size: per core.
      num_replicas: number of copies of the program on the slice.
      on_pjrt: True for a slice on which only PJRT runs.
      merges_summaries: True if the Scaffold merges the summaries of the graph, as it does unless
        scaffold_fn sets summary_op.
      all_operations: list of the operations, also of those that never run.
      operations: list of the operations that run on the core, each after its inputs.
      placement: where the operations run.
    """

    def __init__(
        self,
        program: ReplicatedGraph,
        mode: str,
        batch_size: int,
        num_replicas: int = 2,
        on_pjrt: bool = False,
        merges_summaries: bool = True,
    ):
        self.program = flatten(program)
        self.mode, self.batch_size = mode, batch_size
        self.num_replicas, self.on_pjrt = num_replicas, on_pjrt
        self.merges_summaries = merges_summaries
        self.placement = Placement(self.program)
        self.all_operations = list(self.program.operations.values())
        self.operations = _inputs_first(self.placement.on_core)

    @functools.cached_property
    def updates(self) -> list[Node]:
        """The operations that update a variable, also those that never run."""
        types = ("Assign", "ResourceApply", "ResourceSparseApply", "ResourceScatter")
        found = [op for op in self.all_operations if op.type.startswith(types) and op.inputs]
        return [op for op in found if op.op_def.is_stateful and op.inputs[0].dtype == tf.resource]

    @functools.cached_property
    def updates_by_variable(self) -> dict[str, list[Node]]:
        """`{name of a variable: the operations that update it}`."""
        found = {}
        for op in self.updates:
            found.setdefault(variable_name(op), []).append(op)
        return found

    @functools.cached_property
    def trainable(self) -> set[str]:
        """Names of the handles of trainable variables."""
        return self.variables(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)

    def variables(self, collection: str) -> set[str]:
        """Returns the names of the handles of the resource variables of a collection."""
        names = (handle_name(variable) for variable in self._collection(collection))
        return {name.split(":")[0] for name in names if name}

    @functools.cached_property
    def merged_summaries(self) -> set[str]:
        """Names of the operations of the summaries that the Scaffold merges outside of the step."""
        if not self.merges_summaries:
            return set()
        return {tensor.op.name for tensor in self._collection(tf.compat.v1.GraphKeys.SUMMARIES)}

    def _collection(self, name):
        graph = self.all_operations[0].graph if self.all_operations else tf.Graph()
        return graph.get_collection(name)

    @functools.cached_property
    def updated(self) -> set[str]:
        """Names of the variables that an operation that runs updates."""
        return {variable_name(op) for op in self.updates if self.runs(op)}

    @functools.cached_property
    def changed(self) -> set[str]:
        """Names of the variables and optimizer slots that an operation changes, if it runs."""
        handles = {
            name_of_handle(value)
            for op in self.updates
            for value in op.inputs
            if value.dtype == tf.resource
        }
        return handles | self.updates_by_variable.keys()

    @functools.cached_property
    def ordered(self) -> list[Node]:
        """The operations that run, on the core or on the host, in topological order."""
        running = [*self.placement.on_core.values(), *self.placement.on_host.values()]
        inputs = {op: set(value_flow.parents_in_step(self, op)) for op in running}
        return topological_order(inputs, {op: op._id for op in running})

    def runs(self, op: Node) -> bool:
        """Returns True if an operation runs, on the core or by outside compilation."""
        return op.name in self.placement.on_core or op.name in self.placement.on_host

    @functools.cached_property
    def static(self) -> set[str]:
        """Names of the operations that XLA computes when it compiles.

        These are constants, shapes, and what is computed from them, also in loops and conditionals.
        """
        found = set()
        for op in self.operations:
            if self._is_static(op, found):
                found.add(op.name)
        return found

    def _is_static(self, op, found):
        parents = [tensor.op.name for tensor in op.inputs]
        if op.type == "Switch":  # its condition only decides whether the value is used
            return parents[0] in found
        if op.type == "Merge":
            return self._is_static_merge(op, found)
        is_computed = parents and not op.op_def.is_stateful and found.issuperset(parents)
        return op.type in _STATIC_OPS or is_computed

    def _is_static_merge(self, merge, found):
        """Returns True if a Merge has the same static value in every iteration, or branch."""
        nodes = [tensor.op for tensor in merge.inputs]
        following = [node for node in nodes if node.type == "NextIteration"]
        if not {node.name for node in nodes if node not in following} <= found:
            return False
        if following:  # passes the value of the Merge on
            passed = [root(node.inputs[0], ("Identity",)).op for node in following]
            return all(op.type == "Switch" and op.inputs[0].op is merge for op in passed)
        predicate = self.program.analysis.predicate_of(merge)
        return predicate is not None and predicate.name in found

    def find_ops(self, *types) -> list[Node]:
        """Returns the operations of these types that run on the core."""
        return [op for op in self.operations if op.type in types]


def _inputs_first(operations):
    """Returns operations in order: a Switch of version 1 may be newer than what reads it."""
    inputs = {
        op: {t.op for t in op.inputs if t.op.name in operations and t.op.type != "NextIteration"}
        for op in operations.values()
    }
    return topological_order(inputs, {op: op._id for op in inputs})
