"""Random numbers of a step as a function of its number, its replica and the operation's seed.

XLA's own generator has a state that all devices of a process share on a CPU, so a run would not
repeat.
"""

from __future__ import annotations

import hashlib

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from tpu.graph import nodes as node_defs
from tpu.graph import substitutes
from tpu.graph.replicated_graph import ReplicatedGraph

# Seeds of two replicas differ by this, an odd number, modulo 2**64.
_STRIDE = 0x1E3779B97F4A7C15
# Odd numbers: a call multiplies the number of the step by one and adds a hash of its name; each
# iteration of a loop adds the other. So two calls, steps or iterations of nested loops differ.
_CALL, _ITERATION = 0x5851F42D4C957F2D, 0x14057B7EF767814F
_NUMBER = tf.TensorSpec([], tf.int64)


def is_random(graph: tf.Graph, program: ReplicatedGraph) -> bool:
    """Returns True if a program draws random numbers, in a function or not."""
    nodes = [op.node_def for name, op in program.operations.items() if name in program.live]
    return any(node.op in OPERATIONS for node in node_defs.with_inner(nodes, graph))


def make_stateless(graph_def, step_number: tf.Tensor) -> None:
    """Makes the random operations of a GraphDef stateless, in its functions, too.

    A function that draws random numbers gets the number of the step as its last argument. Each call
    passes another number than its caller has, and each iteration of a loop has another one.

    Args:
      graph_def: the nodes and the functions; changed.
      step_number: int64 `[]`, an input of the nodes.

    Raises:
      NotImplementedError: random numbers in a function that is not called, such as a reduction's.
    """
    functions = {function.signature.name: function for function in graph_def.library.function}
    random, bodies = _random_functions(graph_def.node, functions)
    rewriter = _Rewriter(graph_def.library, functions, random)
    rewriter.rewrite(graph_def.node, step_number.name, "{}")
    for name in sorted(random):
        rewriter.rewrite_function(functions[name], name in bodies)


def _random_functions(nodes, functions):
    """Finds the called functions that draw random numbers, directly or not.

    With a condition or a branch, the others of its operation: they have the same arguments.

    Returns:
      (their names, names of all functions that are the body of a loop).
    """
    called = node_defs.all_called(nodes, functions.get)
    callers = [(None, node) for node in nodes]
    callers += [(name, node) for name, function in called.items() for node in function.node_def]
    random = {name for name, node in callers if name and node.op in OPERATIONS}
    size = -1
    while size < len(random):
        size = len(random)
        for caller, node in callers:
            names = node_defs.called(node, functions.get)
            if random.intersection(names):
                random.update(names, [caller] if caller else [])
    bodies = {node.attr["body"].func.name for _, node in callers if node.op in node_defs.LOOPS}
    return random, bodies


class _Rewriter:
    """Rewrites the nodes of a GraphDef, and the functions of the names `random`."""

    def __init__(self, library, functions, random):
        self._library, self._functions, self._random = library, functions, random

    def rewrite(self, nodes, number, output):
        """Makes operations stateless, and passes the number of the step to functions.

        Args:
          nodes: of a GraphDef or of a FunctionDef.
          number: name of the number of the step among them.
          output: format of the name of a node's output among them.
        """
        for node in list(nodes):
            if node.op in OPERATIONS:
                self._replace(node, number)
            elif self._random.intersection(node_defs.called(node, self._functions.get)):
                offset = _hash(node.name)
                own = self._compute(nodes, number, lambda x, offset=offset: x * _CALL + offset)
                self._pass(node, output.format(own))

    def rewrite_function(self, function, is_body):
        """Adds the argument to a function, and rewrites its nodes."""
        taken = {argument.name for argument in function.signature.input_arg}
        number = node_defs.free_name("step_number", taken.union(n.name for n in function.node_def))
        function.signature.input_arg.add(name=number, type=tf.int64.as_datatype_enum)
        self.rewrite(function.node_def, number, "{}:output:0")
        if is_body:
            following = self._compute(function.node_def, number, lambda x: x + _ITERATION)
            result = node_defs.free_name("next_step_number", function.ret)
            function.signature.output_arg.add(name=result, type=tf.int64.as_datatype_enum)
            function.ret[result] = f"{following}:output:0"

    def _replace(self, node, number):
        original = node_defs.copy_of(node)

        def compute(number, *inputs):
            replica = tf.cast(gen_xla_ops.xla_replica_id(), tf.int64)
            seed = tf.stack([_key(original) + replica * _STRIDE, number])
            return OPERATIONS[original.op](original, seed, *inputs)

        specs = [tf.TensorSpec(None, dtype) for dtype in node_defs.input_types(node)]
        data = zip(node_defs.data_inputs(node), specs)
        substitutes.replace(node, self._library, compute, [(number, _NUMBER), *data])

    def _compute(self, nodes, number, compute):
        """Adds a node that computes another number; returns its name."""
        node = nodes.add(name=f"step_number/{len(nodes)}")
        substitutes.replace(node, self._library, compute, [(number, _NUMBER)])
        return node.name

    def _pass(self, node, number):
        """Adds a number to the arguments of the functions that a node calls."""
        if node.op in node_defs.LOOPS:
            types = [node.attr["T"]]
            if "output_shapes" in node.attr and node.attr["output_shapes"].list.shape:
                node.attr["output_shapes"].list.shape.add()
        elif node.op in node_defs.CONDITIONALS or node.op in node_defs.CALLS:
            types = [node.attr["Tin"]]
        elif node.op in self._functions:
            types = []
        else:
            raise NotImplementedError(f"random numbers in a function of {node.op}")
        for attribute in types:
            attribute.list.type.append(tf.int64.as_datatype_enum)
        inputs = [*node_defs.data_inputs(node), number]
        node_defs.set_inputs(node, [*inputs, *node_defs.control_inputs(node)])


def _key(node):
    """Returns an int64 for an operation: of its seeds; of its name if it has none."""
    seeds = (node.attr["seed"].i, node.attr["seed2"].i)
    return _hash(repr(seeds if any(seeds) else node.name))


def _hash(text):
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big", signed=True)


def _dtype(node):
    return tf.as_dtype(node.attr["dtype"].type)


def _uniform(node, seed, shape):
    return tf.random.stateless_uniform(shape, seed, dtype=_dtype(node))


def _normal(node, seed, shape):
    return tf.random.stateless_normal(shape, seed, dtype=_dtype(node))


def _truncated_normal(node, seed, shape):
    return tf.random.stateless_truncated_normal(shape, seed, dtype=_dtype(node))


def _uniform_int(node, seed, shape, minval, maxval):
    del node
    return tf.random.stateless_uniform(shape, seed, minval, maxval, dtype=minval.dtype)


def _multinomial(node, seed, logits, num_samples):
    """Samples by the maximum of logits with Gumbel noise."""
    batch, classes = tf.unstack(tf.shape(logits), 2)
    uniform = tf.random.stateless_uniform(tf.stack([batch, num_samples, classes]), seed)
    smallest = uniform.dtype.as_numpy_dtype(2.0**-24)  # half of the generator's step: never log(0)
    noise = -tf.math.log(-tf.math.log(uniform + smallest))
    scores = tf.cast(logits, tf.float32)[:, tf.newaxis] + noise
    return tf.argmax(scores, axis=-1, output_type=tf.as_dtype(node.attr["output_dtype"].type))


def _shuffle(node, seed, value):
    del node
    size = tf.shape(value)[:1]
    keys = tf.random.stateless_uniform(size, seed, None, None, dtype=tf.int32)
    return tf.gather(value, tf.argsort(keys))


# `{type: function(NodeDef, seed, *inputs)}` to a stateless equivalent.
OPERATIONS = {
    "RandomUniform": _uniform,
    "RandomStandardNormal": _normal,
    "TruncatedNormal": _truncated_normal,
    "RandomUniformInt": _uniform_int,
    "Multinomial": _multinomial,
    "RandomShuffle": _shuffle,
}
