"""tf.contrib.crf: linear-chain conditional random fields."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

__all__ = [
    "crf_binary_score",
    "crf_decode",
    "crf_log_likelihood",
    "crf_log_norm",
    "crf_sequence_score",
    "crf_unary_score",
    "viterbi_decode",
]


def crf_log_likelihood(inputs, tag_indices, sequence_lengths, transition_params=None):
    """Returns the log likelihood [batch] of tag sequences, and the transition scores.

    Args:
      inputs: float, [batch, time, tags], scores of the tags.
      tag_indices: int, [batch, time].
      sequence_lengths: int, [batch].
      transition_params: float, [tags, tags], score of a tag (second) after another (first); None
        for a new variable "transitions".
    """
    if transition_params is None:
        num_tags = inputs.shape[2]
        transition_params = tf.compat.v1.get_variable("transitions", [num_tags, num_tags])
    arguments = (sequence_lengths, transition_params)
    score = crf_sequence_score(inputs, tag_indices, *arguments)
    return score - crf_log_norm(inputs, *arguments), transition_params


def crf_sequence_score(inputs, tag_indices, sequence_lengths, transition_params):
    """Returns the scores [batch] of tag sequences; arguments as of `crf_log_likelihood`."""
    unary = crf_unary_score(tag_indices, sequence_lengths, inputs)
    return unary + crf_binary_score(tag_indices, sequence_lengths, transition_params)


def crf_unary_score(tag_indices, sequence_lengths, inputs):
    """Returns the sums [batch] of the scores of the tags."""
    scores = tf.gather(inputs, tag_indices, batch_dims=2)
    return tf.reduce_sum(scores * _mask(tag_indices, sequence_lengths, inputs.dtype), axis=1)


def crf_binary_score(tag_indices, sequence_lengths, transition_params):
    """Returns the sums [batch] of the scores of the transitions."""
    pairs = tf.stack([tag_indices[:, :-1], tag_indices[:, 1:]], axis=-1)
    # A TPU has no ResourceGatherNd, which reads a variable.
    transition_params = tf.convert_to_tensor(transition_params)
    mask = _mask(tag_indices, sequence_lengths, transition_params.dtype)[:, 1:]
    return tf.reduce_sum(tf.gather_nd(transition_params, pairs) * mask, axis=1)


def _mask(tag_indices, sequence_lengths, dtype):
    return tf.sequence_mask(sequence_lengths, tf.shape(tag_indices)[1], dtype=dtype)


def crf_log_norm(inputs, sequence_lengths, transition_params):
    """Returns the logarithm [batch] of the sum of exp(score) over all tag sequences."""

    def step(alphas, scores):
        return tf.reduce_logsumexp(alphas[:, :, None] + transition_params, axis=1) + scores

    alphas = _scan(step, inputs, sequence_lengths)[-1]
    # An empty sequence has one tag sequence, of score 0.
    return tf.where(
        tf.less_equal(sequence_lengths, 0),
        tf.zeros_like(alphas[:, 0]),
        tf.reduce_logsumexp(alphas, axis=1),
    )


def _scan(step, inputs, sequence_lengths):
    """Returns the states [time, batch, tags]; a state stays after the end of its sequence."""
    scores = tf.transpose(inputs, [1, 0, 2])
    time = tf.shape(scores)[0]
    lengths = tf.minimum(tf.cast(sequence_lengths, tf.int32), time)[:, None]
    # A step after the end, which changes no state: tf.scan takes no sequence of length 0.
    scores = tf.concat([scores, scores[-1:]], axis=0)
    times = tf.range(1, time + 1)

    def advance(state, time):
        return tf.where(time < lengths, step(state, scores[time]), state)

    later = tf.scan(advance, times, initializer=scores[0])
    return tf.concat([scores[:1], later[:-1]], axis=0)


def crf_decode(potentials, transition_params, sequence_length):
    """Returns the best tags, int32 [batch, time] (0 after the end), and their scores [batch].

    Args:
      potentials: float, [batch, time, tags].
      transition_params: float, [tags, tags].
      sequence_length: int, [batch].
    """

    def step(best, scores):
        return tf.reduce_max(best[:, :, None] + transition_params, axis=1) + scores

    best = _scan(step, potentials, sequence_length)  # [time, batch, tags]
    last = tf.argmax(best[-1], axis=1, output_type=tf.int32)
    time = tf.shape(potentials)[1]
    lengths = tf.minimum(tf.cast(sequence_length, tf.int32), time)

    def back(tag, time):
        previous = tf.argmax(
            best[time] + tf.transpose(tf.gather(transition_params, tag, axis=1)),
            axis=1,
            output_type=tf.int32,
        )
        return tf.where(time + 1 < lengths, previous, tag)

    # The first step, at the last place, returns its tag.
    times = tf.range(time - 1, -1, -1)
    tags = tf.transpose(tf.reverse(tf.scan(back, times, initializer=last), [0]))
    tags *= tf.sequence_mask(lengths, tf.shape(tags)[1], dtype=tf.int32)
    return tags, tf.reduce_max(best[-1], axis=1)


def viterbi_decode(score, transition_params):
    """Returns the best tags, a list, and their score; `score` is an array [time, tags]."""
    best, backward = score[0], []
    for scores in score[1:]:
        paths = best[:, None] + transition_params
        backward.append(np.argmax(paths, axis=0))
        best = np.max(paths, axis=0) + scores
    tags = [int(np.argmax(best))]
    for previous in reversed(backward):
        tags.append(int(previous[tags[-1]]))
    return tags[::-1], np.max(best)
