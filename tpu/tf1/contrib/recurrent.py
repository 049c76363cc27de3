"""tf.contrib.recurrent: RNNs whose gradient needs no dynamic shapes."""

from __future__ import annotations

import tensorflow as tf

__all__ = ["bidirectional_functional_rnn", "functional_rnn"]


def functional_rnn(
    cell,
    inputs,
    sequence_length=None,
    initial_state=None,
    dtype=None,
    time_major=False,
    scope=None,
    use_tpu=False,
    reverse=False,
):
    """Returns (outputs, final state) of an RNN, as tf.nn.dynamic_rnn, which runs on a TPU today.

    Args:
      cell: an RNNCell.
      inputs: float tensor, [batch, time, depth], or [time, batch, depth] if `time_major`.
      sequence_length: int tensor [batch], or None.
      initial_state: the state before the first step; None for zeros.
      dtype: dtype of the state, if there is no `initial_state`.
      time_major: whether time is the first dimension of the inputs and outputs.
      scope: variable scope of the cell; default "rnn".
      use_tpu: ignored.
      reverse: whether to process the sequence from its end.
    """
    del use_tpu
    if initial_state is None and dtype is None:
        dtype = inputs.dtype

    def flip(tensor):
        return _reverse(tensor, sequence_length, time_major) if reverse else tensor

    outputs, state = tf.compat.v1.nn.dynamic_rnn(
        cell,
        flip(inputs),
        sequence_length=sequence_length,
        initial_state=initial_state,
        dtype=dtype,
        time_major=time_major,
        scope=scope,
    )
    return tf.nest.map_structure(flip, outputs), state


def _reverse(tensor, sequence_length, time_major):
    time, batch = (0, 1) if time_major else (1, 0)
    if sequence_length is None:
        return tf.reverse(tensor, [time])
    return tf.reverse_sequence(tensor, sequence_length, seq_axis=time, batch_axis=batch)


def bidirectional_functional_rnn(
    cell_fw,
    cell_bw,
    inputs,
    initial_state_fw=None,
    initial_state_bw=None,
    dtype=None,
    sequence_length=None,
    time_major=False,
    use_tpu=False,
    fast_reverse=False,
    scope=None,
):
    """Returns ((outputs, outputs of the backward RNN), (state, state of the backward RNN))."""
    del fast_reverse  # A faster kernel for the same result.
    with tf.compat.v1.variable_scope(scope or "bidirectional_rnn"):
        forward, backward = (
            functional_rnn(
                cell,
                inputs,
                sequence_length,
                state,
                dtype,
                time_major,
                direction,
                use_tpu,
                reverse=direction == "bw",
            )
            for cell, state, direction in (
                (cell_fw, initial_state_fw, "fw"),
                (cell_bw, initial_state_bw, "bw"),
            )
        )
    return tuple(zip(forward, backward))
