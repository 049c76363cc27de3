"""Finds the best target of a source, token by token: greedy, or by beam search.

Every tensor has one static shape throughout: this is a part of the graph, on a TPU too.
"""

from __future__ import annotations

import tensorflow as tf

from common.constants import EOS, PAD

# The log probability of what cannot be.
_NEVER = -1e9


def search(step, caches, max_length, params):
    """Returns the best target that `params["beam_size"]` beams find; of one beam, greedily.

    The score of a target is its log probability over ((5 + tokens) / 6) ** length_penalty (Wu et
    al. 2016, arXiv:1609.08144, section 7). Its last token is `EOS`, where `max_length` has room.

    Args:
      step: `(tokens, position, caches) -> (logits, caches)`: from int32 `[batch, beams]`, the
        tokens before `position`, to `[batch, beams, vocab_size]`.
      caches: what `step` starts with, a structure of tensors `[batch, beams, ...]`.
      max_length: of a target, an int.
      params: `seq2seq.default_params`.

    Returns:
      `{"target": int32 [batch, max_length], "score": float32 [batch]}`.
    """
    batch_size = tf.shape(tf.nest.flatten(caches)[0])[0]
    find = _greedy if params["beam_size"] == 1 else _beam_search
    target, score = find(step, caches, batch_size, max_length, params)
    return {"target": tf.ensure_shape(target, [None, max_length]), "score": score}


def _greedy(step, caches, batch_size, max_length, params):
    def goes_on(position, last, target, log_prob, caches):
        del last, log_prob, caches
        return (position < max_length) & ~tf.reduce_all(_has_ended(target))

    def body(position, last, target, log_prob, caches):
        logits, caches = step(last, position, caches)
        log_probs = tf.nn.log_softmax(tf.cast(logits[:, 0], tf.float32))  # [batch, vocab_size]
        ended = _has_ended(target)
        log_prob += tf.where(ended, 0.0, tf.reduce_max(log_probs, axis=1))
        last = tf.argmax(log_probs, axis=1, output_type=tf.int32)
        target = _put(tf.where(ended, PAD, last), target, position)
        return position + 1, last[:, tf.newaxis], target, log_prob, caches

    state = (
        tf.constant(0),
        tf.fill([batch_size, 1], EOS),
        tf.fill([batch_size, max_length], PAD),
        tf.zeros([batch_size]),
        caches,
    )
    _, _, target, log_prob, _ = _loop(goes_on, body, state)
    tokens = tf.math.count_nonzero(target, axis=1, dtype=tf.float32)
    return target, log_prob / _penalty(tokens, params)


def _beam_search(step, caches, batch_size, max_length, params):
    """Keeps as many targets that go on as ones that have ended, best first."""
    beams = params["beam_size"]

    def goes_on(position, last, live, live_log_prob, ended, ended_score, caches):
        del last, live, ended, caches
        # Log probabilities only fall; the longest target divides them most.
        hope = live_log_prob[:, 0] / _penalty(max_length, params)
        return (position < max_length) & tf.reduce_any(hope > ended_score[:, 0])

    def body(position, last, live, live_log_prob, ended, ended_score, caches):
        logits, caches = step(last, position, caches)
        vocab_size = logits.shape.as_list()[-1]
        log_probs = tf.nn.log_softmax(tf.cast(logits, tf.float32))
        log_probs += tf.expand_dims(live_log_prob, -1)
        log_probs = tf.reshape(log_probs, [-1, beams * vocab_size])
        # Of twice as many at least half go on, for each beam can end in one way.
        log_probs, index = tf.math.top_k(log_probs, 2 * beams)  # [batch, 2 * beams]
        parent, token = index // vocab_size, index % vocab_size
        target = _put(token, tf.gather(live, parent, batch_dims=1), position)
        ends = tf.equal(token, EOS)

        length = tf.cast(position + 1, tf.float32)
        score = tf.where(ends, log_probs / _penalty(length, params), _NEVER)
        ended_score, best = tf.math.top_k(tf.concat([ended_score, score], axis=1), beams)
        ended = tf.gather(tf.concat([ended, target], axis=1), best, batch_dims=1)

        live_log_prob, best = tf.math.top_k(tf.where(ends, _NEVER, log_probs), beams)
        live, last, parent = (
            tf.gather(tensor, best, batch_dims=1) for tensor in (target, token, parent)
        )
        caches = tf.nest.map_structure(lambda cache: tf.gather(cache, parent, batch_dims=1), caches)
        return position + 1, last, live, live_log_prob, ended, ended_score, caches

    none = tf.fill([batch_size, beams, max_length], PAD)
    never = tf.fill([batch_size, beams], _NEVER)
    # All beams begin alike: one of them is enough.
    first = tf.concat([tf.zeros([batch_size, 1]), never[:, 1:]], axis=1)
    state = (tf.constant(0), tf.fill([batch_size, beams], EOS), none, first, none, never, caches)
    _, _, live, live_log_prob, ended, ended_score, _ = _loop(goes_on, body, state)

    has_ended = ended_score[:, 0] > _NEVER / 2
    cut_score = live_log_prob[:, 0] / _penalty(max_length, params)
    target = tf.where(has_ended[:, tf.newaxis], ended[:, 0], live[:, 0])
    return target, tf.where(has_ended, ended_score[:, 0], cut_score)


def _loop(goes_on, body, state):
    return tf.compat.v1.while_loop(goes_on, body, state, parallel_iterations=1, back_prop=False)


def _put(token, target, position):
    """Returns `target` `[..., max_length]` with `token` `[...]` at `position`."""
    here = tf.equal(tf.range(target.shape.as_list()[-1]), position)
    return tf.where(here, tf.expand_dims(token, -1), target)


def _has_ended(target):
    return tf.reduce_any(tf.equal(target, EOS), axis=1)


def _penalty(length, params):
    return ((5.0 + length) / 6.0) ** params["length_penalty"]
