"""From long texts to windows of tokens, and back to a prediction per text, in a graph.

Programs that load such a graph must `import tensorflow_text` first. The windows are those of
`sources.token_rows`, and the join is that of `document_pipeline.join`.
"""

from __future__ import annotations

import tensorflow as tf

from common.constants import DOCUMENT_INDEX
from input_fns.text.document_pipeline import JOINED
from input_fns.text.wordpiece import WordPieceTokenizer
from input_fns.text.wordpiece_ops import GraphTokenizer


def windows(text, vocabulary: WordPieceTokenizer, max_length: int, doc_stride: int):
    """Returns the features of the windows of each text, at least one for each.

    Args:
      text: string `[batch]`, UTF-8.
      vocabulary: the vocabulary.
      max_length: tokens of a window, with [CLS] and [SEP].
      doc_stride: tokens from the start of a window to that of the next, at most that fit.

    Returns:
      `input_ids`, `input_mask` and `segment_ids`, int32 `[windows, max_length]`, and
      `document_index`, int32 `[windows]`, the row of the batch.
    """
    tokens = GraphTokenizer(vocabulary).tokenize(text)
    room = max_length - 2  # [CLS] and [SEP]
    stride = min(room, doc_stride)
    num_tokens = tf.cast(tokens.row_lengths(), tf.int32)  # [batch]
    count = 1 + (tf.maximum(num_tokens - room, 0) + stride - 1) // stride
    rows = tf.repeat(tf.range(tf.shape(count)[0]), count)  # [windows]
    number = tf.range(tf.shape(rows)[0]) - tf.gather(tf.cumsum(count, exclusive=True), rows)
    first = number * stride
    length = tf.minimum(tf.gather(num_tokens, rows) - first, room)[:, tf.newaxis]
    positions = tf.range(max_length)[tf.newaxis]
    is_token = (positions >= 1) & (positions <= length)
    start = tf.gather(tf.cast(tokens.row_starts(), tf.int32), rows) + first
    places = tf.where(is_token, start[:, tf.newaxis] + positions - 1, 0)
    values = tf.concat([tokens.values, [vocabulary.pad_id]], 0)  # there may be no token
    special = tf.where(tf.equal(positions, length + 1), vocabulary.sep_id, vocabulary.pad_id)
    special = tf.where(tf.equal(positions, 0), vocabulary.cls_id, special)
    mask = tf.cast(positions <= length + 1, tf.int32)
    return {
        "input_ids": tf.where(is_token, tf.gather(values, places), special),
        "input_mask": mask,
        "segment_ids": tf.zeros_like(mask),
        DOCUMENT_INDEX: rows,
    }


def joined(predictions, documents, how: str):
    """Returns the predictions of texts from those of their windows; see `document_pipeline.join`.

    Args:
      predictions: `{name: [windows, ...]}`.
      documents: int32 `[windows]`, ascending from 0.
      how: one of `common.constants.JOINS`.
    """
    found = {}
    for name, values in predictions.items():
        if name not in JOINED:
            continue
        mean = tf.math.segment_mean(values, documents)
        best = found[name] = mean
        if how == "max":
            best = found[name] = tf.math.segment_max(values, documents)
            if name == "probabilities":
                found[name] /= tf.reduce_sum(best, axis=-1, keepdims=True)
        elif how == "vote" and name == "probabilities":
            votes = tf.one_hot(tf.argmax(values, axis=-1), values.shape[-1])
            count = tf.math.segment_sum(tf.ones_like(values[:, :1]), documents)
            found[name] = tf.math.segment_sum(votes, documents) / count
            best = found[name] + mean / (2 * count)  # less than a vote
        if name == "probabilities":
            found["classes"] = tf.argmax(best, axis=-1, output_type=tf.int32)
    return found
