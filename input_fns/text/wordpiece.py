"""WordPiece tokens of BERT, by Hugging Face `tokenizers`.

Token ids equal those of google-research/bert's `tokenization.py`; docs/data_text.md lists the rare
characters that differ. Text never yields the ids of special tokens: "[SEP]" in a review becomes
"[", "sep", "]".
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from common.names import shown
from input_fns import DataError
from input_fns.text import vocabulary_file

try:
    import tokenizers
except ModuleNotFoundError as error:
    raise DataError(
        "WordPiece needs Hugging Face tokenizers: tools/setup.sh same text, or "
        "pip install '.[text]'"
    ) from error

PAD, UNKNOWN, CLS, SEP, MASK = SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CONTINUATION = "##"
# Longer words become [UNK], as in google-research/bert.
MAX_WORD_CHARACTERS = 200
# Distinct characters of a learnt vocabulary; rarer ones become [UNK].
_MAX_ALPHABET = 1000
# The library removes private-use characters, and fails for surrogates without a partner, which
# google-research/bert keeps in their word. A noncharacter is kept by both, and in no vocabulary.
_PRIVATE_USE = re.compile("[\ud800-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd]")
_NONCHARACTER = "\ufdd0"
# str.lower lower-cases a sigma by its word, the library by the character alone.
_WORD = re.compile(r"\S+")
# Both remove these; only the soft hyphen is invisible to str.lower, too.
_CONTROL = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffd]")
_SOFT_HYPHEN = "\xad"
# The library needs some 200 bytes per character of a call, and aborts the process without them.
_CALL_CHARACTERS = 2**20
_LONGEST_WORD = 2**21
_TEXT_CHARACTERS = 2**16  # of a text to learn from: a thread of the library takes one at a time
# Where text may be cut without a change of its tokens: each ASCII punctuation is a token, and what
# is between these and white space is normalized character by character.
_PUNCTUATION = r"!-/:-@\[-`{-~"
_CHUNK = re.compile(rf"[{_PUNCTUATION}]|[^ \t\n\r{_PUNCTUATION}]+")
# Chunks whose ids are kept: frequent words are encoded once. Some 40 MB.
_MAX_KNOWN = 2**17
# Both end a word before each of these: white space, ASCII punctuation, Chinese characters.
_WORD_END = re.compile("[ \t\n\r!-/:-@\\[-`{-~、。一-鿿]")

_joined = itertools.chain.from_iterable


class Encoding(NamedTuple):
    """Tokens of a text, without [CLS] and [SEP].

    Attributes:
      ids: token ids.
      starts: code point in the text where each token starts.
      ends: code point in the text after each token.
    """

    ids: list[int]
    starts: list[int]
    ends: list[int]


class Pieces:
    """What tokenizers have in common, whose ids are places in a list of pieces.

    Attributes:
      pieces: pieces in the order of their ids.
    """

    pieces: list[str]

    @property
    def vocab_size(self) -> int:
        """Number of pieces."""
        return len(self.pieces)

    @property
    def dtype(self) -> str:
        """Dtype in which token ids are stored."""
        return "uint16" if self.vocab_size <= 2**16 else "int32"


class WordPieceTokenizer(Pieces):
    """Splits text into the pieces of a `vocab.txt`, one per line.

    Attributes:
      vocab: content of the vocabulary file.
      lower_case: whether text is lower-cased ("uncased" models).
      strip_accents: whether lower-cased text loses its accents; False for cased text.
      pieces: pieces in the order of their ids.
      pad_id, unk_id, cls_id, sep_id, mask_id: ids of the special tokens.
    """

    file_name = "vocab.txt"  # in the folder of a data set

    def __init__(
        self,
        vocab: bytes,
        lower_case: bool,
        name: str = "the vocabulary",
        strip_accents: bool = True,
    ):
        """Parses the content of a vocab.txt.

        Args:
          vocab: UTF-8 text with one piece per line; the line number, from 0, is the id.
          lower_case: `do_lower_case` of google-research/bert.
          name: path for errors.
          strip_accents: False keeps the accents of lower-cased text, unlike google-research/bert.

        Raises:
          DataError: it is not UTF-8, or lacks a special token.
        """
        self.vocab, self.lower_case = vocab, lower_case
        self.strip_accents = lower_case and strip_accents
        try:
            lines = vocab.decode("utf-8-sig").split("\n")
        except UnicodeDecodeError as error:
            raise DataError(f"{name} is not UTF-8 text, as a vocab.txt is: {error}") from error
        # As in google-research/bert: spaces around a piece are removed, the last of equal pieces
        # counts.
        self.pieces = [line.strip() for line in (lines if lines[-1] else lines[:-1])]
        numbers = {piece: number for number, piece in enumerate(self.pieces)}
        missing = [piece for piece in SPECIAL if piece not in numbers]
        if missing:
            raise DataError(
                f"{name} is a file of {len(self.pieces)} lines without {', '.join(missing)}: use "
                "a vocab.txt of BERT, which has one piece per line"
            )
        special = [numbers[piece] for piece in SPECIAL]
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = special
        self._tokenizer = tokenizers.Tokenizer(
            tokenizers.models.WordPiece(
                numbers, unk_token=UNKNOWN, max_input_chars_per_word=MAX_WORD_CHARACTERS
            )
        )
        _set_words(self._tokenizer, lower_case, self.strip_accents)
        self._ids_of = _ChunkIds(self._tokenizer)

    def __reduce__(self):
        return _unpickled, (self.vocab, self.lower_case, self.strip_accents)

    def encode(self, texts: Iterable[str]) -> list[Encoding]:
        """Returns the tokens of each text with their places.

        Raises:
          DataError: a text has a word of millions of characters.
        """
        texts = (text if text.isascii() else self._like_google(text) for text in texts)
        found: list[Encoding] = []
        for place, one in self._encoded_parts(texts, self._tokenizer.encode_batch):
            starts, ends = ([place + offsets[i] for offsets in one.offsets] for i in (0, 1))
            _add(found, place, Encoding(one.ids, starts, ends))
        return found

    def encode_ids(self, texts: Iterable[str]) -> list[list[int]]:
        """Returns the token ids of each text; several times as fast as `encode`, see there."""
        texts = (text if text.isascii() else self._like_google(text) for text in texts)
        ids_of = self._ids_of.__getitem__
        return [list(_joined(map(ids_of, _chunks(text)))) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """Returns readable text of token ids, without [PAD]."""
        pieces = [self.pieces[i] for i in ids if i != self.pad_id]
        return " ".join(pieces).replace(f" {CONTINUATION}", "")

    def is_continuation(self, piece_id: int) -> bool:
        """Whether a piece continues a word: "##ing"."""
        return self.pieces[piece_id].startswith(CONTINUATION)

    def _encoded_parts(self, texts, encode):
        """Yields (place in its text, encoding) of each part of each text, in order."""
        parts, size = [], 0
        for text in texts:
            for part in _parts(text):
                parts.append(part)
                size += len(part[1])
                if size >= _CALL_CHARACTERS:
                    yield from _encode(parts, encode)
                    parts, size = [], 0
        yield from _encode(parts, encode)

    def _like_google(self, text):
        """Replaces characters on which the library and google-research/bert differ, one by one."""
        text = _PRIVATE_USE.sub(_NONCHARACTER, text)
        if self.lower_case and "Σ" in text:
            text = lower_sigmas(_CONTROL.sub(_SOFT_HYPHEN, text))
        return text


@functools.lru_cache(maxsize=1)
def _unpickled(vocab, lower_case, strip_accents):
    """Returns the tokenizer that a worker process keeps between tasks, with the ids it knows."""
    return WordPieceTokenizer(vocab, lower_case, strip_accents=strip_accents)


class _ChunkIds(dict):
    """Token ids of chunks, which are encoded when they are first looked up."""

    def __init__(self, tokenizer: tokenizers.Tokenizer):
        super().__init__()
        self._tokenizer = tokenizer

    def __missing__(self, chunk):
        if len(self) >= _MAX_KNOWN:
            self.clear()
        ids = self[chunk] = self._tokenizer.encode(chunk, add_special_tokens=False).ids
        return ids


def _chunks(text):
    return _joined(_CHUNK.findall(part) for _, part in _parts(text))


def _parts(text):
    """Yields (place, part) of a text, cut where a word ends: a short text in one part."""
    start = 0
    while len(text) - start > _CALL_CHARACTERS:
        middle = start + _CALL_CHARACTERS // 2
        found = _WORD_END.search(text, middle)
        end = found.start() if found else len(text)
        if end - middle > _LONGEST_WORD:
            raise DataError(
                f"a text has a word of more than {_LONGEST_WORD} characters, such as "
                f"'...{shown(text[end - 40 : end])}'. Remove it, or put spaces between words"
            )
        yield start, text[start:end]
        start = end
    if start < len(text) or not start:
        yield start, text[start:]


def _encode(parts, encode):
    encodings = encode([part for _, part in parts], add_special_tokens=False)
    return zip((place for place, _ in parts), encodings)


def _add(found, place, encoding):
    """Adds the encoding of a part to those of texts: the first part of a text is at place 0."""
    if not place:
        found.append(encoding)
        return
    for values, more in zip(found[-1], encoding):
        values += more


def lower_sigmas(text: str) -> str:
    """Returns text with each capital sigma in lower case: in the final form at the end of a word.

    Other characters and the length are those of `text`.
    """
    return _WORD.sub(_lower_sigmas, text)


def _lower_sigmas(match):
    word = match[0]
    if "Σ" not in word:
        return word
    lower = "".join(c if c == "Σ" else c.lower()[0] for c in word).lower()
    return "".join(small if big == "Σ" else big for big, small in zip(word, lower))


def _set_words(tokenizer, lower_case, strip_accents):
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=True,
        strip_accents=lower_case and strip_accents,
        lowercase=lower_case,
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()


def head_length(length, truncate: str):
    """Returns how many of the tokens that a truncated text keeps are from its start.

    Args:
      length: number of tokens that it keeps, an integer or a tensor.
      truncate: one of `common.constants.TRUNCATE`.
    """
    return length // 4 if truncate == "middle" else length


def load(path: str, lower_case: bool, strip_accents: bool = True) -> WordPieceTokenizer:
    """Reads a vocab.txt, local or gs://.

    Raises:
      DataError: it is missing or invalid.
    """
    return WordPieceTokenizer(vocabulary_file.read(path), lower_case, path, strip_accents)


def count_words(texts: Iterable[str], lower_case: bool, strip_accents: bool = True) -> Counter[str]:
    """Returns how often each word is in texts, to learn a vocabulary; see `train`."""
    words = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token=UNKNOWN))
    _set_words(words, lower_case, strip_accents)
    chunks: Counter[str] = Counter()
    for text in texts:
        chunks.update(_chunks(text))
    counts: Counter[str] = Counter()
    for chunk, count in chunks.items():
        if chunk.isascii() and chunk.isalnum():
            counts[chunk.lower() if lower_case else chunk] += count
            continue
        # A lone surrogate is of no text that the library takes.
        normal = words.normalizer.normalize_str(_PRIVATE_USE.sub(_NONCHARACTER, chunk))
        for word, _ in words.pre_tokenizer.pre_tokenize_str(normal):
            counts[word] += count
    return counts


def train(
    words: Mapping[str, int], size: int, lower_case: bool, strip_accents: bool = True
) -> WordPieceTokenizer:
    """Learns a vocabulary, the same one from the same words.

    Args:
      words: how often each word is in the text; see `count_words`.
      size: number of pieces with the special tokens; a small text may have fewer.
      lower_case: see `WordPieceTokenizer`.
      strip_accents: see `WordPieceTokenizer`.

    Raises:
      DataError: there are no words, or they have more distinct characters than `size`.
    """
    # The library numbers characters in the order of a hash table, which differs between runs, and
    # breaks ties by these numbers. Those of "special tokens" are fixed.
    first = [*SPECIAL, *_alphabet(words, lower_case, strip_accents)]
    if len(first) == len(SPECIAL):
        raise DataError("there is no text to learn a vocabulary from")
    if len(first) > size:
        raise DataError(
            f"the text has {len(first)} special tokens, first and other characters of words, and "
            f"the vocabulary room for {size}: use a larger --vocab_size"
        )
    trained = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token=UNKNOWN))
    trained.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=size, special_tokens=first, limit_alphabet=0, show_progress=False
    )
    trained.train_from_iterator(_repeated(words), trainer)
    numbers = trained.get_vocab()
    pieces = sorted(numbers, key=numbers.__getitem__)
    vocab = "".join(f"{piece}\n" for piece in pieces).encode()
    return WordPieceTokenizer(vocab, lower_case, strip_accents=strip_accents)


def _repeated(words):
    """Yields texts in which each word is as often as in `words`: the library takes no counts."""
    some, size = [], 0
    for word, count in words.items():
        # A merge costs as much as the longest word, and a word that becomes [UNK] needs no pieces.
        if len(word) > MAX_WORD_CHARACTERS:
            continue
        at_once = max(1, _TEXT_CHARACTERS // len(word))
        for start in range(0, count, at_once):
            some.append(f"{word} " * min(at_once, count - start))
            size += len(some[-1])
            if size >= _TEXT_CHARACTERS:
                yield "".join(some)
                some, size = [], 0
    yield "".join(some)


def _alphabet(words, lower_case, strip_accents):
    """Returns the most frequent characters as pieces: "a", and "##a" if it can continue a word."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    frequent = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    characters = sorted(character for character, _ in frequent[:_MAX_ALPHABET])
    splits = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token=UNKNOWN))
    _set_words(splits, lower_case, strip_accents)
    in_words = [splits.normalizer.normalize_str(f"a{character}a") for character in characters]
    continuing = [
        f"{CONTINUATION}{character}"
        for character, word in zip(characters, in_words)
        if len(splits.pre_tokenizer.pre_tokenize_str(word)) == 1
    ]
    return characters + continuing
