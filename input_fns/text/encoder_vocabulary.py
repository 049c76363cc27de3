"""The tokenizer of an encoder: of a vocab.txt (WordPiece), or of a SentencePiece model."""

from __future__ import annotations

import importlib

from common.constants import SENTENCEPIECE


def load(path: str, lower_case: bool, strip_accents: bool = True):
    """Returns the tokenizer of a vocabulary, by the ending of its name.

    Args:
      path: local or gs://.
      lower_case: whether text is lower-cased.
      strip_accents: False keeps accents.

    Returns:
      A `wordpiece.WordPieceTokenizer`, or a `sentencepieces.SentencePieceTokenizer`.

    Raises:
      DataError: it is missing or invalid, or its library is.
    """
    # Both libraries are optional dependencies.
    name = "sentencepieces" if path.endswith(SENTENCEPIECE) else "wordpiece"
    module = importlib.import_module(f"input_fns.text.{name}")
    return module.load(path, lower_case, strip_accents)
