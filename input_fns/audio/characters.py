"""The vocabulary of transcripts: one character per line, in the order of the tokens from 1.

Token 0 is the blank of connectionist temporal classification (CTC), and padding.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping

import numpy as np
import tensorflow as tf

from common import files, names
from input_fns import DataError


@dataclasses.dataclass(frozen=True)
class Characters:
    """A vocabulary of characters.

    Attributes:
      characters: the characters, without the blank.
    """

    characters: tuple[str, ...]

    @property
    def size(self) -> int:
        """Number of tokens, with the blank."""
        return 1 + len(self.characters)

    @property
    def content(self) -> bytes:
        """Content of the file of the vocabulary."""
        return "".join(f"{character}\n" for character in self.characters).encode()

    @property
    def pieces(self) -> tuple[str, ...]:
        """The text of each token, "" for the blank."""
        return ("", *self.characters)

    @functools.cached_property
    def _tokens(self) -> Mapping[str, int]:
        return {character: token for token, character in enumerate(self.characters, start=1)}

    def encode(self, text: str) -> list[int]:
        """Returns the tokens of a text.

        Raises:
          KeyError: a character is not in the vocabulary.
        """
        return [self._tokens[character] for character in text]

    def decode(self, tokens: np.ndarray) -> list[str]:
        """Returns the texts of int `[n, max_tokens]`; padding has no text."""
        return ["".join(self.pieces[token] for token in row) for row in tokens.tolist()]


def from_texts(texts: Iterable[str]) -> Characters:
    """Returns the vocabulary of texts, in the order of code points."""
    return Characters(tuple(sorted(set().union(*texts))))


def load(path: str) -> Characters:
    """Reads a vocabulary.

    Raises:
      DataError: the file is missing, or a line is not one character or is repeated.
    """
    try:
        text = files.read_text(path).removeprefix("\ufeff").replace("\r\n", "\n")
    except (OSError, ValueError, tf.errors.OpError) as error:
        raise DataError(f"{path} is not a vocabulary of characters: {error}") from error
    characters = text.removesuffix("\n").split("\n")
    for number, character in enumerate(characters, start=1):
        if len(character) != 1 or not names.is_line(character):
            raise DataError(f"{path}, line {number}: {character[:20]!a} is not one character")
    twice = names.repeated(characters)
    if twice:
        raise DataError(f"{path} has the character {twice[0]!a} more than once")
    return Characters(tuple(characters))
