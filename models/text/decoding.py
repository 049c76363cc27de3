"""Autoregressive decoding in the graph: greedy decoding and beam search, with a cache.

All shapes are static, so that it runs on a TPU.
"""

from __future__ import annotations

import tensorflow as tf

from common.constants import EOS, PAD

# Log probability and score of an impossible target.
_IMPOSSIBLE = -1e9


def search(step, caches, max_length, params):
    """Beam search with `params["beam_size"]` beams; greedy decoding with one.

    The score of a target is its log probability divided by the length penalty
    `((5 + num_tokens) / 6) ** length_penalty` (Wu et al. 2016, arXiv:1609.08144, section 7). `PAD`
    is never a token of a target, however probable it is.

    Args:
      step: `(tokens, position, caches) -> (logits, caches)`. `tokens`, int32 `[batch, beams]`, are
        at `position - 1`, `EOS` at the start; `position` is an int32 scalar tensor; `logits` are
        `[batch, beams, vocab_size]`.
      caches: initial key/value caches of `step`, a structure of tensors `[batch, beams, ...]`.
      max_length: int, the most tokens of a target, `EOS` included.
      params: see `seq2seq.default_params`.

    Returns:
      `{"target": int32 [batch, max_length], "score": float32 [batch]}`. A target ends with `EOS`,
      unless it has max_length tokens, and is padded with `PAD`.
    """
    batch_size = tf.shape(tf.nest.flatten(caches)[0])[0]
    decode = _greedy if params["beam_size"] == 1 else _beam_search
    target, score = decode(step, caches, batch_size, max_length, params)
    return {"target": tf.ensure_shape(target, [None, max_length]), "score": score}


def _greedy(step, caches, batch_size, max_length, params):
    """Greedy decoding: the most probable token at each position; see `search`."""

    def is_unfinished(position, last, target, log_prob, caches):
        del last, log_prob, caches
        return (position < max_length) & ~tf.reduce_all(_has_ended(target))

    def body(position, last, target, log_prob, caches):
        logits, caches = step(last, position, caches)
        log_probs = _log_probs(logits[:, 0])  # [batch, vocab_size]
        ended = _has_ended(target)
        log_prob += tf.where(ended, 0.0, tf.reduce_max(log_probs, axis=1))
        last = tf.argmax(log_probs, axis=1, output_type=tf.int32)
        target = _set_token(tf.where(ended, PAD, last), target, position)
        return position + 1, last[:, tf.newaxis], target, log_prob, caches

    state = (
        tf.constant(0),
        tf.fill([batch_size, 1], EOS),
        tf.fill([batch_size, max_length], PAD),
        tf.zeros([batch_size]),
        caches,
    )
    _, _, target, log_prob, _ = _loop(is_unfinished, body, state)
    tokens = tf.math.count_nonzero(target, axis=1, dtype=tf.float32)
    return target, log_prob / _penalty(tokens, params)


def _beam_search(step, caches, batch_size, max_length, params):
    """Keeps the `beam_size` best live and the `beam_size` best ended targets; see `search`.

    The state of the loop, best target first:
      position: int32 scalar.
      last: int32 `[batch, beams]`, the last token of each live target.
      live: int32 `[batch, beams, max_length]`, targets without `EOS`.
      live_log_prob: float32 `[batch, beams]`.
      ended: int32 `[batch, beams, max_length]`, targets that end with `EOS`.
      ended_score: float32 `[batch, beams]`.
      caches: of the live targets.
    """
    beams = params["beam_size"]

    def is_unfinished(position, last, live, live_log_prob, ended, ended_score, caches):
        del last, live, ended, caches
        # Bound: log probabilities only decrease, and the longest target has the largest penalty.
        bound = live_log_prob[:, 0] / _penalty(max_length, params)
        return (position < max_length) & tf.reduce_any(bound > ended_score[:, 0])

    def body(position, last, live, live_log_prob, ended, ended_score, caches):
        logits, caches = step(last, position, caches)
        vocab_size = logits.shape.as_list()[-1]
        log_probs = _log_probs(logits) + tf.expand_dims(live_log_prob, -1)
        log_probs = tf.reshape(log_probs, [-1, beams * vocab_size])
        # At least half of twice as many stay live, since each beam has one way to end.
        log_probs, index = tf.math.top_k(log_probs, 2 * beams)  # [batch, 2 * beams]
        parent, token = index // vocab_size, index % vocab_size
        target = _set_token(token, tf.gather(live, parent, batch_dims=1), position)
        ends = tf.equal(token, EOS)

        length = tf.cast(position + 1, tf.float32)
        # A large penalty would make the score of an impossible target that of a possible one.
        can_end = ends & (log_probs > _IMPOSSIBLE / 2)
        score = tf.where(can_end, log_probs / _penalty(length, params), _IMPOSSIBLE)
        ended_score, best = tf.math.top_k(tf.concat([ended_score, score], axis=1), beams)
        ended = tf.gather(tf.concat([ended, target], axis=1), best, batch_dims=1)

        live_log_prob, best = tf.math.top_k(tf.where(ends, _IMPOSSIBLE, log_probs), beams)
        live, last, parent = (
            tf.gather(tensor, best, batch_dims=1) for tensor in (target, token, parent)
        )
        caches = tf.nest.map_structure(lambda cache: tf.gather(cache, parent, batch_dims=1), caches)
        return position + 1, last, live, live_log_prob, ended, ended_score, caches

    empty = tf.fill([batch_size, beams, max_length], PAD)
    impossible = tf.fill([batch_size, beams], _IMPOSSIBLE)
    # All beams start with the same target: only the first one is possible.
    first = tf.concat([tf.zeros([batch_size, 1]), impossible[:, 1:]], axis=1)
    state = (
        tf.constant(0),
        tf.fill([batch_size, beams], EOS),
        empty,
        first,
        empty,
        impossible,
        caches,
    )
    _, _, live, live_log_prob, ended, ended_score, _ = _loop(is_unfinished, body, state)

    has_ended = ended_score[:, 0] > _IMPOSSIBLE / 2
    live_score = live_log_prob[:, 0] / _penalty(max_length, params)
    target = tf.where(has_ended[:, tf.newaxis], ended[:, 0], live[:, 0])
    return target, tf.where(has_ended, ended_score[:, 0], live_score)


def _log_probs(logits):
    """Returns the log probabilities of the next token, float32; `_IMPOSSIBLE` for `PAD`."""
    log_probs = tf.nn.log_softmax(tf.cast(logits, tf.float32))
    is_padding = tf.equal(tf.range(logits.shape.as_list()[-1]), PAD)
    return tf.where(is_padding, _IMPOSSIBLE, log_probs)


def _loop(is_unfinished, body, state):
    return tf.compat.v1.while_loop(
        is_unfinished, body, state, parallel_iterations=1, back_prop=False
    )


def _set_token(token, target, position):
    """Returns `target` `[..., max_length]` with `token` `[...]` at `position`."""
    is_position = tf.equal(tf.range(target.shape.as_list()[-1]), position)
    return tf.where(is_position, tf.expand_dims(token, -1), target)


def _has_ended(target):
    """Returns bool `[batch]` from int32 `[batch, max_length]`."""
    return tf.reduce_any(tf.equal(target, EOS), axis=1)


def _penalty(length, params):
    """Returns the length penalty of a target of `length` tokens."""
    return ((5.0 + length) / 6.0) ** params["length_penalty"]
