"""Which operations a CPU can run, and the compilation of those that only XLA can."""

from __future__ import annotations

import functools

import tensorflow as tf
from tensorflow.core.framework import function_pb2
from tensorflow.python.eager import context
from tensorflow.python.framework import kernels, op_def_registry

from tpu.graph import nodes as node_defs

_CPU = ("CPU", "DEFAULT")
_XLA = ("XLA_CPU_JIT",)
# Their kernels need a caller that XLA compiles, or a part of the program of a TPU.
_WITHOUT_KERNEL = ("XlaIf", "XlaLaunch", "XlaLaunchV2", "XlaRecv", "XlaSend", "XlaWhile")


def has_cpu_kernel(node) -> bool:
    """True if a CPU runs a NodeDef as it is."""
    if node.op in _WITHOUT_KERNEL or not _has_kernel(node, _CPU):
        return False
    return not (_is_refused_when_run(node) and can_compile(node))


def can_compile(node) -> bool:
    """True if XLA compiles a NodeDef for a CPU."""
    _register_xla_kernels()
    types = [*node_defs.input_types(node), *node_defs.output_types(node)]
    plain = not {tf.resource, tf.variant, tf.string} & {dtype.base_dtype for dtype in types}
    return plain and node.op not in _WITHOUT_KERNEL and _has_kernel(node, _XLA)


def compiled_function(node) -> function_pb2.FunctionDef:
    """Returns a function of one operation, which XLA compiles when it is called."""
    op_def = op_def_registry.get(node.op)
    function = function_pb2.FunctionDef()
    function.signature.name = f"compiled_{node.name.replace('/', '_').replace('.', '_')}"
    function.signature.is_stateful = op_def.is_stateful
    body = function.node_def.add()
    body.CopyFrom(node)
    body.name, body.device = "operation", ""
    del body.input[:]
    for i, dtype in enumerate(node_defs.input_types(node)):
        function.signature.input_arg.add(name=f"input_{i}", type=dtype.as_datatype_enum)
        body.input.append(f"input_{i}")
    outputs = node_defs.output_names(node, op_def)
    for i, dtype in enumerate(node_defs.output_types(node)):
        function.signature.output_arg.add(name=f"output_{i}", type=dtype.as_datatype_enum)
        function.ret[f"output_{i}"] = f"operation:{outputs[i]}"
    function.attr["_XlaMustCompile"].b = True
    function.attr["_noinline"].b = True
    return function


def products(node, exponent: int, free_name) -> list:
    """Returns NodeDefs for a power of 2 or 3: products, as XLA compiles it.

    Args:
      node: the NodeDef of the Pow; the last of the result has its name.
      exponent: 2 or 3.
      free_name: function from a name to the name for a new node.
    """
    value, power, *controls = node.input
    after = [*controls, f"^{node_defs.op_name(power)}"]
    dtype = tf.as_dtype(node.attr["T"].type)
    square, result = node_defs.copy_of(node), node_defs.copy_of(node)
    if exponent == 2:
        node_defs.replace(result, "Square", [value, *after], T=dtype)
        return [result]
    square.name = free_name(f"{node.name}/square")
    node_defs.replace(square, "Square", [value], T=dtype)
    node_defs.replace(result, "Mul", [value, square.name, *after], T=dtype)
    return [square, result]


def _is_refused_when_run(node):
    """True for attributes with which the kernels for a CPU raise an error when they run."""
    # Not attr[name], which would add the attribute.
    is_dilated = "dilations" in node.attr and max(node.attr["dilations"].list.i, default=1) > 1
    channels_first = "data_format" in node.attr and node.attr["data_format"].s.startswith(b"NC")
    return (is_dilated and node.op != "Conv2D") or (channels_first and node.op != "BiasAdd")


def _has_kernel(node, devices):
    return any(
        device in devices and all(_allows(types, node, name) for name, types in constraints)
        for device, constraints in _registered(node.op)
    )


def _allows(allowed, node, name):
    """True if the attribute `name` of a node has only types of `allowed`."""
    value = node.attr.get(name)
    if value is None:
        return True  # a default
    return {value.type, *value.list.type} - {0} <= allowed


@functools.cache
def _registered(op_type):
    """Returns the kernels of an operation: [(device, [(attribute, allowed types)])]."""
    return [
        (kernel.device_type, [(c.name, {*c.allowed_values.list.type}) for c in kernel.constraint])
        for kernel in kernels.get_registered_kernels_for_op(op_type).kernel
        if not kernel.label
    ]


@functools.cache
def _register_xla_kernels():
    """TensorFlow registers the kernels of XLA when it first compiles a function."""
    with context.eager_mode():
        tf.function(lambda: tf.constant(0), jit_compile=True, autograph=False)()
    _registered.cache_clear()
