"""Tokens of language models: byte-level BPE (Radford et al. 2019, as in GPT-2), or characters.

    tokenizer = load("data/shakespeare")  # a folder, or tokenizer.json
    (ids,) = tokenizer.encode(["To be, or not"])
    tokenizer.decode(ids)  # "To be, or not"

Both are lossless, and stored as tokenizer.json of Hugging Face `tokenizers`. In texts
`END_OF_TEXT`, "<|endoftext|>", becomes the token that ends a document; no other text does.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from common import folders, names
from common.constants import END_OF_TEXT
from common.names import counted
from input_fns import DataError
from input_fns.text import vocabulary_file

try:
    import tokenizers
except ModuleNotFoundError as error:
    raise DataError(
        "language models need Hugging Face tokenizers: tools/setup.sh same text, or "
        "pip install '.[text]'"
    ) from error

FILE = "tokenizer.json"
# Files of a vocabulary: those of Hugging Face, and of OpenAI's releases.
_PAIRS = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
# A text is encoded in pieces, which threads of the library share. No token crosses the end of a
# word before white space.
_PIECE_CHARACTERS = 2**16
_PIECE_END = re.compile(r"\S(?=\s)")
_CALL_CHARACTERS = 2**20
_NAMED_CHARACTERS = 5


class Tokenizer:
    """Splits text into tokens, and joins them.

    Attributes:
      content: tokenizer.json, as it is stored.
      is_characters: whether each character is a token, instead of byte-level BPE.
      size: number of tokens.
      end_of_text: id of `END_OF_TEXT`.
      num_bytes: bytes of the text of each token, int32 `[size]`; 0 of `END_OF_TEXT`.
    """

    def __init__(self, content: bytes, name: str = "the vocabulary"):
        """Parses the content of a tokenizer.json; `name` is its path, for errors.

        Raises:
          DataError: it is invalid, or of another tokenizer.
        """
        self.content = content
        try:
            parsed = json.loads(content)
            model = parsed["model"]["type"]
            vocabulary = parsed["model"]["vocab"]
            self._tokenizer = tokenizers.Tokenizer.from_str(content.decode())
        except Exception as error:  # the library raises Exception
            raise DataError(f"{name} is not a tokenizer.json: {error}") from error
        pre_tokenizer = (parsed.get("pre_tokenizer") or {}).get("type")
        if (model, pre_tokenizer) not in (("BPE", "ByteLevel"), ("WordLevel", "Split")):
            raise DataError(
                f"{name} is of {pre_tokenizer} {model}, not of byte-level BPE as GPT-2's"
            )
        if _changes_texts(parsed):
            raise DataError(
                f"{name} changes texts before it splits them, by its normalizer or "
                "add_prefix_space, so that bytes cannot be counted. Set them to null and false in "
                "the file for a model that you train"
            )
        self.is_characters = model == "WordLevel"
        self.size = len(vocabulary)
        if sorted(vocabulary.values()) != list(range(self.size)):
            raise DataError(f"{name}: the ids of its tokens are not 0, 1, 2, ...")
        if END_OF_TEXT not in vocabulary:
            raise DataError(f"{name} has no token {END_OF_TEXT}, as the vocabulary of GPT-2 has")
        self.end_of_text = vocabulary[END_OF_TEXT]
        self._bytes = self._bytes_of(vocabulary, name)
        self.num_bytes = np.array(list(map(len, self._bytes)), np.int32)

    def __reduce__(self):
        return _unpickled, (self.content,)

    @property
    def dtype(self) -> str:
        """Dtype in which token ids are stored."""
        return "uint16" if self.size <= 2**16 else "int32"

    def encode(self, texts: Iterable[str]) -> list[np.ndarray]:
        """Returns the ids of each text, int32 `[tokens]`.

        Raises:
          DataError: a character is not in the vocabulary.
        """
        return [np.concatenate([np.zeros(0, np.int32), *self._encode(text)]) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of ids; without `END_OF_TEXT`, and U+FFFD for bytes of no character."""
        return b"".join(self._bytes[i] for i in ids).decode(errors="replace")

    def _encode(self, text):
        for number, document in enumerate(text.split(END_OF_TEXT)):
            if number:
                yield np.array([self.end_of_text], np.int32)
            if self.is_characters:
                self._check_characters(document)
            some, size = [], 0
            for piece in _pieces(document):
                some.append(piece)
                size += len(piece)
                if size >= _CALL_CHARACTERS:
                    yield from self._ids(some)
                    some, size = [], 0
            yield from self._ids(some)

    def _ids(self, texts):
        for encoding in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False):
            yield np.array(encoding.ids, np.int32)

    def _check_characters(self, text):
        unknown = sorted(c for c in set(text) if self._tokenizer.token_to_id(c) is None)
        if unknown:
            shown = ", ".join(
                f"{names.shown(c)} (U+{ord(c):04X})" for c in unknown[:_NAMED_CHARACTERS]
            )
            more = ", ..." if unknown[_NAMED_CHARACTERS:] else ""
            raise DataError(
                f"{counted(len(unknown), 'character')} not in the vocabulary of {self.size - 1}: "
                f"{shown}{more}"
            )

    def _bytes_of(self, vocabulary, name):
        """Returns the bytes of each token."""
        byte_of = _byte_of_character()
        found = [b""] * self.size
        for token, number in vocabulary.items():
            if number == self.end_of_text:
                continue
            try:
                found[number] = (
                    token.encode() if self.is_characters else bytes(byte_of[c] for c in token)
                )
            except (KeyError, UnicodeEncodeError) as error:
                raise DataError(f"{name}: {token!a} is not a token of byte-level BPE") from error
        missing = set(byte_of) - set(vocabulary)
        if missing and not self.is_characters:
            raise DataError(f"{name} lacks the tokens of {len(missing)} bytes")
        return found


@functools.lru_cache(maxsize=1)
def _unpickled(content):
    """Returns the tokenizer that a worker process keeps between tasks."""
    return Tokenizer(content)


def load(path: str) -> Tokenizer:
    """Reads a tokenizer, local or gs://.

    Args:
      path: a tokenizer.json, or a folder with one, or with vocab.json and merges.txt, or with
        encoder.json and vocab.bpe.

    Raises:
      DataError: it is missing or invalid.
    """
    if not folders.is_folder(path):
        return Tokenizer(_without_additions(vocabulary_file.read(path), path), path)
    for pair in _PAIRS:
        paths = [os.path.join(path, name) for name in pair]
        if folders.is_file(paths[0]):
            return _from_pair(*paths)
    return load(os.path.join(path, FILE))


def characters(texts: Iterable[str]) -> Tokenizer:
    """Returns the tokenizer of all characters in texts, in the order of their code points."""
    found = sorted(set().union(*texts) if texts else ())
    vocabulary = {token: number for number, token in enumerate([*found, END_OF_TEXT])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token=""))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split(
        tokenizers.Regex(r"[\s\S]"), "isolated"
    )
    tokenizer.decoder = tokenizers.decoders.Fuse()  # else clients get spaces between characters
    return Tokenizer(tokenizer.to_str().encode())


def train(texts: Iterable[str], size: int) -> Tokenizer:
    """Learns byte-level BPE of `size` tokens; a small text gives fewer.

    Args:
      texts: documents.
      size: number of tokens, with 256 bytes and `END_OF_TEXT`.
    """
    tokenizer = _byte_level(tokenizers.models.BPE())
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size - 1,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    pieces = (piece for text in texts for piece in _pieces(text))
    tokenizer.train_from_iterator(pieces, trainer)
    content = json.loads(tokenizer.to_str())
    content["model"]["vocab"][END_OF_TEXT] = len(content["model"]["vocab"])
    return Tokenizer(json.dumps(content, ensure_ascii=False).encode())


def _byte_level(model):
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return tokenizer


def _from_pair(vocabulary_path, merges_path):
    """Returns the tokenizer of vocab.json and merges.txt."""
    try:
        vocabulary = json.loads(vocabulary_file.read(vocabulary_path))
        lines = vocabulary_file.read(merges_path).decode().split("\n")
        merges = [tuple(line.split(" ")) for line in lines if line and line[:8] != "#version"]
        model = tokenizers.models.BPE(vocabulary, merges)
    except DataError:
        raise
    except Exception as error:  # the library raises Exception
        raise DataError(
            f"{vocabulary_path} and {merges_path} are not a byte-level BPE: {error}"
        ) from error
    return Tokenizer(_byte_level(model).to_str().encode(), vocabulary_path)


def _without_additions(content, name):
    """Returns a tokenizer.json without rules for special tokens, which text must not become."""
    try:
        parsed = json.loads(content)
        if not parsed.get("added_tokens") and not parsed.get("post_processor"):
            return content
        parsed.update(added_tokens=[], post_processor=None, truncation=None, padding=None)
    except (ValueError, AttributeError, RecursionError) as error:
        raise DataError(f"{name} is not a tokenizer.json: {error}") from error
    return json.dumps(parsed, ensure_ascii=False).encode()


def _changes_texts(parsed):
    """Whether a tokenizer.json has a normalizer that does something, or adds a space."""
    normalizer = parsed.get("normalizer") or {}
    is_empty = normalizer.get("type") == "Sequence" and not normalizer.get("normalizers")
    adds_space = (parsed.get("pre_tokenizer") or {}).get("add_prefix_space", False)
    return bool(normalizer and not is_empty) or bool(adds_space)


def _pieces(text) -> Iterator[str]:
    begin = 0
    while len(text) - begin > _PIECE_CHARACTERS:
        match = _PIECE_END.search(text, begin + _PIECE_CHARACTERS)
        if match is None:
            break
        yield text[begin : match.end()]
        begin = match.end()
    if begin < len(text):
        yield text[begin:]


def _byte_of_character():
    """Returns the byte that each character of byte-level BPE stands for.

    Bytes that are visible in Latin-1 stand for themselves; the others are U+0100, U+0101, ...
    """
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in visible]
    return {
        **{chr(byte): byte for byte in visible},
        **{chr(0x100 + number): byte for number, byte in enumerate(others)},
    }
