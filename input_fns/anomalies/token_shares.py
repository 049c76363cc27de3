"""Shares of stored tokens that the vocabulary does not know."""

from __future__ import annotations

import dataclasses

import numpy as np

from input_fns.dataset_info import DatasetInfo

_SPECIAL = ("[PAD]", "[CLS]", "[SEP]", "[MASK]")
_UNKNOWN = "[UNK]"
# Below this share of all tokens, such as of emojis among numbers, unknown ones do not matter.
_MANY = 0.1


@dataclasses.dataclass(frozen=True)
class Pieces:
    """Kinds of the pieces of a vocabulary.

    Attributes:
      unknown: ids of unknown text: [UNK], or unknown characters and bytes of them.
      special: ids that are not text.
      words: ids of pieces with a letter. Punctuation and digits are of any script.
      name: what unknown text becomes.
    """

    unknown: list[int]
    special: list[int]
    words: list[int]
    name: str

    def unknown_share(self, ids: np.ndarray) -> float:
        """Returns the share of unknown tokens among these and words; 0 if they are few."""
        ids = ids[~np.isin(ids, self.special)]
        num_unknown = np.isin(ids, self.unknown).sum()
        if num_unknown <= _MANY * ids.size:
            return 0.0
        return float(num_unknown / (num_unknown + np.isin(ids, self.words).sum()))


def pieces_of(data: DatasetInfo, content: bytes) -> Pieces:
    """Returns the pieces of the vocabulary of a data set of text.

    Args:
      data: the data set.
      content: its vocabulary file.
    """
    if data.wordpiece:
        pieces = [piece.strip() for piece in content.decode(errors="replace").split("\n")]
        unknown = [i for i, piece in enumerate(pieces) if piece == _UNKNOWN]
        special = [i for i, piece in enumerate(pieces) if piece in _SPECIAL]
        return Pieces(unknown, special, _words(pieces, {*unknown, *special}), _UNKNOWN)
    from input_fns.text import vocabulary  # an optional dependency

    found = vocabulary.Vocabulary(content)
    special, unknown = found.special_and_unknown_ids()
    words = _words(found.pieces(), {*unknown, *special})
    return Pieces(unknown, special, words, "unknown characters or bytes of them")


def _words(pieces, others):
    return [i for i, piece in enumerate(pieces) if i not in others and any(map(str.isalpha, piece))]
