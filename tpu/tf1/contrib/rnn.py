"""tf.contrib.rnn."""

from __future__ import annotations

import tensorflow as tf

__all__ = ["stack_bidirectional_dynamic_rnn", "transpose_batch_time"]


def transpose_batch_time(x):
    """Returns a tensor with its first two dimensions swapped."""
    return tf.transpose(x, [1, 0, *range(2, x.shape.rank)])


def stack_bidirectional_dynamic_rnn(
    cells_fw,
    cells_bw,
    inputs,
    initial_states_fw=None,
    initial_states_bw=None,
    dtype=None,
    sequence_length=None,
    parallel_iterations=None,
    time_major=False,
    scope=None,
    swap_memory=False,
):
    """Returns (outputs, states, backward states) of layers of bidirectional RNNs.

    The arguments are those of tf.nn.bidirectional_dynamic_rnn, with a list of cells and states for
    each direction. The input of a layer is the concatenated output of both directions below.
    """
    if not cells_fw or len(cells_fw) != len(cells_bw):
        raise ValueError(f"{len(cells_fw)} forward and {len(cells_bw)} backward cells")
    none = [None] * len(cells_fw)
    states = [], []
    with tf.compat.v1.variable_scope(scope or "stack_bidirectional_rnn"):
        layers = zip(cells_fw, cells_bw, initial_states_fw or none, initial_states_bw or none)
        for i, (forward, backward, *initial) in enumerate(layers):
            with tf.compat.v1.variable_scope(f"cell_{i}"):
                outputs, last = tf.compat.v1.nn.bidirectional_dynamic_rnn(
                    forward,
                    backward,
                    inputs,
                    sequence_length,
                    *initial,
                    dtype=dtype,
                    parallel_iterations=parallel_iterations,
                    swap_memory=swap_memory,
                    time_major=time_major,
                )
            inputs = tf.concat(outputs, axis=2)
            for kept, state in zip(states, last):
                kept.append(state)
    return (inputs, *map(tuple, states))
