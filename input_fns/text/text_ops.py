"""Tokenizes and detokenizes text in a graph, with ops of TensorFlow Text.

Programs that load such a graph must `import tensorflow_text` first.
"""

from __future__ import annotations

import tensorflow as tf

from common.constants import EOS, PAD
from input_fns import DataError
from input_fns.text.vocabulary import Vocabulary

try:
    import tensorflow_text
except ModuleNotFoundError as error:
    raise DataError(
        "--export_text needs TensorFlow Text: tools/setup.sh tensorflow text text_ops, or "
        "pip install '.[text_ops]'"
    ) from error


def to_rows(text, pieces: Vocabulary, max_length: int):
    """Returns token ids, int32 `[batch, max_length]`, of string `[batch]`.

    Running it raises InvalidArgumentError for a text of more tokens.
    """
    tokens = _tokenizer(pieces).tokenize(text)
    longest = tf.reduce_max(tf.concat([[0], tokens.row_lengths()], axis=0))
    message = f"a text has more than the {max_length} tokens that the model was trained with:"
    with tf.control_dependencies([tf.debugging.Assert(longest <= max_length, [message, longest])]):
        return tokens.to_tensor(PAD, shape=[None, max_length])


def to_text(rows, pieces: Vocabulary):
    """Returns string `[batch]` of int32 `[batch, max_length]`, each up to its EOS or PAD."""
    ends = tf.cast(tf.equal(rows, EOS) | tf.equal(rows, PAD), tf.int32)
    kept = tf.equal(tf.cumsum(ends, axis=1), 0) & (rows < pieces.num_pieces)
    return _tokenizer(pieces).detokenize(tf.ragged.boolean_mask(rows, kept))


def _tokenizer(pieces):
    return tensorflow_text.SentencepieceTokenizer(pieces.model, add_eos=True)
