"""Tokenizes text into WordPiece ids in a graph, with ops of TensorFlow Text.

Programs that load such a graph must `import tensorflow_text` first.
"""

from __future__ import annotations

import tensorflow as tf

from input_fns.text_ops import tensorflow_text
from input_fns.wordpiece import MAX_WORD_CHARACTERS, WordPieceTokenizer

_MAX_BYTES_PER_CHARACTER = 4  # UTF-8


def tokenizer(vocabulary: WordPieceTokenizer):
    """Returns the tokenizer of a vocabulary; its methods take string `[batch]`, UTF-8."""
    return _tokenizer(vocabulary, vocabulary.lower_case)


def _tokenizer(vocabulary, lower_case_nfd_strip_accents):
    return tensorflow_text.FastBertTokenizer(
        vocabulary.pieces,
        max_bytes_per_word=_MAX_BYTES_PER_CHARACTER * MAX_WORD_CHARACTERS,
        token_out_type=tf.int32,
        lower_case_nfd_strip_accents=lower_case_nfd_strip_accents,
    )


def _normalized(text, lower_case):
    """Returns text without control characters and, in lower case, without accents."""
    text = tf.strings.regex_replace(text, r"[\t\n\r]", " ")
    text = tf.strings.regex_replace(text, r"[\p{Cc}\p{Cf}\x{fffd}]", "")
    if not lower_case:
        return text
    text = tensorflow_text.normalize_utf8(tf.strings.lower(text, encoding="utf-8"), "NFD")
    return tf.strings.regex_replace(text, r"\p{Mn}", "")


def to_rows(texts, vocabulary: WordPieceTokenizer, max_length: int):
    """Returns the features of texts or pairs of texts, truncated like those of prepare_data.py.

    Args:
      texts: one or two string `[batch]`, UTF-8.
      vocabulary: the vocabulary.
      max_length: tokens per row, with [CLS] and [SEP].

    Returns:
      `input_ids`, `input_mask` and `segment_ids`, int32 `[batch, max_length]`.
    """
    # FastBertTokenizer would fold more characters than lower case does, such as "½" and "ß".
    tokenize = _tokenizer(vocabulary, lower_case_nfd_strip_accents=False).tokenize
    tokens = [tokenize(_normalized(text, vocabulary.lower_case)) for text in texts]
    segments = _truncated(tokens, max_length - 1 - len(texts))
    ids, segment_ids = tensorflow_text.combine_segments(
        segments, vocabulary.cls_id, vocabulary.sep_id
    )
    input_ids = ids.to_tensor(vocabulary.pad_id, shape=[None, max_length])
    mask = tf.sequence_mask(ids.row_lengths(), max_length, tf.int32)
    return {
        "input_ids": input_ids,
        "input_mask": mask,
        "segment_ids": segment_ids.to_tensor(0, shape=[None, max_length]),
    }


def _truncated(segments, limit):
    """Removes the last token of the longer text, of the second one of equal ones, until all fit."""
    lengths = [tf.cast(segment.row_lengths(), tf.int32) for segment in segments]
    if len(segments) == 1:
        kept = [tf.minimum(lengths[0], limit)]
    else:
        first = tf.minimum(lengths[0], tf.maximum((limit + 1) // 2, limit - lengths[1]))
        kept = [first, tf.minimum(lengths[1], limit - first)]
    return [
        tf.ragged.boolean_mask(segment, tf.ragged.range(length) < keep[:, tf.newaxis])
        for segment, length, keep in zip(segments, lengths, kept)
    ]
