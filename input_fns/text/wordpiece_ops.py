"""Tokenizes text into WordPiece ids in a graph, with ops of TensorFlow Text.

Programs that load such a graph must `import tensorflow_text` first. Bytes that are not UTF-8 are
removed, like U+FFFD, which stands for them.
"""

from __future__ import annotations

import tensorflow as tf

from common.constants import TRUNCATE
from input_fns.text.text_ops import tensorflow_text
from input_fns.text.wordpiece import (
    CONTINUATION,
    MAX_WORD_CHARACTERS,
    WordPieceTokenizer,
    head_length,
)

_CONTROL = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x{9f}\x{fffd}]"
_PRIVATE = "\ue000"
_MAX_BYTES_PER_CHARACTER = 4  # UTF-8


class GraphTokenizer:
    """Ops with the results of a `WordPieceTokenizer`; made for one graph."""

    def __init__(self, vocabulary: WordPieceTokenizer):
        """Adds the vocabulary to the graph."""
        self._lower_case, self._unk_id = vocabulary.lower_case, vocabulary.unk_id
        self._strip_accents = vocabulary.strip_accents
        numbers = {piece: number for number, piece in enumerate(vocabulary.pieces)}
        self._tokenizer = tensorflow_text.FastBertTokenizer(
            # Of equal pieces the last counts; private characters are not in normalized text.
            [
                piece if numbers[piece] == number else f"{_PRIVATE}{number}"
                for number, piece in enumerate(vocabulary.pieces)
            ],
            max_bytes_per_word=_MAX_BYTES_PER_CHARACTER * MAX_WORD_CHARACTERS,
            token_out_type=tf.int32,
            # It would fold more characters than lower case does, such as "½" and "ß".
            lower_case_nfd_strip_accents=False,
        )
        continues = [vocabulary.is_continuation(i) for i in range(vocabulary.vocab_size)]
        self._continues = tf.constant(continues)
        self._lengths = tf.constant(  # in characters
            [
                len(piece) - len(CONTINUATION) * is_continuation
                for piece, is_continuation in zip(vocabulary.pieces, continues)
            ]
        )

    def tokenize(self, text):
        """Returns the token ids of texts, as `WordPieceTokenizer.encode_ids`.

        Args:
          text: string `[batch]`, UTF-8.

        Returns:
          int32 ragged `[batch, tokens]`.
        """
        tokens = self._tokenizer.tokenize(self._normalized(valid_utf8(text)))
        ids = tokens.flat_values
        is_first, _, is_long = self._words(ids)
        ids = tf.where(is_long, self._unk_id, ids)
        return _selected([tokens.with_flat_values(ids)], is_first | ~is_long)[0]

    def tokenize_with_places(self, text):
        """Returns the tokens of texts with their places, as `WordPieceTokenizer.encode`.

        Args:
          text: string `[batch]`, UTF-8, from `valid_utf8`.

        Returns:
          Token ids, int32 ragged `[batch, tokens]`; of the same shape, the code points where each
          token starts, and after it.
        """
        if self._lower_case:
            # Without "İ", lower case has as many code points. A soft hyphen, which is removed
            # later, is invisible to the final sigma; a NUL would end the text.
            text = tf.strings.regex_replace(text, "\u0130", "I")
            text = tf.strings.regex_replace(text, _CONTROL, "\u00ad")
            text = tf.strings.lower(text, encoding="utf-8")
        characters = tf.strings.unicode_split(text, "UTF-8")  # [batch, code points]
        normalized = characters.with_flat_values(self._normalized(characters.flat_values))
        tokens, starts, ends = self._tokenizer.tokenize_with_offsets(
            tf.strings.reduce_join(normalized, axis=1)
        )
        ids = tokens.flat_values
        is_first, word, is_long = self._words(ids)
        last = tf.gather(tf.math.segment_max(ends.flat_values, word), word)
        tokens = tokens.with_flat_values(tf.where(is_long, self._unk_id, ids))
        ends = ends.with_flat_values(tf.where(is_long, last, ends.flat_values))
        tokens, starts, ends = _selected([tokens, starts, ends], is_first | ~is_long)
        # Places in the bytes of the whole batch, and the code points that hold these bytes.
        end_bytes = tf.cumsum(tf.strings.length(normalized.flat_values))
        row_starts = characters.row_starts()
        first_bytes = tf.gather(tf.concat([[0], end_bytes], 0), row_starts)

        def code_points(places, after):
            rows = places.value_rowids()
            last = tf.cast(places.flat_values, tf.int32) + tf.gather(first_bytes, rows) - after
            found = tf.searchsorted(end_bytes, last, side="right") + after
            return places.with_flat_values(found - tf.cast(tf.gather(row_starts, rows), tf.int32))

        return tokens, code_points(starts, 0), code_points(ends, 1)

    def _normalized(self, text):
        """Returns text without control characters; in lower case and without accents if wanted."""
        text = tf.strings.regex_replace(text, r"[\t\n\r]", " ")
        text = tf.strings.regex_replace(text, r"[\p{Cc}\p{Cf}\x{fffd}]", "")
        if self._lower_case:
            text = tf.strings.lower(text, encoding="utf-8")
        if not self._strip_accents:
            return text
        return tf.strings.regex_replace(tensorflow_text.normalize_utf8(text, "NFD"), r"\p{Mn}", "")

    def _words(self, ids):
        """Returns of each token id `[n]` whether it is the first of a word, and the word's number.

        Also whether the word has too many characters. The limit of TensorFlow Text is of bytes.
        """
        is_first = ~tf.gather(self._continues, ids)
        word = tf.cumsum(tf.cast(is_first, tf.int32)) - 1
        length = tf.math.segment_sum(tf.gather(self._lengths, ids), word)
        return is_first, word, tf.gather(length > MAX_WORD_CHARACTERS, word)


def valid_utf8(text):
    """Returns string `[batch]` with U+FFFD in place of bytes that are not UTF-8."""
    return tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")


def to_rows(texts, vocabulary: WordPieceTokenizer, max_length: int, truncate: str = TRUNCATE[0]):
    """Returns the features of texts or pairs of texts, truncated like those of prepare_data.py.

    Args:
      texts: one or two string `[batch]`, UTF-8.
      vocabulary: the vocabulary.
      max_length: tokens per row, with [CLS] and [SEP].
      truncate: one of `common.constants.TRUNCATE`.

    Returns:
      `input_ids`, `input_mask` and `segment_ids`, int32 `[batch, max_length]`.
    """
    tokenizer = GraphTokenizer(vocabulary)
    tokens = [tokenizer.tokenize(text) for text in texts]
    segments = _truncated(tokens, max_length - 1 - len(texts), truncate)
    return _rows_of(segments, vocabulary, max_length)


def _rows_of(segments, vocabulary, max_length):
    """Returns the features of ragged `[batch, tokens]`, one or two that fit."""
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


def to_rows_with_places(
    texts, vocabulary: WordPieceTokenizer, max_length: int, truncate: str = TRUNCATE[0]
):
    """Returns the features of texts, and the places of their tokens; see `to_rows`.

    Args:
      texts: one string `[batch]`, UTF-8.
      vocabulary: see `to_rows`.
      max_length: see `to_rows`.
      truncate: see `to_rows`.

    Returns:
      Those of `to_rows`; `token_starts` and `token_ends`, int32 `[batch, max_length]`: the code
      point of the text where a token starts, and that after it; 0 for [CLS], [SEP] and padding.
    """
    (text,) = texts
    tokenizer = GraphTokenizer(vocabulary)
    tokens = tokenizer.tokenize_with_places(valid_utf8(text))
    length = tf.cast(tokens[0].row_lengths(), tf.int32)
    kept = _shortened(tokens, length, tf.minimum(length, max_length - 2), truncate)
    places = [
        tf.pad(tf.cast(part, tf.int32).to_tensor(shape=[None, max_length - 1]), [[0, 0], [1, 0]])
        for part in kept[1:]
    ]
    features = _rows_of(kept[:1], vocabulary, max_length)
    return {**features, "token_starts": places[0], "token_ends": places[1]}


def _truncated(segments, limit, truncate):
    """Removes a token of the longer text, of the second one of equal ones, until all fit."""
    lengths = [tf.cast(segment.row_lengths(), tf.int32) for segment in segments]
    if len(segments) == 1:
        kept = [tf.minimum(lengths[0], limit)]
    else:
        first = tf.minimum(lengths[0], tf.maximum((limit + 1) // 2, limit - lengths[1]))
        kept = [first, tf.minimum(lengths[1], limit - first)]
    return [
        _shortened([segment], length, keep, truncate)[0]
        for segment, length, keep in zip(segments, lengths, kept)
    ]


def _shortened(parts, length, keep, truncate):
    """Returns the first and last values of ragged `[batch, n]` that have the same rows."""
    head = head_length(keep, truncate)
    tail = length - keep + head  # where it starts
    rows = parts[0].value_rowids()
    position = tf.range(tf.size(rows)) - tf.gather(tf.cumsum(length, exclusive=True), rows)
    is_kept = (position < tf.gather(head, rows)) | (position >= tf.gather(tail, rows))
    return _selected(parts, is_kept)


def _selected(parts, is_kept):
    """Returns ragged `[batch, n]` that have the same rows, without some of the values.

    `tf.ragged.boolean_mask`, and comparisons of ragged tensors, add hundreds of operations.

    Args:
      parts: the ragged tensors.
      is_kept: bool `[values]`.
    """
    kept = tf.where(is_kept)[:, 0]
    rows = tf.gather(parts[0].value_rowids(), kept)
    return [
        tf.RaggedTensor.from_value_rowids(
            tf.gather(part.flat_values, kept), rows, part.nrows(), validate=False
        )
        for part in parts
    ]
