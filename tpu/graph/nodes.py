"""NodeDefs: their inputs, and the functions that they call."""

from __future__ import annotations

import functools

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, node_def_pb2, tensor_pb2
from tensorflow.python.framework import function_def_to_graph, op_def_registry

# Attributes to remove from copies; `_class` is colocation with operations outside.
_ATTRIBUTES = ("_tpu_replicate", "_class")
CALLS = ("PartitionedCall", "StatefulPartitionedCall")
# Conditionals and loops of version 2: `{type: attributes that name their functions}`.
CONDITIONALS = {
    **dict.fromkeys(("If", "StatelessIf"), ("then_branch", "else_branch")),
    **dict.fromkeys(("Case", "StatelessCase"), ("branches",)),
}
LOOPS = dict.fromkeys(("While", "StatelessWhile"), ("cond", "body"))


def op_name(tensor_name: str) -> str:
    """Returns the name of the operation of a tensor."""
    return tensor_name.split(":")[0]


def free_name(name: str, taken) -> str:
    """Returns the name, with underscores at its end if `taken` contains it."""
    while name in taken:
        name += "_"
    return name


def copy_of(node):
    """Returns a copy of a NodeDef."""
    copy = node_def_pb2.NodeDef()
    copy.CopyFrom(node)
    return copy


def copy_node(op, node, inside, device=""):
    """Copies an operation to the NodeDef `node`, without the attributes of the replicated graph.

    Drops control inputs that are not in `inside`, a collection of operation names.
    """
    node.CopyFrom(op.node_def)
    node.device = device
    for attribute in _ATTRIBUTES:
        node.attr.pop(attribute, None)
    set_inputs(node, [name for name in node.input if name[0] != "^" or name[1:] in inside])


def data_inputs(node) -> list[str]:
    """Returns the names of the inputs of a NodeDef that are tensors."""
    return [name for name in node.input if name[0] != "^"]


def control_inputs(node) -> list[str]:
    """Returns the control inputs of a NodeDef, "^NAME"."""
    return [name for name in node.input if name[0] == "^"]


def set_inputs(node, inputs):
    """Replaces the inputs of a NodeDef."""
    inputs = list(inputs)
    del node.input[:]
    node.input.extend(inputs)


def replace(node, kind, inputs, **attributes):
    """Makes `node` an operation of another type, with these attributes; see `set_attributes`."""
    node.op = kind
    node.attr.clear()
    set_inputs(node, inputs)
    set_attributes(node, **attributes)


def set_attributes(node, **attributes):
    """Sets attributes of a NodeDef.

    Args:
      node: the NodeDef.
      **attributes: an integer, a text, a DType, a list of DTypes, a TensorProto, or a NameAttrList
        that names a function.
    """
    for name, value in attributes.items():
        attribute = node.attr[name]
        if isinstance(value, tf.DType):
            attribute.type = value.as_datatype_enum
        elif isinstance(value, int):
            attribute.i = value
        elif isinstance(value, str):
            attribute.s = value.encode()
        elif isinstance(value, tensor_pb2.TensorProto):
            attribute.tensor.CopyFrom(value)
        elif isinstance(value, attr_value_pb2.NameAttrList):
            attribute.func.CopyFrom(value)
        else:
            attribute.list.type.extend(tf.as_dtype(dtype).as_datatype_enum for dtype in value)


def make_constant(node, value, dtype, controls=()):
    """Makes `node` a constant of a DType."""
    dtype = tf.as_dtype(dtype)
    replace(node, "Const", controls, dtype=dtype, value=tf.make_tensor_proto(value, dtype))


def input_types(node) -> list[tf.DType]:
    """Returns the DTypes of the inputs of a NodeDef."""
    return _types(node, op_def_registry.get(node.op).input_arg)


def output_types(node) -> list[tf.DType]:
    """Returns the DTypes of the outputs of a NodeDef."""
    return _types(node, op_def_registry.get(node.op).output_arg)


def output_names(node, op_def) -> list[str]:
    """Returns "argument:index" of each output of a node, as functions name them."""
    return [
        f"{argument.name}:{i}"
        for argument in op_def.output_arg
        for i in range(len(_types(node, [argument])))
    ]


def _types(node, arguments):
    types = []
    for argument in arguments:
        if argument.type_list_attr:
            types += node.attr[argument.type_list_attr].list.type
            continue
        dtype = argument.type or node.attr[argument.type_attr].type
        types += [dtype] * (node.attr[argument.number_attr].i if argument.number_attr else 1)
    return [tf.as_dtype(dtype) for dtype in types]


# ---- Functions ----


def references(node) -> list:
    """Returns the attributes of a NodeDef that name functions, to read or to change.

    Those of conditionals and loops are in the order of the branches, and the condition first.
    """
    found = []
    if takes_functions(node.op):
        for name in CONDITIONALS.get(node.op) or LOOPS.get(node.op) or sorted(node.attr):
            value = node.attr[name]
            found += [function for function in (value.func, *value.list.func) if function.name]
    return found


def called(node, find) -> list[str]:
    """Returns the names of the functions that a NodeDef calls, by its type or its attributes.

    `find(name)` returns a function of the graph; None if it has none of the name.
    """
    names = [node.op] if takes_functions(node.op) and find(node.op) is not None else []
    return names + [function.name for function in references(node)]


def all_called(nodes, find) -> dict:
    """Returns `{name: FunctionDef}` of the functions that NodeDefs call, directly or not."""
    found, pending = {}, list(nodes)
    while pending:
        for name in called(pending.pop(), find):
            function = find(name)
            if name not in found and function is not None:
                found[name] = function
                pending += function.node_def
    return found


def with_inner(nodes, graph) -> list:
    """Returns NodeDefs and those of the functions of a graph that they call, directly or not."""
    called = all_called(nodes, functools.partial(definition, graph))
    return [*nodes, *(node for function in called.values() for node in function.node_def)]


@functools.cache
def takes_functions(op_type: str) -> bool:
    """Returns True for the types of operations that may call functions."""
    op_def = op_def_registry.get(op_type)
    return op_def is None or any(attr.type in ("func", "list(func)") for attr in op_def.attr)


def definition(graph, name: str):
    """Returns the FunctionDef of a function of a graph, or None."""
    function = graph._get_function(name)
    return None if function is None else function.cached_definition


def function_graph(graph, name: str):
    """Returns the FuncGraph of a function of a graph."""
    found = getattr(graph._get_function(name), "graph", None)
    if found is not None and hasattr(found, "inputs"):
        return found
    with graph.as_default():
        return function_def_to_graph.function_def_to_graph(definition(graph, name))
