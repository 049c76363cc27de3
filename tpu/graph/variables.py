"""Variables of a graph: their names, and the operations that read or write them."""

from __future__ import annotations

import tensorflow as tf

from tpu.graph.control_flow import GraphAnalysis
from tpu.graph.op_types import READS
from tpu.graph.walks import CONTROL_FLOW, kind_of, readers_of, root

_VARIABLES = ("TemporaryVariable", "VarHandleOp", "Variable", "VariableV2")
_NEITHER = ("IsVariableInitialized", "VarIsInitializedOp", "VariableShape", "DestroyResourceOp")
# Operations that pass a handle or reference on.
_PASSED = ("Identity", *CONTROL_FLOW)
# Operations whose result may share memory with a reference that they read.
_VIEWS = ("ExpandDims", "Identity", "Reshape", "Squeeze", "StopGradient", "Switch")
# Slot variables of each optimizer of TPU embeddings, by its name in OptimizationParameters.
EMBEDDING_SLOTS = {
    "stochastic_gradient_descent": 0,
    **dict.fromkeys(("adagrad", "frequency_estimator", "momentum", "proximal_adagrad"), 1),
    **dict.fromkeys(("adagrad_momentum", "adam", "ftrl", "proximal_yogi", "rms_prop"), 2),
}


def variable_name(op) -> str:
    """Returns the name of the variable (or stack) whose handle is an operation's first input."""
    return name_of_handle(op.inputs[0])


def name_of_handle(tensor) -> str:
    """Returns the name of the variable (or stack) of a handle that was passed on."""
    return root(tensor, _PASSED).op.name


def handle_name(variable) -> str | None:
    """Returns the name of a variable's handle; None for a reference variable, as on the host."""
    handle = getattr(variable, "handle", None)
    return None if handle is None else handle.name


def accesses(analysis: GraphAnalysis, origins: Origins) -> dict[tuple, list]:
    """Returns `{variable: [(operation, whether it writes)]}`, operations in order."""
    found = {}
    for op in analysis.operations:
        written = {}
        for i, tensor in enumerate(op.inputs):
            if tensor.dtype != tf.resource and not tensor.dtype._is_ref_dtype:
                continue
            is_write = _is_write(op, i)
            for variable in origins.find(tensor) if is_write is not None else ():
                written[variable] = written.get(variable, False) or is_write
        for variable, is_write in written.items():
            found.setdefault(variable, {})[op] = is_write
            if not is_write and op.inputs[0].dtype._is_ref_dtype:
                for reader in _readers_of_views(op):
                    if reader in analysis.position:
                        found[variable].setdefault(reader, False)
    return {
        variable: sorted(ops.items(), key=lambda item: analysis.position[item[0]])
        for variable, ops in found.items()
    }


class Origins:
    """Finds the variables that a handle or reference may be of."""

    def __init__(self):
        self._found = {}

    def find(self, tensor) -> frozenset:
        """Returns the variables, as (container, name)."""
        if tensor.name not in self._found:
            self._found[tensor.name] = frozenset()  # for the back edge of a loop
            self._found[tensor.name] = self._trace(tensor)
        return self._found[tensor.name]

    def _trace(self, tensor):
        op = tensor.op
        if op.type in _VARIABLES:
            return frozenset([name_of(op)])
        if op.type == "Placeholder" and tensor.dtype == tf.resource:
            return frozenset([("", op.name)])  # an argument of a function
        if kind_of(op) in _PASSED:
            return frozenset().union(*map(self.find, op.inputs))
        # An assignment by reference returns the reference.
        passes_reference = tensor.dtype._is_ref_dtype and op.inputs
        return self.find(op.inputs[0]) if passes_reference else frozenset()


def name_of(op: tf.Operation) -> tuple[str, str]:
    """Returns (container, name) of the variable that an operation creates."""
    is_temporary = op.type == "TemporaryVariable"
    name = op.get_attr("var_name" if is_temporary else "shared_name")
    container = b"" if is_temporary else op.get_attr("container")
    return container.decode(), name.decode() or op.name


def _is_write(op, index):
    """Returns whether an operation writes to its input; None if it does not access it."""
    if op.type in _NEITHER:
        return None
    if op.inputs[index].dtype._is_ref_dtype:
        if kind_of(op) in _PASSED and op.outputs[0].dtype._is_ref_dtype:
            return None
        return bool(op.op_def.input_arg[0].is_ref) and index == 0
    if kind_of(op) in _PASSED:
        return None
    return op.type not in READS and index not in _read_only_inputs(op)


def _read_only_inputs(op):
    """Returns the inputs that a call of a function only reads."""
    try:
        return op.get_attr("_read_only_resource_inputs")
    except ValueError:
        return ()


def _readers_of_views(op):
    """Yields the operations that read memory of a variable through a view of it."""
    if op.type in (*_VIEWS, "Enter"):
        for reader in readers_of(op):
            # The output of an Enter is inside the loop already, and so are its readers.
            if reader.type != "Enter":
                yield reader
            yield from _readers_of_views(reader)
