"""Lets cores agree on the conditionals and loops that contain collectives.

A collective waits for all cores of its group. If only some of them reach it, a TPU hangs. Emulated
cores exchange the condition before they branch, and end with an error if it differs.
"""

from __future__ import annotations

import sys

import tensorflow as tf
from tensorflow.core.framework import node_def_pb2
from tensorflow.python.ops import script_ops

from tpu.emulator import collectives
from tpu.graph import nodes as node_defs
from tpu.graph.nodes import CONDITIONALS, op_name
from tpu.graph.walks import kind_of, root

OPERATION = "EmulatedAgreement"  # of a NodeDef that `rewrite` replaces


def add_nodes(analysis, nodes, originals, sharing, library, num_cores) -> list:
    """Lets the conditionals and loops of version 1 wait for the agreement of all cores.

    Adds control inputs to `nodes`, and returns the NodeDefs of agreements.

    Args:
      analysis: the `GraphAnalysis` of a core.
      nodes: `{name: NodeDef}` of the core.
      originals: `{name: operation}` of the program, for its lines.
      sharing: the `Sharing` of the cores, which agree on what they share.
      library: the functions.
      num_cores: number of cores.
    """
    needed, frames = {}, {}
    for op in analysis.operations:
        if op.name not in nodes or op.name in sharing.together:
            continue
        found = library.collectives(nodes[op.name], originals.get(op.name))
        for predicate, _ in analysis.conditions[op] if found else ():
            if op_name(predicate) not in sharing.shared:
                needed.setdefault(predicate, []).extend(found)
        for depth in range(1, len(analysis.frame[op]) + 1) if found else ():
            if analysis.frame[op][depth - 1] not in sharing.loops:
                frames.setdefault(analysis.frame[op][:depth], []).extend(found)
    agreements = {}
    for op in analysis.operations if needed or frames else ():
        kind = kind_of(op)
        if kind == "Switch":
            found, predicate = needed.get(root(op.inputs[1]).name), nodes[op.name].input[1]
        elif kind == "LoopCond":
            found, predicate = frames.get(analysis.frame[op]), nodes[op.name].input[0]
        else:
            continue
        if found:
            name = node_defs.free_name(f"{predicate.replace(':', '_')}/agreement", nodes)
            if name not in agreements:
                agreements[name] = _agreement(name, predicate, tf.bool, found, num_cores)
            nodes[op.name].input.append(f"^{name}")
    return list(agreements.values())


def _agreement(name, condition, dtype, found, num_cores):
    """Returns the NodeDef of an agreement on a condition, the name of a tensor.

    `found` are the collectives, [(operation type, line, groups or None for all cores)].
    """
    kind, where, _ = found[0]
    message = (
        f"{kind} at {where or 'an unknown line'} is in a conditional or loop whose condition "
        "differs between cores: a TPU would wait for the other cores without an end. Run it on "
        "all cores of its group"
    )
    node = node_def_pb2.NodeDef(name=name)
    node_defs.replace(node, OPERATION, [condition], T=tf.as_dtype(dtype), message=message)
    for group in _merge([groups for *_, groups in found], num_cores):
        node.attr["groups"].list.s.append(",".join(map(str, group)).encode())
    return node


def _merge(assignments, num_cores):
    """Returns groups of cores that wait for each other."""
    merged = {core: {core} for core in range(num_cores)}
    for groups in assignments:
        for group in [range(num_cores)] if groups is None else groups:
            union = set().union(*(merged.get(core, ()) for core in group))
            merged.update(dict.fromkeys(union, union))
    return sorted({tuple(sorted(group)) for group in merged.values()})


def rewrite(builder, node):
    """Rewrites an agreement for one core."""
    groups = [[int(core) for core in group.split(b",")] for group in node.attr["groups"].list.s]
    message = node.attr["message"].s.decode()
    group = next(group for group in groups if builder.core in group)

    def agree(group, values):
        after = [f"^{op_name(values[0])}"]
        equal = builder.add_constant(f"{node.name}/equal", True, tf.bool, after)
        dtype = tf.as_dtype(node.attr["T"].type)
        for i, value in enumerate(values[1:]):
            name = f"{node.name}/equal_{i}"
            same = builder.add(name, "Equal", [values[0], value], T=dtype)
            equal = builder.add(f"{name}/and", "LogicalAnd", [equal, same])
        text = builder.add_constant(f"{node.name}/message", message, tf.string, after)
        types = {"Tin": [tf.bool, tf.string], "Tout": [tf.bool]}
        token = script_ops._py_funcs.insert(_check)
        check = builder.add(f"{node.name}/check", "PyFunc", [equal, text], token=token, **types)
        inputs = [values[0], f"^{check}"]
        agreed = builder.add(f"{node.name}/agreed", "Identity", inputs, T=dtype)
        return [agreed] * len(group)

    collectives.exchange(builder, node, group, agree)


def _check(is_equal, message):
    if not is_equal:
        message = message.decode()
        # The session may raise the error of another core, which this one cancels.
        print(f"tpu: error: {message}", file=sys.stderr, flush=True)
        raise ValueError(message)
    return is_equal


def before_branch(builder, node):
    """Lets a conditional of version 2 wait for the agreement on its condition."""
    if node.op not in CONDITIONALS or builder.num_cores == 1:
        return
    found = builder.library.collectives(node)
    if found:
        dtype = tf.as_dtype(node.attr["Tcond"].type) if "Tcond" in node.attr else tf.int32
        name = _add(builder, node, node.input[0], dtype, found)
        node.input.append(f"^{name}")


def on_loop_condition(builder, loop, condition):
    """Adds the agreement on the condition of a loop of version 2; returns the name of its result.

    `builder` builds the function that computes the condition; `loop` is the NodeDef.
    """
    found = builder.library.collectives(loop)
    if not found or builder.num_cores == 1:
        return condition
    return _add(builder, loop, condition, tf.bool, found)


def _add(builder, node, condition, dtype, found):
    name = builder.free_name(f"{node.name}/agreement")
    builder.add_copy(_agreement(name, condition, dtype, found, builder.num_cores))
    return name
