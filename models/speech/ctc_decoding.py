"""Decoding of connectionist temporal classification (CTC): greedy and prefix beam search.

All shapes are static, so both run on a CPU, GPU and TPU and in a SavedModel. Tokens are packed by
comparisons and sums, as a TPU has no fast scatter; texts are padded with `BLANK`.
"""

from __future__ import annotations

import tensorflow as tf

from models.speech.ctc import BLANK
from models.speech.log_mel import frame_mask

# Log probability of an impossible prefix. Finite: differences of infinities are NaN.
_IMPOSSIBLE = -1e30


def greedy(logits, num_frames, max_tokens):
    """The most probable token of each frame, without repetitions and blanks.

    Args:
      logits: float32 `[batch, frames, vocab_size]`.
      num_frames: int32 `[batch]`.
      max_tokens: tokens of a row; later ones are lost.

    Returns:
      Tokens, int32 `[batch, max_tokens]`, padded with `BLANK`, and the log probability of this
      alignment, float32 `[batch]`.
    """
    frames = logits.shape.as_list()[1]
    best = tf.argmax(logits, axis=-1, output_type=tf.int32)  # [batch, frames]
    before = tf.pad(best[:, :-1], [[0, 0], [1, 0]], constant_values=BLANK)
    is_inside = frame_mask(num_frames, frames)
    is_token = tf.not_equal(best, BLANK) & tf.not_equal(best, before) & is_inside
    place = tf.cumsum(tf.cast(is_token, tf.int32), axis=1) - 1
    place = tf.where(is_token, place, -1)[..., tf.newaxis]  # [batch, frames, 1]
    is_here = tf.equal(place, tf.range(max_tokens))
    tokens = tf.reduce_sum(tf.where(is_here, best[..., tf.newaxis], 0), axis=1)
    log_probs = tf.reduce_max(tf.nn.log_softmax(logits), axis=-1)
    return tokens, tf.reduce_sum(tf.where(is_inside, log_probs, 0.0), axis=1)


def beam_search(logits, num_frames, max_tokens, beam_width):
    """Prefix beam search (Hannun et al. 2014, arXiv:1408.2873), without a language model.

    A beam is a prefix with the log probabilities of its alignments that end in a blank, and of
    those that end in its last token. Each frame keeps the most probable of the prefixes and their
    extensions by one token.

    Args:
      logits: float32 `[batch, frames, vocab_size]`.
      num_frames: int32 `[batch]`.
      max_tokens: longest prefix.
      beam_width: number of beams.

    Returns:
      Tokens of the most probable prefix, int32 `[batch, max_tokens]`, padded with `BLANK`, and its
      log probability, float32 `[batch]`.
    """
    frames, vocab_size = logits.shape.as_list()[1:]
    log_probs = tf.transpose(tf.nn.log_softmax(logits), [1, 0, 2])  # [frames, batch, vocab_size]
    batch = tf.shape(logits)[0]
    start = tf.where(tf.equal(tf.range(beam_width), 0), 0.0, _IMPOSSIBLE)
    start = tf.broadcast_to(start, [batch, beam_width])
    # Prefixes, their lengths, and both log probabilities.
    beams = (
        tf.zeros([batch, beam_width, max_tokens], tf.int32),
        tf.zeros([batch, beam_width], tf.int32),
        start,
        tf.fill([batch, beam_width], _IMPOSSIBLE),
    )

    def step(frame, *beams):
        new = _advance(beams, log_probs[frame], vocab_size)
        is_inside = frame < num_frames  # [batch]

        def choose(new, old):
            shape = [-1] + [1] * (old.shape.rank - 1)
            return tf.where(tf.reshape(is_inside, shape), new, old)

        return (frame + 1, *tf.nest.map_structure(choose, new, tuple(beams)))

    _, prefixes, _, blank, token = tf.while_loop(
        lambda frame, *_: frame < frames,
        step,
        (0, *beams),
        parallel_iterations=1,
        maximum_iterations=frames,
    )
    total = _log_add(blank, token)
    best = tf.argmax(total, axis=1, output_type=tf.int32)
    is_best = tf.equal(tf.range(beam_width), best[:, tf.newaxis])
    tokens = tf.reduce_sum(tf.where(is_best[..., tf.newaxis], prefixes, 0), axis=1)
    return tokens, tf.reduce_max(total, axis=1)


def _advance(beams, log_probs, vocab_size):
    """Returns the beams after one more frame, whose log probabilities are `[batch, vocab_size]`."""
    prefixes, lengths, blank, token = beams
    beam_width, max_tokens = prefixes.shape.as_list()[1:]
    place = tf.range(max_tokens)
    is_last = tf.equal(place, lengths[..., tf.newaxis] - 1)
    last = tf.reduce_sum(tf.where(is_last, prefixes, 0), axis=-1)  # [batch, beams]; BLANK if empty
    # The log probability of the last token of each beam in this frame.
    last_one_hot = tf.equal(last[..., tf.newaxis], tf.range(vocab_size))
    of_last = tf.reduce_sum(tf.where(last_one_hot, log_probs[:, tf.newaxis], 0.0), axis=-1)

    # A prefix stays the same by a blank, or by a repetition of its last token.
    total = _log_add(blank, token)
    stay_blank = total + log_probs[:, tf.newaxis, BLANK]
    stay_token = tf.where(lengths > 0, token + of_last, _IMPOSSIBLE)
    # An extension by its last token needs a blank between both.
    extended = tf.where(last_one_hot, blank[..., tf.newaxis], total[..., tf.newaxis])
    extended += log_probs[:, tf.newaxis]  # [batch, beams, vocab_size]
    can_extend = (lengths < max_tokens)[..., tf.newaxis] & (tf.range(vocab_size) > BLANK)
    extended = tf.where(can_extend, extended, _IMPOSSIBLE)

    # An extension of beam i that is the prefix of beam j is added to it.
    parents = tf.where(is_last, 0, prefixes)  # prefixes without their last token
    is_child = tf.reduce_all(tf.equal(prefixes[:, :, tf.newaxis], parents[:, tf.newaxis]), axis=-1)
    is_child &= tf.equal(lengths[:, :, tf.newaxis] + 1, lengths[:, tf.newaxis])  # [batch, i, j]
    # Beams without any alignment, as at the start, may have the prefix of another one.
    is_child &= (total > _IMPOSSIBLE / 2)[:, tf.newaxis]
    # [batch, i, j], without the vocabulary: only the last token of beam j matters.
    is_repetition = tf.equal(last[:, :, tf.newaxis], last[:, tf.newaxis])
    of_parent = tf.where(is_repetition, blank[:, :, tf.newaxis], total[:, :, tf.newaxis])
    of_parent = tf.where(is_child, of_parent + of_last[:, tf.newaxis], _IMPOSSIBLE)
    stay_token = _log_add(stay_token, tf.reduce_max(of_parent, axis=1))
    # Products and sums of 0 and 1, which are exact on a TPU too.
    num_merged = tf.matmul(tf.cast(is_child, tf.float32), tf.cast(last_one_hot, tf.float32))
    extended = tf.where(num_merged > 0, _IMPOSSIBLE, extended)

    candidates = tf.concat(
        [
            _log_add(stay_blank, stay_token),
            tf.reshape(extended, [-1, beam_width * vocab_size]),
        ],
        axis=1,
    )
    chosen_scores, chosen = tf.math.top_k(candidates, beam_width)  # [batch, beams]
    is_stay = chosen < beam_width
    extension = tf.maximum(chosen - beam_width, 0)
    source = tf.where(is_stay, chosen, extension // vocab_size)
    new_token = tf.where(is_stay, BLANK, extension % vocab_size)
    # A product with a one-hot matrix would round on a TPU; a gather of a few rows is exact.
    prefixes, lengths, stay_blank, stay_token = (
        tf.gather(values, source, batch_dims=1)
        for values in (prefixes, lengths, stay_blank, stay_token)
    )
    is_new = tf.equal(place, lengths[..., tf.newaxis]) & ~is_stay[..., tf.newaxis]
    prefixes = tf.where(is_new, new_token[..., tf.newaxis], prefixes)
    return (
        prefixes,
        lengths + tf.cast(~is_stay, tf.int32),
        tf.where(is_stay, stay_blank, _IMPOSSIBLE),
        tf.where(is_stay, stay_token, chosen_scores),
    )


def _log_add(a, b):
    """Returns the log of the sum of the exponentials, finite."""
    peak = tf.maximum(a, b)
    return peak + tf.math.log1p(tf.exp(tf.minimum(a, b) - peak))
