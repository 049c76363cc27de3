"""Lowers the step of one core to HLO, with XLA on this CPU.

Operations that only a TPU has a kernel for are replaced: see `collectives` and `substitutes`. What
outside compilation returns is an argument, like the infeed.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.compiler.xla.service import hlo_pb2
from tensorflow.core.framework import graph_pb2
from tensorflow.python.eager import context

from tpu.graph import collectives, random_numbers, substitutes, tpu_kernels
from tpu.graph import nodes as node_defs
from tpu.graph.placement import DROPPED_OPS, OUTSIDE, Placement
from tpu.graph.replicated_graph import ReplicatedGraph, group_assignment

# Operations whose outputs are arguments of the lowered step, and whose inputs are its results.
_SOURCES = ("InfeedDequeueTuple", "RecvTPUEmbeddingActivations")
_SINKS = ("OutfeedEnqueueTuple", "SendTPUEmbeddingGradients")
_COUNTER = itertools.count()


class LoweredStep(NamedTuple):
    """A step of one core as a program of XLA.

    Its parameters are the values of `received`, then those of `variables`.

    Attributes:
      module: the unoptimized program, a serialized HloModuleProto.
      received: what comes from outside: infeed, outside compilation, and the given `parameters`.
      variables: names of the external tensors that are handles of the variables.
      results: names of the tensors that the program returns first: the results of the
        `ReplicatedGraph`, then those of its outfeed.
    """

    module: bytes
    received: list[tf.Tensor]
    variables: list[str]
    results: list[str]


def lower(
    graph: tf.Graph,
    program: ReplicatedGraph,
    parameters: Sequence[tf.Tensor] = (),
    step_number: tf.Tensor | None = None,
) -> LoweredStep:
    """Lowers a program of a single step, with version 2 control flow, to HLO.

    Args:
      graph: the graph of the program; see `single_step`.
      program: the program of one core.
      parameters: tensors of the program, or from outside of it, that become parameters. Other
        tensors from outside become constants, zeros if their values are unknown.
      step_number: one of `parameters`, int64 `[]`: with it, random numbers are a function of it,
        the replica and the seed of the operation; without it, XLA's own.

    Raises:
      NotImplementedError: XLA on a CPU lacks an operation that a TPU has.
      ValueError: an external resource that is not a variable.
      tf.errors.InvalidArgumentError and others: XLA cannot compile the step; the message names the
        nodes.
    """
    placement = Placement(program)
    given = {tensor.name for tensor in parameters}
    given_ops = {tensor.op for tensor in parameters}
    graph_def, found = _graph_def(graph, program, placement, given_ops, step_number)
    results = _results(program, placement)
    fetches = _add_identities(graph_def, graph, results)
    sources = [op for op in placement.on_core.values() if op.type in _SOURCES]
    received = [tensor for op in sources for tensor in op.outputs]
    received += [*placement.received(), *parameters]
    dynamic = [tensor for tensor in received if not tensor.shape.is_fully_defined()]
    if dynamic:
        raise NotImplementedError(f"'{dynamic[0].name}' comes from outside and has no static shape")
    signature = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in received]
    names = [name for node in graph_def.node for name in node_defs.data_inputs(node)]
    used = {name if ":" in name else f"{name}:0" for name in names}

    def step(*arguments):
        inputs = dict(zip((tensor.name for tensor in received), arguments))
        capture = tf.compat.v1.get_default_graph().capture
        for name, tensor in program.external_tensors.items():
            if name in variables:
                inputs[name] = capture(variables[name].handle)
            elif name in used and name not in given:
                inputs[name] = _constant(tensor)
        inputs = {name: tensor for name, tensor in inputs.items() if name in used}
        return tf.import_graph_def(graph_def, inputs, fetches, name="")

    with context.eager_mode():
        for called in graph_def.library.function:
            context.context().add_function_def(called)
        variables = _variables(program, used)
        function = tf.function(step, input_signature=signature, jit_compile=True, autograph=False)
        ir = function.experimental_get_compiler_ir(*signature)
        module = hlo_pb2.HloModuleProto.FromString(ir(stage="hlo_serialized"))
    instructions = [i for computation in module.computations for i in computation.instructions]
    collectives.finish(instructions, found)
    new_ids = itertools.count(1 + max(i.id for i in instructions))
    for computation in module.computations:
        _set_random_algorithm(computation, new_ids)
    _set_names(module)
    return LoweredStep(module.SerializeToString(), received, list(variables), results)


def _set_names(module):
    """Replaces names with counters of the process: a step that is built again is the same."""
    module.name, module.id = "step", 0
    for i, computation in enumerate(module.computations):
        if computation.id == module.entry_computation_id:
            module.entry_computation_name = f"computation_{i}"
        computation.name = f"computation_{i}"


def _constant(tensor):
    """Returns the static value of an external tensor; zeros if unknown."""
    value = tf.get_static_value(tensor)
    if value is None:
        shape = [size or 1 for size in tensor.shape] if tensor.shape.rank else []
        value = np.zeros(shape, tensor.dtype.as_numpy_dtype)
    return tf.constant(value, tensor.dtype)


def _results(program, placement):
    """Returns the names of the tensors that the step returns."""
    sinks = [op for op in placement.on_core.values() if op.type in _SINKS]
    names = [tensor.name for op in sinks for tensor in op.inputs]
    return program.results + [n for n in names if node_defs.op_name(n) not in placement.on_host]


def _variables(program, used):
    """Returns `{name of an external handle: new variable of its shape and dtype}`."""
    variables = {}
    for name, tensor in program.external_tensors.items():
        if tensor.dtype == tf.resource and name in used:
            handle = program.on_first_core(tensor).op
            if handle.type != "VarHandleOp":
                raise ValueError(f"'{handle.name}' is a {handle.type}, not a variable")
            shape, dtype = handle.get_attr("shape"), handle.get_attr("dtype")
            # Uninitialized: a large table takes no memory of this machine.
            value = tf.raw_ops.Empty(shape=tf.TensorShape(shape).as_list(), dtype=dtype)
            variables[name] = tf.Variable(value, trainable=False)
    return variables


def _graph_def(graph, program, placement, given, step_number):
    """Returns the GraphDef of the step, and `{name of a collective: what it is in HLO}`.

    The operations `given` are left out: their values are parameters.
    """
    graph_def, found = graph_pb2.GraphDef(), {}
    whole = graph.as_graph_def()
    graph_def.versions.CopyFrom(whole.versions)
    graph_def.library.CopyFrom(whole.library)
    left_out = _SOURCES + _SINKS
    kept = {  # an ordered set
        name: None
        for name, op in placement.on_core.items()
        if op.type not in left_out and op not in given
    }
    writers = placement.writers()
    for name in kept:
        op, node = program.operations[name], graph_def.node.add()
        node_defs.copy_node(op, node, kept)
        if op.type in collectives.KINDS:
            groups = group_assignment(op)
            if groups is None:
                raise NotImplementedError(f"the groups of {op.name} are not constant")
            collectives.rewrite(node, graph_def.library, groups, found)
        elif op.type == "TPUEmbeddingActivations":
            activations = node.input[1]
            node_defs.replace(node, "Identity", [activations], T=op.outputs[0].dtype)
        elif op.type in DROPPED_OPS or name in writers:
            node_defs.replace(node, "NoOp", node_defs.control_inputs(node))
        elif op.type in substitutes.TPU_ONLY:
            is_replaced = substitutes.substitute(op, node, graph_def.library)
            if not is_replaced:
                raise NotImplementedError(missing_kernel(op.type))
    functions = {function.signature.name: function for function in graph_def.library.function}
    called = node_defs.all_called(graph_def.node, functions.get)
    for function in called.values():
        _check_function(function, called.keys() if placement.is_automatic else None)
    if step_number is not None:
        random_numbers.make_stateless(graph_def, step_number)
    for function in list(graph_def.library.function):
        _rewrite_function(function, graph_def.library, found)
    _rename_functions(graph_def)
    return graph_def, found


def missing_kernel(kind: str) -> str:
    """Returns why a step with an operation that only a TPU has a kernel for is not lowered."""
    return f"{kind} has a kernel on a TPU, but not in XLA on a CPU, which lowers the step here"


def _check_function(function, others):
    """Raises NotImplementedError for what cannot be lowered inside a function.

    `others` are the names of all functions, if outside compilation is automatic, else None.
    """
    for node in function.node_def:
        if node.op in substitutes.TPU_ONLY:
            raise NotImplementedError(missing_kernel(node.op))
        is_known = tpu_kernels.has_kernel(node.op) or node.op in tpu_kernels.RUNTIME_OPS
        if OUTSIDE in node.attr or (others is not None and not is_known | (node.op in others)):
            raise NotImplementedError(f"outside compilation of {node.op} in a loop or conditional")


def _rename_functions(graph_def):
    """Renames the rewritten functions: TensorFlow has the old names registered already."""
    names = {function.signature.name for function in graph_def.library.function}
    suffix = next(_COUNTER)
    new = {name: f"{name}_step_{suffix}" for name in names}
    nodes = list(graph_def.node)
    for function in graph_def.library.function:
        function.signature.name = new[function.signature.name]
        nodes += function.node_def
    for node in nodes:
        for function in node_defs.references(node):
            function.name = new.get(function.name, function.name)
        node.op = new.get(node.op, node.op)


def _rewrite_function(function, library, found):
    """Replaces what XLA on a CPU lacks in the function of a loop or conditional."""
    nodes = {node.name: node for node in function.node_def}
    for node in function.node_def:
        if node.op in _SINKS or node.op in DROPPED_OPS:  # an outfeed every few steps, for example
            node_defs.replace(node, "NoOp", node_defs.control_inputs(node))
        elif node.op in collectives.KINDS:
            constant = nodes[node_defs.op_name(node.input[1])]
            if constant.op != "Const":
                raise NotImplementedError(f"the groups of {node.name} are not constant")
            groups = tf.make_ndarray(constant.attr["value"].tensor).tolist()
            collectives.rewrite(node, library, groups, found)


def _add_identities(graph_def, graph, tensors):
    """Adds an identity for each output, since inputs cannot be fetched directly."""
    names = []
    for i, tensor in enumerate(tensors):
        node = graph_def.node.add(name=f"result_{i}")
        dtype = graph.get_tensor_by_name(tensor).dtype
        node_defs.replace(node, "Identity", [tensor], T=dtype)
        names.append(f"{node.name}:0")
    return names


def _set_random_algorithm(computation, new_ids):
    """Sets the default random algorithm, as TensorFlow does on a TPU.

    XLA for a CPU uses Philox, more than half of the step of a Transformer with dropout. Its state
    has two counters, that of the default algorithm one.
    """
    states, instructions = {}, []
    for instruction in computation.instructions:
        if instruction.opcode == "rng-bit-generator":
            instruction.rng_algorithm = xla_data_pb2.RNG_DEFAULT
            (states[instruction.id],) = instruction.operand_ids
            shape = instruction.shape.tuple_shapes[0]
            shape.dimensions[0] = 2
            state = hlo_pb2.HloInstructionProto(
                name=f"{instruction.name}.state", opcode="slice", id=next(new_ids), shape=shape
            )
            state.operand_ids.append(states[instruction.id])
            state.slice_dimensions.add(start=0, limit=2, stride=1)
            instruction.operand_ids[0] = state.id
            instructions.append(state)
        elif _is_first_output(instruction, states):  # the new state, which is unused
            instruction.operand_ids[0] = states[instruction.operand_ids[0]]
            instruction.opcode = "copy"
        instructions.append(instruction)
    if states:
        del computation.instructions[:]
        computation.instructions.extend(instructions)


def _is_first_output(instruction, tuples):
    is_first = instruction.opcode == "get-tuple-element" and not instruction.tuple_index
    return is_first and instruction.operand_ids[0] in tuples
