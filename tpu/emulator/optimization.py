"""Optimizes the program of a core with TensorFlow's own optimizer of graphs (Grappler).

Sessions of emulated cores cannot: the original program of the cores stays in their graph, so they
place only what they run, and TensorFlow optimizes no such graph. Here the program of one core is
optimized before it is copied for every core.
"""

from __future__ import annotations

import tensorflow as tf
from tensorflow.core.framework import graph_pb2, node_def_pb2
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2
from tensorflow.python.grappler import tf_optimizer

from tpu.graph import nodes as node_defs
from tpu.graph.nodes import control_inputs

# Not "remap": graphs refuse some of its fused operations, such as _FusedConv2D of bfloat16.
_OPTIMIZERS = ("constfold", "arithmetic", "dependency")
# Stands in for an operation: stateful, any number of outputs of known shapes.
_STAND_IN = "InfeedDequeueTuple"


def optimize(graph_def, ends, kept: dict):
    """Returns the nodes of a faster GraphDef with the same results.

    Args:
      graph_def: a GraphDef with all functions that it calls.
      ends: names of the nodes that must run.
      kept: `{name of a node: its operation}` of the nodes that must stay as they are, because no
        kernel for a CPU computes the results that they have on an emulated core.
    """
    hidden = graph_pb2.GraphDef(library=graph_def.library, versions=graph_def.versions)
    inputs = set()  # names of the nodes that pass on an input of a kept node
    for node in graph_def.node:
        if node.name not in kept:
            hidden.node.add().CopyFrom(node)
            continue
        op, names = kept[node.name], []
        for i, (tensor, name) in enumerate(zip(op.inputs, node.input)):
            names.append(_input_name(node.name, i))
            passed = hidden.node.add(name=names[-1], device=node.device)
            node_defs.replace(passed, "Identity", [name], T=tensor.dtype)
        inputs.update(names)
        controls = [*(f"^{name}" for name in names), *control_inputs(node)]
        hidden.node.append(_stand_in(node, op.outputs, controls))
    found = {node.name: node for node in _run(hidden, [*ends, *inputs])}
    originals = {node.name: node for node in graph_def.node if node.name in kept}
    nodes = []
    for node in found.values():
        if node.name in originals:
            nodes.append(_restore(originals[node.name], node, kept[node.name], found))
        elif node.name not in inputs or node.op != "Identity":
            nodes.append(node)
    return nodes


def _input_name(name, index):
    return f"{name}/_optimized/input_{index}"


def _stand_in(node, outputs, controls):
    new = node_def_pb2.NodeDef(name=node.name, device=node.device)
    node_defs.replace(new, _STAND_IN, controls, dtypes=[tensor.dtype for tensor in outputs])
    for tensor in outputs:
        new.attr["shapes"].list.shape.add().CopyFrom(tensor.shape.as_proto())
    return new


def _restore(original, stand_in, op, found):
    """Returns a kept node with its optimized inputs."""
    names = [_input_name(original.name, i) for i in range(len(op.inputs))]
    passed = [found[name] for name in names]
    inputs = [node.input[0] if node.op == "Identity" else node.name for node in passed]
    controls = [name for node in passed if node.op == "Identity" for name in control_inputs(node)]
    controls += [name for name in stand_in.input if name[1:] not in names]
    restored = node_defs.copy_of(original)
    node_defs.set_inputs(restored, [*inputs, *dict.fromkeys(controls)])
    return restored


def _run(graph_def, ends):
    program = meta_graph_pb2.MetaGraphDef(graph_def=graph_def)
    program.collection_def["train_op"].node_list.value.extend(ends)
    config = config_pb2.ConfigProto()
    options = config.graph_options.rewrite_options
    options.optimizers.extend(_OPTIMIZERS)
    options.meta_optimizer_iterations = options.ONE
    options.min_graph_nodes = -1
    try:
        return tf_optimizer.OptimizeGraph(config, program, verbose=False).node
    except tf.errors.OpError:
        return graph_def.node  # slower, with the same results
