"""Subword vocabularies (SentencePiece: Kudo and Richardson 2018, arXiv:1808.06226).

Tokenization is lossless: no normalization, and unknown characters become bytes. The exception is
U+2581, SentencePiece's mark of a space, which becomes a space.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Iterable, Sequence

import numpy as np

from common.constants import EOS, PAD
from input_fns import DataError
from input_fns.text import vocabulary_file

try:
    import sentencepiece
except ModuleNotFoundError as error:
    raise DataError(
        "text needs SentencePiece: tools/setup.sh same text, or pip install '.[text]'"
    ) from error

# Vocabularies are padded to a multiple of a TPU's tile.
_MULTIPLE = 128
# Lines to sample from a larger corpus to learn the pieces.
_MAX_LINES = 1_000_000
_MAX_LINE_BYTES = 4096
_BYTE_PIECES = 256


class Vocabulary:
    """A subword vocabulary."""

    def __init__(self, model: bytes, name: str = "the vocabulary"):
        """Parses the content of a `.model` file of SentencePiece.

        Raises:
          DataError: it is invalid, or its ids of padding and end of sentence are not PAD and EOS.
        """
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except (RuntimeError, UnicodeDecodeError) as error:
            raise DataError(f"{name} is not a SentencePiece model") from error
        self.model = model
        ids = (self._processor.pad_id(), self._processor.eos_id())
        if ids != (PAD, EOS):
            raise DataError(
                f"{name} has pad and eos at {ids}, not at {(PAD, EOS)}: train it with "
                f"--pad_id={PAD} --eos_id={EOS}"
            )

    def __reduce__(self):
        return _unpickled, (self.model,)

    @property
    def num_pieces(self) -> int:
        """Number of pieces."""
        return len(self._processor)

    @property
    def size(self) -> int:
        """Number of ids with padding, a multiple of 128."""
        return -(-self.num_pieces // _MULTIPLE) * _MULTIPLE

    def special_and_unknown_ids(self) -> tuple[list[int], list[int]]:
        """Returns the ids of padding and end, and those of unknown characters and of bytes."""
        pieces, ids = self._processor, range(self.num_pieces)
        return [PAD, EOS], [i for i in ids if pieces.is_unknown(i) or pieces.is_byte(i)]

    def pieces(self) -> list[str]:
        """Returns the pieces in the order of their ids, without padding of the vocabulary."""
        return [self._processor.id_to_piece(i) for i in range(self.num_pieces)]

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Returns the token ids of each line, with `EOS` at the end."""
        return self._processor.encode(list(lines), add_eos=True)

    def decode(self, ids) -> list[str]:
        """Returns the text of each row of int `[rows, length]`, up to its `EOS` or first `PAD`."""
        rows = []
        for row in np.asarray(ids):
            ends = np.flatnonzero((row == EOS) | (row == PAD))
            row = row[: ends[0]] if len(ends) else row
            rows.append(row[row < self.num_pieces].tolist())
        return self._processor.decode(rows) if rows else []


@functools.lru_cache(maxsize=1)
def _unpickled(model):
    """Returns the vocabulary that a worker process keeps between tasks."""
    return Vocabulary(model)


def load(path: str) -> Vocabulary:
    """Reads a vocabulary, local or gs://.

    Raises:
      DataError: it is missing or invalid.
    """
    return Vocabulary(vocabulary_file.read(path), path)


def train(lines: Iterable[bytes], size: int, kind: str, seed: int) -> Vocabulary:
    """Learns a vocabulary from lines of all languages.

    Args:
      lines: text in UTF-8.
      size: size of the vocabulary, a multiple of 128; a small text may have fewer pieces.
      kind: "unigram" or "bpe".
      seed: seed of the sample from more than a million lines.

    Raises:
      DataError: the text is empty, or has more distinct characters than `size`.
    """
    lines = [line for line in lines if line.decode().strip()]
    if not lines:
        raise DataError("there is no text to learn a vocabulary from")
    if len(lines) > _MAX_LINES:
        chosen = np.random.default_rng(seed).choice(len(lines), _MAX_LINES, replace=False)
        lines = [lines[i] for i in np.sort(chosen)]
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(line.decode() for line in lines),
            model_writer=model,
            model_type=kind,
            vocab_size=size,
            hard_vocab_limit=False,
            pad_id=PAD,
            eos_id=EOS,
            unk_id=2,
            bos_id=-1,
            byte_fallback=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            max_sentence_length=_MAX_LINE_BYTES,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise DataError(
            f"no vocabulary of {size} pieces, {_BYTE_PIECES} of them bytes, can be learnt: {error}"
        ) from error
    return Vocabulary(model.getvalue())
