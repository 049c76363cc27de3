"""Connectionist temporal classification (Graves et al. 2006, ICML): the loss.

A target is aligned with the frames by blanks between its tokens and by repetition of tokens and
blanks. The loss is -log of the sum of the probabilities of all alignments. TensorFlow's kernel has
no version for a TPU, and the dense form of `tf.nn.ctc_loss` does not compile under XLA. Here the
forward and the backward recursion are loops of static shape over the frames.

Sizes: batch; frames; tokens, the most of a target; states = 2 * tokens + 1, the tokens of a target
with a blank before, between and after them. Token 0 is the blank, and the padding of targets.
"""

from __future__ import annotations

import tensorflow as tf

BLANK = 0
# Log probability of an impossible state. Finite: differences of infinities are NaN.
_IMPOSSIBLE = -1e30


def num_required_frames(targets):
    """Returns int32 `[batch]`, frames that a target needs: a blank separates equal tokens.

    Args:
      targets: int32 `[batch, tokens]`, padded with `BLANK`.
    """
    is_token = tf.cast(tf.not_equal(targets, BLANK), tf.int32)
    is_repeated = tf.cast(tf.equal(targets[:, 1:], targets[:, :-1]), tf.int32) * is_token[:, 1:]
    return tf.reduce_sum(is_token, axis=1) + tf.reduce_sum(is_repeated, axis=1)


def loss(targets, logits, num_frames):
    """CTC loss of each example, differentiable in `logits`.

    Each step of a recursion subtracts the largest log probability, and the posterior of each frame
    is normalized, so that gradients are as exact for long inputs as for short ones.

    Args:
      targets: int32 `[batch, tokens]`, padded with `BLANK`.
      logits: float32 `[batch, frames, vocab_size]`.
      num_frames: int32 `[batch]`, in [0, frames]. Later frames have no effect and gradients of 0.

    Returns:
      float32 `[batch]`. 0, with gradients of 0, for a target that needs more frames than there are
      (see `num_required_frames`), like `ignore_longer_outputs_than_inputs` of
      `tf.compat.v1.nn.ctc_loss`, and for an example without frames.
    """
    frames, vocab_size = logits.shape.as_list()[1:]
    states = _states(targets)  # [batch, states]
    can_skip = _can_skip(states)
    num_states = 2 * tf.math.count_nonzero(targets, axis=1, dtype=tf.int32) + 1
    is_valid = (num_required_frames(targets) <= num_frames) & (num_frames > 0)
    # The alignment ends with the last token or the blank after it.
    is_final = _is_between(tf.shape(states)[1], num_states - 2, num_states)
    in_input = tf.transpose(_is_between(frames, tf.zeros_like(num_frames), num_frames))

    @tf.custom_gradient
    def compute(logits):
        log_probs = tf.nn.log_softmax(logits)
        emissions = tf.gather(log_probs, states, axis=2, batch_dims=1)  # [batch, frames, states]
        emissions = tf.transpose(emissions, [1, 0, 2])
        forward, log_scale = _forward(emissions, can_skip, in_input)
        final = tf.reduce_logsumexp(tf.where(is_final, forward[-1], _IMPOSSIBLE), axis=1)
        losses = tf.where(is_valid, -(final + log_scale[-1]), 0.0)

        def gradient(upstream):
            backward = _backward(emissions, can_skip, is_final, num_frames)
            posterior = tf.transpose(tf.nn.softmax(forward + backward), [1, 0, 2])
            # A matrix product: a TPU has no fast scatter.
            one_hot = tf.one_hot(states, vocab_size, dtype=logits.dtype)
            expected = tf.matmul(posterior, one_hot)  # [batch, frames, vocab_size]
            is_used = tf.transpose(in_input) & is_valid[:, tf.newaxis]
            difference = tf.where(is_used[..., tf.newaxis], tf.exp(log_probs) - expected, 0.0)
            return upstream[:, tf.newaxis, tf.newaxis] * difference

        return losses, gradient

    return compute(logits)


def _states(targets):
    """Returns int32 `[batch, states]`, the tokens with a blank before, between and after them."""
    with_blanks = tf.stack([tf.fill(tf.shape(targets), BLANK), targets], axis=2)
    batch, tokens = targets.shape.as_list()
    with_blanks = tf.reshape(with_blanks, [batch or -1, 2 * tokens])
    return tf.pad(with_blanks, [[0, 0], [0, 1]], constant_values=BLANK)


def _can_skip(states):
    """Returns bool `[batch, states]`, whether a state may follow the state two before it."""
    before = tf.pad(states[:, :-2], [[0, 0], [2, 0]], constant_values=BLANK)
    return tf.not_equal(states, BLANK) & tf.not_equal(states, before)


def _is_between(size, start, end):
    """Returns bool `[batch, size]`, whether an index is in [start, end), each int32 `[batch]`."""
    index = tf.range(size)
    return (index >= start[:, tf.newaxis]) & (index < end[:, tf.newaxis])


def _forward(emissions, can_skip, in_input):
    """Forward recursion over the frames.

    Args:
      emissions: float32 `[frames, batch, states]`, log probabilities of the states' tokens.
      can_skip: bool `[batch, states]`.
      in_input: bool `[frames, batch]`, False for frames after the end: they change nothing.

    Returns:
      float32 `[frames, batch, states]`, log probabilities of all alignments up to a frame that are
      in a state there, with 0 for the most probable state; and the log of their scale, float32
      `[frames, batch]`.
    """

    def step(carry, inputs):
        alpha, log_scale = carry
        emission, is_in_input = inputs
        moved = _log_add(alpha, _shift(alpha, 1), _shift(alpha, 2, can_skip)) + emission
        peak = tf.reduce_max(moved, axis=1, keepdims=True)
        alpha = tf.where(is_in_input[:, tf.newaxis], moved - peak, alpha)
        return alpha, log_scale + tf.where(is_in_input, peak[:, 0], 0.0)

    # Before the first frame: the state before the first blank, so that the first two are reached.
    start = tf.where(tf.equal(tf.range(tf.shape(can_skip)[1]), 0), 0.0, _IMPOSSIBLE)
    start = tf.broadcast_to(start, tf.shape(can_skip))
    return _scan(step, (emissions, in_input), (start, tf.zeros_like(start[:, 0])))


def _backward(emissions, can_skip, is_final, num_frames):
    """Backward recursion over the frames.

    Args:
      emissions: float32 `[frames, batch, states]`.
      can_skip: bool `[batch, states]`.
      is_final: bool `[batch, states]`, states that end an alignment.
      num_frames: int32 `[batch]`.

    Returns:
      float32 `[frames, batch, states]`, log probabilities of the alignments after a frame from a
      state there, up to a term that depends on the frame only.
    """
    final = tf.where(is_final, 0.0, _IMPOSSIBLE)
    can_be_skipped_to = tf.pad(can_skip[:, 2:], [[0, 0], [0, 2]])

    def step(beta, inputs):
        emission, frame = inputs
        reached = beta + emission
        moved = _log_add(reached, _shift(reached, -1), _shift(reached, -2, can_be_skipped_to))
        moved -= tf.reduce_max(moved, axis=1, keepdims=True)
        is_last = (frame >= num_frames - 1)[:, tf.newaxis]
        return tf.where(is_last, final, moved)

    # The emission of the next frame; the last frame has none.
    following = tf.concat([emissions[1:], tf.zeros_like(emissions[:1])], axis=0)
    return _scan(step, (following, tf.range(tf.shape(emissions)[0])), final, reverse=True)


def _scan(step, elements, initial, reverse=False):
    return tf.scan(step, elements, initial, parallel_iterations=1, reverse=reverse)


def _shift(values, by, mask=None):
    """Returns `values` `[batch, states]` moved `by` states, impossible where it is undefined."""
    padding = [[0, 0], [max(by, 0), max(-by, 0)]]
    padded = tf.pad(values, padding, constant_values=_IMPOSSIBLE)
    shifted = padded[:, :-by] if by > 0 else padded[:, -by:]
    return shifted if mask is None else tf.where(mask, shifted, _IMPOSSIBLE)


def _log_add(*values):
    """Returns the log of the sum of the exponentials of three finite tensors, finite."""
    peak = tf.maximum(tf.maximum(values[0], values[1]), values[2])
    return peak + tf.math.log(tf.add_n([tf.exp(value - peak) for value in values]))
