"""Autoregressive decoding in the graph: greedy decoding and beam search, with a cache.

All shapes are static, so that it runs on a TPU.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

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
    """Beam search of targets that end with `EOS`; see `search`."""
    beams = params["beam_size"]

    def log_probs_of_step(tokens, position, caches):
        logits, caches = step(tokens, position, caches)
        return _log_probs(logits), caches

    def score(log_prob, length):
        return log_prob / _penalty(tf.cast(length, tf.float32), params)

    def may_improve(live_log_prob, ended_score, length):
        del length
        # Bound: log probabilities only decrease, and the longest target has the largest penalty.
        return live_log_prob[:, 0] / _penalty(max_length, params) > ended_score[:, 0]

    rules = BeamRules(
        beam_size=beams,
        # At least half of them stay live, since each beam has one way to end.
        num_candidates=2 * beams,
        num_ending=2 * beams,
        ends=lambda token, position: tf.equal(token, EOS),
        score=score,
        may_improve=may_improve,
    )
    last, possible = tf.fill([batch_size], EOS), tf.fill([batch_size], True)
    best = beam_search(log_probs_of_step, caches, last, possible, max_length, rules)
    target = tf.where(best["length"][:, tf.newaxis] > tf.range(max_length), best["tokens"], PAD)
    return target, best["score"]


@dataclasses.dataclass(frozen=True)
class BeamRules:
    """Which targets of a beam search end, and which are the best.

    Attributes:
      beam_size: live targets, and ended ones that are kept.
      num_candidates: most probable continuations of the live targets that are looked at.
      num_ending: how many of these, the most probable ones, may end.
      ends: `(token, position) -> bool`, of int32 `[batch, num_candidates]` at the scalar position.
      score: `(log_prob, length) -> score`, float32 `[batch, ...]`, of targets of `length` tokens.
      may_improve: `(live_log_prob, ended_score, length) -> bool [batch]`, whether live targets of
        `length` tokens are extended; the first two are float32 `[batch, beam_size]`, best first.
    """

    beam_size: int
    num_candidates: int
    num_ending: int
    ends: Callable
    score: Callable
    may_improve: Callable


def beam_search(step, caches, last, possible, max_length, rules):
    """Keeps the `beam_size` best live and the `beam_size` best ended targets.

    The state of the loop, best target first:
      position: int32 scalar.
      last: int32 `[batch, beams]`, the last token of each live target.
      live: targets that have not ended: a dict of `tokens`, int32, and `log_probs`, float32
        `[batch, beams, max_length]`, and `length`, int32 `[batch, beams]`.
      live_log_prob: float32 `[batch, beams]`.
      ended: like `live`.
      ended_score: float32 `[batch, beams]`.
      caches: of the live targets.

    Args:
      step: like that of `search`, with log probabilities instead of logits, -1e9 or less for
        impossible tokens.
      caches: see `search`.
      last: int32 `[batch]`, the token before each target.
      possible: bool `[batch]`, whether there is room for a target.
      max_length: int, the most tokens of a target.
      rules: `BeamRules`.

    Returns:
      The best ended target of each row, or the best live one if none ended: a dict of `tokens`,
      int32 `[batch, max_length]`; `log_probs`, float32, of its tokens; `length`, int32 `[batch]`,
      0 without room;
      and `score`, float32 `[batch]`.
    """
    beams, batch_size = rules.beam_size, tf.shape(last)[0]

    def is_unfinished(position, last, live, live_log_prob, ended, ended_score, caches):
        del last, live, ended, ended_score, caches
        return (position < max_length) & tf.reduce_any(live_log_prob > _IMPOSSIBLE / 2)

    def body(position, last, live, live_log_prob, ended, ended_score, caches):
        log_probs, caches = step(last, position, caches)
        vocab_size = log_probs.shape.as_list()[-1]
        totals = tf.reshape(log_probs + live_log_prob[..., tf.newaxis], [-1, beams * vocab_size])
        total, index = tf.math.top_k(totals, rules.num_candidates)  # [batch, num_candidates]
        parent, token = index // vocab_size, index % vocab_size
        log_prob = tf.gather(tf.reshape(log_probs, tf.shape(totals)), index, batch_dims=1)
        target = _extended(_gathered(live, parent), token, log_prob, position)

        ends = rules.ends(token, position)
        # Divided by a length, an impossible target would have the score of a possible one.
        can_end = ends & (total > _IMPOSSIBLE / 2)
        can_end &= tf.range(rules.num_candidates) < rules.num_ending
        score = tf.where(can_end, rules.score(total, position + 1), _IMPOSSIBLE)
        ended_score, best = tf.math.top_k(tf.concat([ended_score, score], axis=1), beams)
        both = tf.nest.map_structure(lambda *of: tf.concat(of, axis=1), ended, target)
        ended = _gathered(both, best)

        live_log_prob, best = tf.math.top_k(tf.where(ends, _IMPOSSIBLE, total), beams)
        live, last, parent = _gathered((target, token, parent), best)
        is_open = rules.may_improve(live_log_prob, ended_score, position + 1)
        live_log_prob = tf.where(is_open[:, tf.newaxis], live_log_prob, _IMPOSSIBLE)
        return (
            position + 1,
            last,
            live,
            live_log_prob,
            ended,
            ended_score,
            _gathered(caches, parent),
        )

    shape = [batch_size, beams, max_length]
    empty = {
        "tokens": tf.zeros(shape, tf.int32),
        "log_probs": tf.zeros(shape),
        "length": tf.zeros(shape[:2], tf.int32),
    }
    impossible = tf.fill(shape[:2], _IMPOSSIBLE)
    # All beams start with the same target: only the first one is possible.
    first = tf.where(possible[:, tf.newaxis] & tf.equal(tf.range(beams), 0), 0.0, _IMPOSSIBLE)
    last = tf.tile(last[:, tf.newaxis], [1, beams])
    state = tf.constant(0), last, empty, first, empty, impossible, caches
    _, _, live, live_log_prob, ended, ended_score, _ = _loop(is_unfinished, body, state)

    has_ended = ended_score[:, 0] > _IMPOSSIBLE / 2
    live_score = rules.score(live_log_prob[:, 0], max_length)
    best = {
        name: tf.where(
            tf.reshape(has_ended, [-1] + [1] * (of.shape.rank - 2)), of[:, 0], live[name][:, 0]
        )
        for name, of in ended.items()
    }
    best["length"] = tf.where(possible, best["length"], 0)
    return {**best, "score": tf.where(has_ended, ended_score[:, 0], live_score)}


def _extended(target, token, log_prob, position):
    """Returns targets, see `beam_search`, with a token `[batch, targets]` at `position`."""
    return {
        "tokens": _set_token(token, target["tokens"], position),
        "log_probs": _set_token(log_prob, target["log_probs"], position),
        "length": target["length"] + 1,
    }


def _gathered(tensors, index):
    """Returns the rows `index` of each tensor `[batch, rows, ...]` of a structure."""
    return tf.nest.map_structure(lambda tensor: tf.gather(tensor, index, batch_dims=1), tensors)


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
