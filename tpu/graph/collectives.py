"""Collectives of a step in HLO: all-reduce, exchange of parts, permutation.

Of these, XLA on a CPU lowers only CollectiveReduceV2. It stands for all of them, and becomes in the
HLO the instruction that TensorFlow's kernel of a TPU makes.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from tpu.graph import nodes as node_defs
from tpu.graph import substitutes

_OPCODES = {
    "AllToAll": "all-to-all",
    "CollectivePermute": "collective-permute",
    "CrossReplicaSum": "all-reduce",
}
KINDS = tuple(_OPCODES)
# XLA accepts one configuration for all collectives; `finish` sets the real groups.
_CONFIGURATION = {"group_size": 8, "group_key": 1, "instance_key": 1}
# Of CollectiveReduceV2. Integers of other types are exchanged as one of these.
_DTYPES = (tf.bfloat16, tf.float16, tf.float32, tf.float64, tf.int32, tf.int64)


class Collective(NamedTuple):
    """An instruction in HLO.

    Attributes:
      opcode: "all-reduce", "all-to-all" or "collective-permute".
      groups: lists of replicas; pairs (source, target) of a permutation.
      dimension: that of the parts that all-to-all exchanges.
    """

    opcode: str
    groups: list
    dimension: int


def rewrite(node, library, groups, found: dict[str, Collective]) -> None:
    """Replaces the NodeDef of a collective by one that XLA on a CPU lowers; see `finish`.

    Args:
      node: of one of `KINDS`, in a graph or in a function.
      library: the FunctionDefLibrary of its graph.
      groups: the value of its second input.
      found: the collectives so far, by the end of the path of their nodes; gets this one.

    Raises:
      NotImplementedError: a dtype that cannot be exchanged, such as complex64.
    """
    original, name = node_defs.copy_of(node), f"collective_{len(found)}"
    dtype = tf.as_dtype(node.attr["T"].type)
    split, concat = (node.attr[f"{side}_dimension"].i for side in ("split", "concat"))
    carrier = dtype
    if dtype not in _DTYPES:
        carrier = tf.int64 if dtype == tf.uint64 else tf.int32
        if not (dtype.is_integer or dtype.is_bool):
            raise NotImplementedError(f"{node.name} exchanges {dtype.name} between cores")

    def compute(value):
        result = tf.raw_ops.CollectiveReduceV2(
            input=tf.cast(value, carrier),
            **_CONFIGURATION,
            ordering_token=[],
            merge_op="Add",
            final_op="Id",
            name=name,
        )
        if original.op == "AllToAll" and split != concat:
            result = tf.concat(tf.split(result, original.attr["split_count"].i, split), concat)
        return tf.identity(tf.cast(result, dtype))

    value = (node_defs.data_inputs(node)[0], tf.TensorSpec(None, dtype))
    substitutes.replace(node, library, compute, [value])
    found[name] = Collective(_OPCODES[original.op], groups, split)


def finish(instructions, found: dict[str, Collective]) -> None:
    """Makes the all-reduces of HLO what they stand for."""
    for instruction in instructions:
        if instruction.opcode != "all-reduce":
            continue
        path, _, name = instruction.metadata.op_name.rpartition("/")
        collective, instruction.metadata.op_name = found[name], path
        instruction.opcode, instruction.channel_id = collective.opcode, 0
        del instruction.replica_groups[:]
        if collective.opcode != "all-reduce":
            del instruction.called_computation_ids[:]
        if collective.opcode == "collective-permute":
            for source, target in collective.groups:
                instruction.source_target_pairs.add(source=source, target=target)
            continue
        if collective.opcode == "all-to-all":
            instruction.dimensions.append(collective.dimension)
        for group in collective.groups:
            instruction.replica_groups.add(replica_ids=group)
