"""The best answer in each window, in the graph of a SavedModel that takes text.

`squad_answers` makes the same choice on the host.
"""

from __future__ import annotations

import tensorflow as tf

NEEDS = {"token_ends", "is_max_context"}


def best_spans(features, logits, params):
    """Returns the best possible answer in each window; see `squad_answers.find_spans`.

    Args:
      features: `token_ends` and `is_max_context`, int32 `[windows, length]`.
      logits: `start_logits` and `end_logits`, float32 `[windows, length]`.
      params: `n_best_size`, `max_answer_length` and `null_threshold`.

    Returns:
      `first_token` and `last_token`, int32 `[windows]`; float64 `[windows]`: `answer_score`, the
      sum of their logits, -inf if no answer is possible; `null_score`, that of [CLS];
      `null_threshold`.
    """
    # float64, as on the host: sums of equal logits must tie in both.
    starts, ends = (tf.cast(logits[name], tf.float64) for name in ("start_logits", "end_logits"))
    count = min(params["n_best_size"], starts.shape[1])
    start_scores, first = tf.math.top_k(starts, count)
    end_scores, last = tf.math.top_k(ends, count)
    in_context = features["token_ends"] > 0
    is_first = in_context & (features["is_max_context"] > 0)
    length = last[:, tf.newaxis, :] - first[:, :, tf.newaxis] + 1  # [windows, count, count]
    is_valid = (length >= 1) & (length <= params["max_answer_length"])
    is_valid &= tf.gather(is_first, first, batch_dims=1)[:, :, tf.newaxis]
    is_valid &= tf.gather(in_context, last, batch_dims=1)[:, tf.newaxis, :]
    scores = start_scores[:, :, tf.newaxis] + end_scores[:, tf.newaxis, :]
    scores = tf.where(is_valid, scores, tf.constant(float("-inf"), tf.float64))
    scores = tf.reshape(scores, [-1, count * count])
    best = tf.argmax(scores, axis=1, output_type=tf.int32)
    null_score = starts[:, 0] + ends[:, 0]
    threshold = tf.constant(params["null_threshold"], tf.float64)
    return {
        "first_token": tf.gather(first, best // count, batch_dims=1),
        "last_token": tf.gather(last, best % count, batch_dims=1),
        "answer_score": tf.reduce_max(scores, axis=1),
        "null_score": null_score,
        "null_threshold": tf.fill(tf.shape(null_score), threshold),
    }
