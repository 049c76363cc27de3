"""The step of one core as lint rules see it, and the registry of the rules."""

from __future__ import annotations

import functools

import tensorflow as tf

from tpu.check.placement import Placement
from tpu.check.sizes import handle_name
from tpu.emulator.replicated_graph import ReplicatedGraph

_STATIC_OPS = ("Const", "Shape", "ShapeN", "Size", "Rank", "BroadcastGradientArgs")

RULES = []


def rule(function):
    """Registers a rule."""
    RULES.append(function)
    return function


class Step:
    """A step of one core.

    Attributes:
      program: the operations, of `graph_builder.build_step` with version 1 control flow.
      mode: "train", "eval" or "infer".
      batch_size: per core.
      num_replicas: number of copies of the program on the slice.
      all_operations: list of the operations, also of those that never run.
      operations: list of the operations that run on the core.
      placement: where the operations run.
    """

    def __init__(self, program: ReplicatedGraph, mode: str, batch_size: int, num_replicas: int = 2):
        self.program, self.mode, self.batch_size = program, mode, batch_size
        self.num_replicas = num_replicas
        self.placement = Placement(program)
        self.all_operations = list(program.operations.values())
        self.operations = list(self.placement.on_core.values())

    @functools.cached_property
    def updates(self) -> list[tf.Operation]:
        """The operations that update a variable, also those that never run."""
        types = ("Assign", "ResourceApply", "ResourceSparseApply", "ResourceScatter")
        return [
            op for op in self.all_operations if op.type.startswith(types) and _takes_a_handle(op)
        ]

    @functools.cached_property
    def updates_by_variable(self) -> dict[str, list[tf.Operation]]:
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
        graph = self.all_operations[0].graph if self.all_operations else tf.Graph()
        names = (handle_name(variable) for variable in graph.get_collection(collection))
        return {name.split(":")[0] for name in names if name}

    def runs(self, op: tf.Operation) -> bool:
        """Returns True if an operation runs, on the core or by outside compilation."""
        return op.name in self.placement.on_core or op.name in self.placement.on_host

    @functools.cached_property
    def static(self) -> set[str]:
        """Names of the operations that XLA computes when it compiles: constants and shapes."""
        found = set()
        for op in self.operations:
            parents = [tensor.op.name for tensor in op.inputs]
            is_computed = parents and not op.op_def.is_stateful and found.issuperset(parents)
            if op.type in _STATIC_OPS or is_computed:
                found.add(op.name)
        return found

    def find_ops(self, *types) -> list[tf.Operation]:
        """Returns the operations of these types that run on the core."""
        return [op for op in self.operations if op.type in types]


def variable_name(op: tf.Operation) -> str:
    """Returns the name of the variable that an operation reads or updates."""
    handle = op.inputs[0].op
    while handle.type in ("Enter", "Identity", "Switch"):
        handle = handle.inputs[0].op
    return handle.name


def _takes_a_handle(op):
    return op.op_def.is_stateful and bool(op.inputs) and op.inputs[0].dtype == tf.resource
