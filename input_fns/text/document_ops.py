"""From long texts to windows of tokens, and back to a prediction per text, in a graph.

Programs that load such a graph must `import tensorflow_text` first. The windows are those of
`sources.token_rows`, and the join is that of `document_pipeline.join`.
"""

from __future__ import annotations

import tensorflow as tf

from common.constants import DOCUMENT_INDEX
from input_fns.text.document_pipeline import EMBEDDINGS, JOINED, UNIT_TOLERANCE
from input_fns.text.wordpiece import WordPieceTokenizer
from input_fns.text.wordpiece_ops import GraphTokenizer


def windows(texts, vocabulary: WordPieceTokenizer, max_length: int, doc_stride: int):
    """Returns the features of the windows of each text, at least one for each.

    Args:
      texts: one string `[batch]`, UTF-8, or two of pairs: windows are those of the second.
      vocabulary: the vocabulary.
      max_length: tokens of a window, with [CLS] and [SEP].
      doc_stride: tokens from the start of a window to that of the next, at most that fit.

    Returns:
      `input_ids`, `input_mask` and `segment_ids`, int32 `[windows, max_length]`, and
      `document_index`, int32 `[windows]`, the row of the batch.
    """
    tokenizer = GraphTokenizer(vocabulary)
    *first, tokens = [tokenizer.tokenize(text) for text in texts]
    room = max_length - 1 - len(texts)  # [CLS] and a [SEP] for each
    num_tokens = tf.cast(tokens.row_lengths(), tf.int32)  # [batch]
    left, offset = tf.fill(tf.shape(num_tokens), room), tf.ones_like(num_tokens)
    if first:
        (first,) = (ids[:, : room // 2] for ids in first)
        num_first = tf.cast(first.row_lengths(), tf.int32)
        left, offset = left - num_first, num_first + 2
    stride = tf.minimum(left, doc_stride)
    count = 1 + (tf.maximum(num_tokens - left, 0) + stride - 1) // stride
    rows = tf.repeat(tf.range(tf.shape(count)[0]), count)  # [windows]
    number = tf.range(tf.shape(rows)[0]) - tf.gather(tf.cumsum(count, exclusive=True), rows)
    begin = (number * tf.gather(stride, rows))[:, tf.newaxis]
    num_tokens, left, offset = (
        tf.gather(values, rows)[:, tf.newaxis] for values in (num_tokens, left, offset)
    )
    end = offset + tf.minimum(num_tokens - begin, left)  # position of the last [SEP]
    positions = tf.range(max_length)[tf.newaxis]
    is_sep = tf.equal(positions, end) | (tf.equal(positions, offset - 1) & (positions > 0))
    input_ids = tf.where(is_sep, vocabulary.sep_id, vocabulary.pad_id)
    input_ids = tf.where(tf.equal(positions, 0), vocabulary.cls_id, input_ids)
    in_text = (positions >= offset) & (positions < end)
    input_ids = _gather(tokens, rows, begin + positions - offset, in_text, input_ids)
    if len(texts) > 1:
        in_first = (positions >= 1) & (positions < offset - 1)
        input_ids = _gather(first, rows, positions - 1, in_first, input_ids)
    is_second = (positions >= offset) & (positions <= end) & (len(texts) > 1)
    return {
        "input_ids": input_ids,
        "input_mask": tf.cast(positions <= end, tf.int32),
        "segment_ids": tf.cast(is_second, tf.int32),
        DOCUMENT_INDEX: rows,
    }


def _gather(tokens, rows, places, mask, other):
    """Returns the tokens at places of rows where the mask is True, else `other`."""
    values = tf.concat([tokens.values, [0]], 0)  # there may be no token
    places += tf.gather(tf.cast(tokens.row_starts(), tf.int32), rows)[:, tf.newaxis]
    return tf.where(mask, tf.gather(values, tf.where(mask, places, 0)), other)


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
        if name in EMBEDDINGS:
            found[name] /= _lengths(found[name], values, documents)
        if name == "probabilities":
            found["classes"] = tf.argmax(best, axis=-1, output_type=tf.int32)
    return found


def _lengths(joined, values, documents):
    """Returns the length of each joined embedding whose windows are normalized, else 1."""
    is_unit = tf.abs(tf.norm(values, axis=-1) - 1) < UNIT_TOLERANCE
    all_unit = tf.math.segment_min(tf.cast(is_unit, tf.int32), documents) > 0
    lengths = tf.norm(joined, axis=-1)
    return tf.where(all_unit & (lengths > 0), lengths, 1.0)[:, tf.newaxis]
