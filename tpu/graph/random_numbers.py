"""Random numbers of a step as a function of its number, its replica and the operation's seed.

XLA's own generator has a state that all devices of a process share on a CPU, so a run would not
repeat.
"""

from __future__ import annotations

import functools
import hashlib

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from tpu.graph import nodes as node_defs
from tpu.graph import substitutes
from tpu.graph.replicated_graph import ReplicatedGraph

# Seeds of two replicas differ by this, an odd number, modulo 2**64.
_STRIDE = 0x1E3779B97F4A7C15


def is_random(graph: tf.Graph, program: ReplicatedGraph) -> bool:
    """Returns True if a program draws random numbers, in a function or not."""
    nodes = [op.node_def for name, op in program.operations.items() if name in program.live]
    called = node_defs.all_called(nodes, functools.partial(node_defs.definition, graph))
    inner = (node for function in called.values() for node in function.node_def)
    return any(node.op in OPERATIONS for node in [*nodes, *inner])


def check_function(function) -> None:
    """Raises NotImplementedError if a FunctionDef draws random numbers."""
    for node in function.node_def:
        if node.op in OPERATIONS:
            raise NotImplementedError(f"random numbers ({node.op}) in a loop or conditional")


def rewrite(op: tf.Operation, node, nodes, step_number: tf.Tensor) -> None:
    """Makes the copy of an operation's node stateless, and adds others to `nodes`."""

    def compute(number, *inputs):
        replica = tf.cast(gen_xla_ops.xla_replica_id(), tf.int64)
        seed = tf.stack([_key(op) + replica * _STRIDE, number])
        return OPERATIONS[op.type](op, seed, *inputs)

    data = zip(node_defs.data_inputs(node), op.inputs)
    substitutes.replace(node, nodes, compute, [(step_number.name, step_number), *data])


def _key(op):
    """Returns an int64 for an operation: of its seeds; of its name if it has none."""
    seeds = (op.get_attr("seed"), op.get_attr("seed2"))
    text = repr(seeds if any(seeds) else op.name)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big", signed=True)


def _uniform(op, seed, shape):
    return tf.random.stateless_uniform(shape, seed, dtype=op.get_attr("dtype"))


def _normal(op, seed, shape):
    return tf.random.stateless_normal(shape, seed, dtype=op.get_attr("dtype"))


def _truncated_normal(op, seed, shape):
    return tf.random.stateless_truncated_normal(shape, seed, dtype=op.get_attr("dtype"))


def _uniform_int(op, seed, shape, minval, maxval):
    del op
    return tf.random.stateless_uniform(shape, seed, minval, maxval, dtype=minval.dtype)


def _multinomial(op, seed, logits, num_samples):
    """Samples by the maximum of logits with Gumbel noise."""
    batch, classes = tf.unstack(tf.shape(logits))
    uniform = tf.random.stateless_uniform(tf.stack([batch, num_samples, classes]), seed)
    smallest = uniform.dtype.as_numpy_dtype(2.0**-24)  # half of the generator's step: never log(0)
    noise = -tf.math.log(-tf.math.log(uniform + smallest))
    scores = tf.cast(logits, tf.float32)[:, tf.newaxis] + noise
    return tf.argmax(scores, axis=-1, output_type=op.get_attr("output_dtype"))


def _shuffle(op, seed, value):
    del op
    size = tf.shape(value)[:1]
    keys = tf.random.stateless_uniform(size, seed, None, None, dtype=tf.int32)
    return tf.gather(value, tf.argsort(keys))


# `{type: function(operation, seed, *inputs)}` to a stateless equivalent.
OPERATIONS = {
    "RandomUniform": _uniform,
    "RandomStandardNormal": _normal,
    "TruncatedNormal": _truncated_normal,
    "RandomUniformInt": _uniform_int,
    "Multinomial": _multinomial,
    "RandomShuffle": _shuffle,
}
