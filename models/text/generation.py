"""Continues prompts token by token, with a key/value cache: greedy, sampling, beam search.

All shapes but the batch are static, so that it runs on a TPU. Random numbers are a function of the
seed of a prompt and the position, so that a continuation does not depend on its batch.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from common.params import Ints
from models.layers import attention
from models.model import ModelError, check_not_negative, check_positive
from models.text import decoding

_IMPOSSIBLE = -np.inf
_SEEDS = 1_000_003  # between those of one `sampling_seed` and the next


def default_params():
    """Returns the hyperparameters of `generate`."""
    return {
        "temperature": 1.0,  # logits are divided by it; 0: greedy decoding
        "top_k": 0,  # samples from the k most probable tokens; 0: from all
        # Samples from the fewest tokens whose probabilities sum to it (Holtzman et al. 2019,
        # arXiv:1904.09751); 1: from all.
        "top_p": 1.0,
        # Divides positive logits of tokens that the row has already, and multiplies negative ones
        # (Keskar et al. 2019, arXiv:1909.05858); 1: off.
        "repetition_penalty": 1.0,
        "max_new_tokens": 0,  # of a continuation; 0: as many as fit into a row
        "stop_tokens": Ints(),  # ids that end a continuation, besides the end of text
        "sampling_seed": 0,  # another one gives other samples
        "beam_size": 1,  # above 1: beam search
        # Beam search divides log probabilities by `tokens ** length_penalty`, of the continuation.
        "length_penalty": 1.0,
        "num_tokens": 50257,  # ids with a meaning, vocab_size without padding; set by the data set
        "end_of_text": 50256,  # id of the end of a text; set by the data set
    }


def check_params(params):
    """Raises `ModelError` for a value of `default_params` out of range."""
    check_not_negative(params, "temperature", "top_k", "max_new_tokens", "length_penalty")
    check_positive(params, "repetition_penalty", "beam_size")
    if not 0 < params["top_p"] <= 1:
        raise ModelError(f"top_p={params['top_p']} must be above 0 and at most 1")
    if params["top_k"] > params["num_tokens"]:
        raise ModelError(
            f"top_k={params['top_k']} must be at most {params['num_tokens']}, the vocabulary"
        )
    for name in ("end_of_text", "stop_tokens"):
        values = params[name] if name == "stop_tokens" else [params[name]]
        if not all(0 <= value < params["num_tokens"] for value in values):
            raise ModelError(
                f"{name}={params[name]} must be ids of tokens, from 0 to {params['num_tokens'] - 1}"
            )


def unused_params(params):
    """Returns the hyperparameters of sampling or beam search if there is none; see `Model`."""
    names = ("top_k", "top_p", "sampling_seed")
    if params["beam_size"] > 1:
        return dict.fromkeys((*names, "temperature", "repetition_penalty"), "beam_size")
    without_sampling = {} if params["temperature"] else dict.fromkeys(names, "temperature")
    return {"length_penalty": "beam_size", **without_sampling}


def generate(step, caches, log_probs, features, params):
    """Continues prompts until a stop token, or until a row is full.

    Args:
      step: `(tokens, positions, caches) -> (logits, caches)`. `tokens` and `positions` are int32
        `[batch]`, `logits` float32 `[batch, vocab_size]` of the next token.
      caches: `[(key, value)]`, each `[batch, 1, num_heads, length, head_size]`, of the prompts.
        Those after a prompt may have any values.
      log_probs: float32 `[batch, length]`, log probabilities of the tokens of the prompts, 0 for
        the first and after the prompt.
      features: of prediction, see `input_fns.text.tokens_pipeline`.
      params: see `default_params`.

    Returns:
      A dict of

        tokens     int32 [batch, length]    prompt and continuation, then `end_of_text`
        length     int32 [batch]            number of tokens, with the stop token
        log_probs  float32 [batch, length]  log probability of each token but the first, by the
                                            model at temperature 1; 0 after the last
    """
    limit = _limit(features, params)
    if params["beam_size"] > 1:
        return _beam_search(step, caches, log_probs, limit, features, params)
    size = features["prompt"].shape.as_list()[1]
    seeds = features["seed"] + params["sampling_seed"] * _SEEDS
    stops = _stops(params)

    def is_unfinished(tokens, length, log_probs, ended, seen, caches):
        del tokens, length, log_probs, seen, caches
        return ~tf.reduce_all(ended)

    def body(tokens, length, log_probs, ended, seen, caches):
        last = tf.gather(tokens, length - 1, batch_dims=1)
        logits, caches = step(last, length - 1, caches)
        logits = without_padding(logits, params)
        token = next_token(logits, seeds, length, seen, params)
        log_prob = tf.gather(tf.nn.log_softmax(logits), token, batch_dims=1)
        is_new = tf.equal(tf.range(size), length[:, tf.newaxis]) & ~ended[:, tf.newaxis]
        tokens = tf.where(is_new, token[:, tf.newaxis], tokens)
        log_probs = tf.where(is_new, log_prob[:, tf.newaxis], log_probs)
        seen = _with_token(seen, token)
        length += tf.cast(~ended, tf.int32)
        is_stop = tf.reduce_any(tf.equal(token[:, tf.newaxis], stops), axis=1)
        return tokens, length, log_probs, ended | is_stop | (length >= limit), seen, caches

    length = features["prompt_length"]
    is_prompt = tf.range(size) < length[:, tf.newaxis]
    tokens = tf.where(is_prompt, features["prompt"], params["end_of_text"])
    state = tokens, length, log_probs, length >= limit, _seen(tokens, is_prompt, params), caches
    # The bound does not end the loop earlier; with it the cost of a step has an upper bound, too.
    found = tf.compat.v1.while_loop(
        is_unfinished,
        body,
        state,
        parallel_iterations=1,
        back_prop=False,
        maximum_iterations=min(params["max_new_tokens"] or size, size),
    )
    return {"tokens": found[0], "length": found[1], "log_probs": found[2]}


def _beam_search(step, caches, log_probs, limit, features, params):
    """Beam search with the rules of `generate` of Hugging Face transformers; see `generate`.

    Continuations that end, by a stop token or at `limit`, must be among the `beam_size` most
    probable; and the search of a row ends when its best live continuation has at most the score of
    the worst of `beam_size` ended ones.
    """
    beams, stops = params["beam_size"], _stops(params)
    size, length = features["prompt"].shape.as_list()[1], features["prompt_length"]

    def step_of_beams(tokens, position, caches):
        caches = [tuple(tf.reshape(of, [-1, 1, *of.shape[2:]]) for of in pair) for pair in caches]
        # Rows that have ended earlier get the last position.
        positions = tf.repeat(tf.minimum(length - 1 + position, size - 1), beams)
        logits, caches = step(tf.reshape(tokens, [-1]), positions, caches)
        found = tf.nn.log_softmax(without_padding(logits, params))
        caches = [
            tuple(tf.reshape(of, [-1, beams, *of.shape[2:]]) for of in pair) for pair in caches
        ]
        return tf.reshape(found, [-1, beams, params["vocab_size"]]), caches

    def ends(token, position):
        is_stop = tf.reduce_any(tf.equal(token[..., tf.newaxis], stops), axis=-1)
        return is_stop | (length + position + 1 >= limit)[:, tf.newaxis]

    def score(log_prob, length):
        return log_prob / tf.cast(length, tf.float32) ** params["length_penalty"]

    rules = decoding.BeamRules(
        beam_size=beams,
        num_candidates=beams * (1 + len(stops)),
        num_ending=beams,
        ends=ends,
        score=score,
        may_improve=lambda live, ended, length: score(live[:, 0], length) > ended[:, -1],
    )
    caches = tf.nest.map_structure(lambda of: tf.repeat(of, beams, axis=1), caches)
    last = tf.gather(features["prompt"], length - 1, batch_dims=1)
    found = decoding.beam_search(step_of_beams, caches, last, length < limit, size, rules)
    # Places of the row in the prompt and in its continuation.
    places = tf.range(size) - length[:, tf.newaxis]
    is_new = (places >= 0) & (places < found["length"][:, tf.newaxis])
    of_found = tf.clip_by_value(places, 0, size - 1)
    new_tokens, new_log_probs = (
        tf.gather(found[name], of_found, batch_dims=1) for name in ("tokens", "log_probs")
    )
    rest = tf.where(places < 0, features["prompt"], params["end_of_text"])
    return {
        "tokens": tf.where(is_new, new_tokens, rest),
        "length": length + found["length"],
        "log_probs": tf.where(is_new, new_log_probs, log_probs),
    }


def _limit(features, params):
    """Returns the most tokens of each row with its prompt, int32 `[batch]`."""
    limit = tf.minimum(features["max_tokens"], features["prompt"].shape.as_list()[1])
    if params["max_new_tokens"]:
        limit = tf.minimum(limit, features["prompt_length"] + params["max_new_tokens"])
    return limit


def _stops(params):
    """Returns the ids of the tokens that end a continuation, in their order."""
    return sorted({params["end_of_text"], *params["stop_tokens"]})


def cache_of(keys, values, size):
    """Returns the caches of `generate` from the keys and values of the prompts.

    Args:
      keys: `[batch, num_heads, longest, head_size]` of each layer.
      values: like `keys`.
      size: tokens of a row.
    """
    longest = tf.shape(keys[0])[2]
    padding = [[0, 0], [0, 0], [0, size - longest], [0, 0]]

    def padded(tensor):
        _, num_heads, _, head_size = tensor.shape.as_list()
        tensor = tf.ensure_shape(tf.pad(tensor, padding), [None, num_heads, size, head_size])
        return tensor[:, tf.newaxis]

    return [(padded(key), padded(value)) for key, value in zip(keys, values)]


def next_token(logits, seeds, position, seen, params):
    """Chooses the next token of each row.

    Args:
      logits: float32 `[batch, vocab_size]`; -inf for tokens without a meaning.
      seeds: int32 `[batch]`.
      position: int32 `[batch]`, place of the token.
      seen: bool `[batch, vocab_size]`, the tokens of the row; unused without repetition_penalty.
      params: see `default_params`.

    Returns:
      int32 `[batch]`.
    """
    if params["repetition_penalty"] != 1:
        penalty = params["repetition_penalty"]
        logits = tf.where(seen, tf.where(logits > 0, logits / penalty, logits * penalty), logits)
    if not params["temperature"]:
        return tf.argmax(logits, axis=1, output_type=tf.int32)
    scores, tokens = candidates(logits / params["temperature"], params)
    count = scores.shape.as_list()[1]

    def draw(seed):
        return tf.random.stateless_uniform([count], seed, np.finfo(np.float32).tiny)

    noise = tf.map_fn(draw, tf.stack([seeds, position], axis=1), fn_output_signature=tf.float32)
    # The largest sum with Gumbel noise is a sample of the softmax.
    chosen = tf.argmax(scores - tf.math.log(-tf.math.log(noise)), axis=1)
    if tokens is None:
        return tf.cast(chosen, tf.int32)
    return tf.gather(tokens, chosen, batch_dims=1)


def candidates(scores, params):
    """Returns the tokens to sample from, by top_k and top_p.

    Args:
      scores: float32 `[batch, vocab_size]`, logits divided by the temperature.
      params: see `default_params`.

    Returns:
      (scores, tokens), float32 and int32 `[batch, count]`, the most probable token first; -inf for
      tokens that are left out. Tokens are None if they are those of the vocabulary in their order.
    """
    if not params["top_k"] and params["top_p"] == 1:
        return scores, None
    scores, tokens = tf.math.top_k(scores, params["top_k"] or params["num_tokens"])
    if params["top_p"] < 1:
        before = tf.cumsum(tf.nn.softmax(scores), axis=1, exclusive=True)
        scores = tf.where(before < params["top_p"], scores, _IMPOSSIBLE)
    return scores, tokens


def without_padding(logits, params):
    """Returns logits `[batch, vocab_size]` with -inf for the rows that pad the embedding."""
    vocab_size = logits.shape.as_list()[-1]
    if vocab_size == params["num_tokens"]:
        return logits
    return tf.where(tf.range(vocab_size) < params["num_tokens"], logits, _IMPOSSIBLE)


def _seen(tokens, is_prompt, params):
    """Returns bool `[batch, vocab_size]`, the tokens of each prompt; `[batch, 0]` if unused."""
    batch_size = tf.shape(tokens)[0]
    if params["repetition_penalty"] == 1:
        return tf.zeros([batch_size, 0], tf.bool)
    rows = tf.broadcast_to(tf.range(batch_size)[:, tf.newaxis], tf.shape(tokens))
    places = tf.stack([rows, tokens], axis=-1)
    shape = [batch_size, params["vocab_size"]]
    counts = tf.scatter_nd(places, tf.cast(is_prompt, tf.int32), shape)
    return tf.ensure_shape(counts > 0, [None, params["vocab_size"]])


def _with_token(seen, token):
    count = seen.shape.as_list()[1]
    return seen | tf.equal(tf.range(count), token[:, tf.newaxis]) if count else seen


def step_bias(position, size, starts=None):
    """Returns the attention bias of the tokens at `position`, float32 `[batch, 1, 1, size]`.

    With `starts`, int32 `[batch]`, they attend to the tokens from these places on.
    """
    is_past = tf.range(size) <= position[:, tf.newaxis]
    if starts is not None:
        is_past &= tf.range(size) >= starts[:, tf.newaxis]
    return attention.attention_bias(is_past)[:, tf.newaxis, tf.newaxis]
