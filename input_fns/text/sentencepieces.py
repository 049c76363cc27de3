"""Tokens of ALBERT: pieces of a SentencePiece model (Kudo and Richardson 2018, arXiv:1808.06226).

Token ids equal those of google-research/albert's `preprocess_text` and `encode_ids`: text is
normalized, and a piece of digits that ends with a comma is split before the comma. The digits get
no mark of a space, as intended there and in transformers; under Python 3 that code compares text
with bytes and keeps the mark. Text never yields the ids of special tokens, which are control
symbols of the model.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Iterable, Sequence

from input_fns import DataError
from input_fns.text import vocabulary_file
from input_fns.text.wordpiece import Encoding, Pieces, lower_sigmas

try:
    import sentencepiece
    from sentencepiece import sentencepiece_pb2
except ModuleNotFoundError as error:
    raise DataError(
        "a vocabulary of SentencePiece needs its library: tools/setup.sh same text, or "
        "pip install '.[text]'"
    ) from error

SPACE = "\u2581"  # stands for a space in pieces
_SPECIAL = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")


class SentencePieceTokenizer(Pieces):
    """Splits text into pieces; it has the attributes of `wordpiece.WordPieceTokenizer`.

    Attributes:
      vocab: content of the file.
      lower_case: whether text is lower-cased.
      strip_accents: whether text loses its accents, of any case.
      pieces: pieces in the order of their ids.
      pad_id, unk_id, cls_id, sep_id, mask_id: ids of the special tokens.
    """

    file_name = "spiece.model"  # in the folder of a data set

    def __init__(
        self,
        vocab: bytes,
        lower_case: bool,
        name: str = "the vocabulary",
        strip_accents: bool = True,
    ):
        """Parses the content of a .model file; see `wordpiece.WordPieceTokenizer`.

        Raises:
          DataError: it is invalid, or lacks a special token.
        """
        self.vocab, self.lower_case, self.strip_accents = vocab, lower_case, strip_accents
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=vocab)
        except (RuntimeError, UnicodeDecodeError) as error:
            raise DataError(f"{name} is not a SentencePiece model") from error
        count = len(self._processor)
        self.pieces = [self._processor.id_to_piece(i) for i in range(count)]
        numbers = {piece: number for number, piece in enumerate(self.pieces)}
        missing = [piece for piece in _SPECIAL if piece not in numbers]
        if missing:
            raise DataError(
                f"{name} is a SentencePiece model without {', '.join(missing)}: use that of "
                "ALBERT, or a vocab.txt of BERT"
            )
        special = [numbers[piece] for piece in _SPECIAL]
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = special
        self._split = {
            i: self._before_comma(piece)
            for i, piece in enumerate(self.pieces)
            if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()
        }

    def __reduce__(self):
        return _unpickled, (self.vocab, self.lower_case, self.strip_accents)

    def encode_ids(self, texts: Iterable[str]) -> list[list[int]]:
        """Returns the token ids of each text."""
        normalized = ["".join(character for character, _ in self._characters(t)) for t in texts]
        return [
            [number for i in ids for number in self._split.get(i, (i,))]
            for ids in self._processor.encode(normalized)
        ]

    def encode(self, texts: Iterable[str]) -> list[Encoding]:
        """Returns the tokens of each text with their places, without spaces."""
        return [self._encode(text) for text in texts]

    def _encode(self, text):
        characters = self._characters(text)
        normalized = "".join(character for character, _ in characters)
        places = [place for character, place in characters for _ in character]
        found, end = Encoding([], [], []), 0
        proto = self._processor.encode(normalized, out_type="serialized_proto")
        for piece in sentencepiece_pb2.SentencePieceText.FromString(proto).pieces:
            begin, end = end, end + len(piece.surface)  # its places are bytes
            while begin < end and normalized[begin] == " ":
                begin += 1
            parts = self._split.get(piece.id, (piece.id,))
            for number, part in enumerate(parts, 1):
                size = len(self.pieces[part].replace(SPACE, ""))
                stop = end if number == len(parts) else min(end, begin + size)
                start = places[begin] if begin < len(places) else len(text)
                found.ids.append(part)
                found.starts.append(start)
                found.ends.append(places[stop - 1] + 1 if begin < stop else start)
                begin = stop
        return found

    def _characters(self, text):
        """Returns (normalized characters, place in the text) of a text."""
        words, is_space = [], True
        for place, character in enumerate(text):
            if character.isspace():
                if not is_space:
                    words.append((" ", place))
                is_space = True
                continue
            is_space = False
            if self.strip_accents and not character.isascii():
                decomposed = unicodedata.normalize("NFKD", character)
                character = "".join(c for c in decomposed if not unicodedata.combining(c))
            words.extend((c, place) for c in character)
        if words and is_space:
            words.pop()
        if self.lower_case:
            # A sigma by its word, as str.lower of the text, which may be longer: "İ" is two.
            text = lower_sigmas("".join(c for c, _ in words))
            words = [(c.lower(), place) for c, (_, place) in zip(text, words)]
        return words

    def _before_comma(self, piece):
        """Returns the ids of a piece of digits without its comma, and that of the comma."""
        found = self._processor.encode(piece[:-1].replace(SPACE, ""), out_type=str)
        if piece[0] != SPACE and found[0].startswith(SPACE):
            found = found[1:] if found[0] == SPACE else [found[0][1:], *found[1:]]
        return tuple(self._processor.piece_to_id([*found, ","]))

    def decode(self, ids: Sequence[int]) -> str:
        """Returns readable text of token ids, without padding."""
        pieces = [self.pieces[i] for i in ids if i != self.pad_id]
        spaced = [f" {piece} " if piece.startswith("[") else piece for piece in pieces]
        return " ".join("".join(spaced).replace(SPACE, " ").split())

    def is_continuation(self, piece_id: int) -> bool:
        """Whether a piece continues a word."""
        return not self.pieces[piece_id].startswith(SPACE)


@functools.lru_cache(maxsize=1)
def _unpickled(vocab, lower_case, strip_accents):
    """Returns the tokenizer that a worker process keeps between tasks."""
    return SentencePieceTokenizer(vocab, lower_case, strip_accents=strip_accents)


def load(path: str, lower_case: bool, strip_accents: bool = True) -> SentencePieceTokenizer:
    """Reads a .model file, local or gs://.

    Raises:
      DataError: it is missing or invalid.
    """
    return SentencePieceTokenizer(vocabulary_file.read(path), lower_case, path, strip_accents)
