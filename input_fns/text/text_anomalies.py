"""Texts that the vocabulary does not know, and pairs of equal texts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from common.constants import SENTENCEPIECE
from input_fns.anomalies.sample import MANY, MOST, Anomaly, Sample

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


def of_wordpieces(content: bytes) -> Pieces:
    """Returns the pieces of a vocab.txt."""
    pieces = [piece.strip() for piece in content.decode(errors="replace").split("\n")]
    unknown = [i for i, piece in enumerate(pieces) if piece == _UNKNOWN]
    special = [i for i, piece in enumerate(pieces) if piece in _SPECIAL]
    return Pieces(unknown, special, _words(pieces, {*unknown, *special}), _UNKNOWN)


def of_encoder(name: str, content: bytes) -> Pieces:
    """Returns the pieces of a vocab.txt, or of a SentencePiece model of an encoder."""
    if not name.endswith(SENTENCEPIECE):
        return of_wordpieces(content)
    from input_fns.text import sentencepieces  # an optional dependency

    found = sentencepieces.SentencePieceTokenizer(content, lower_case=True)
    special = [found.pad_id, found.cls_id, found.sep_id, found.mask_id]
    words = _words(found.pieces, {*special, found.unk_id})
    return Pieces([found.unk_id], special, words, found.pieces[found.unk_id])


def of_sentencepieces(content: bytes) -> Pieces:
    """Returns the pieces of a model of SentencePiece."""
    from input_fns.text import vocabulary  # an optional dependency

    found = vocabulary.Vocabulary(content)
    special, unknown = found.special_and_unknown_ids()
    words = _words(found.pieces(), {*unknown, *special})
    return Pieces(unknown, special, words, "unknown characters or bytes of them")


def _words(pieces, others):
    return [i for i, piece in enumerate(pieces) if i not in others and any(map(str.isalpha, piece))]


def of_tokens(sample: Sample, ids: np.ndarray, pieces: Pieces, side: str = "") -> Iterator[Anomaly]:
    """Yields texts with many words that the vocabulary does not know.

    Args:
      sample: the examples.
      ids: their token ids.
      pieces: the vocabulary.
      side: which texts they are, for the message.
    """
    share = pieces.unknown_share(ids)
    if share > MANY:
        to_learn_from = sample.is_train or "train" not in sample.data.splits
        yield Anomaly(
            f"{share:.0%} of the words{side} of {sample.where} are {pieces.name}: the "
            "vocabulary is of text in another script or case. Choose another --vocabulary, or "
            "learn one",
            is_error=to_learn_from and share > MOST,
        )


def of_pairs(sample: Sample) -> Iterator[Anomaly]:
    """Yields rows of sentences whose translations are the same text."""
    source, target = sample.values("source"), sample.values("target")
    share = (source == target).all(axis=1).mean() if source.shape == target.shape else 0
    if share > MANY:
        yield Anomaly(
            f"{share:.0%} of the rows of {sample.where} have equal source and target: a file "
            "may be of the other language",
            is_error=sample.is_train and share > MOST,
        )
