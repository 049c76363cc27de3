"""WordPiece tokens against google-research/bert's tokenization.py.

BERT_CHECKOUT is a folder of that repository. BERT_TEXT, if set, is a text file, plain, .gz or .xz,
each line of which is compared as well, and BERT_VOCAB the vocab.txt to use for it.
"""

# ruff: noqa: RUF001 - letters that look like others

import gzip
import lzma
import os
import pathlib
import random
import unicodedata

import pytest

from input_fns.text import wordpiece
from tests import google_bert

pytestmark = google_bert.needs_checkout
TEXTS = [
    "Hello, [SEP] world [MASK]! [CLS] [UNK] [PAD] ##ing # ##",
    *["a" * length for length in (199, 200, 201, 100_000)],
    *["é" * 200 + " x", "a\u0300\u0301\u0302" * 60, "x y " * 25_000],
    *["", "   ", "\0\1a\x7fb\x85c", "a\tb\nc\rd\x0be\x0cf\x1cg", "a\u2028b\u2029c\xa0d\u3000e"],
    *["\u200bd\u200de\ufeff\xad", "\ufffda", "\ufdd0a", "a\ue000b", "\U0010fffd", "a \ud800"],
    *["東京は日本の首都です。", "안녕하세요 각", "ไทยภาษา", "क्षत्रिय", "עִבְרִית", "ﷺ ﬁn ﬀ ½ ² ™"],
    *["😀👍🏽 👨\u200d👩\u200d👧", "e\u0301a\u0308 café naïve", "𝐀𝐁 𝕏", "Ａｂｃ", "Ⅷ ⓐ Ⓐ"],
    *["ΟΔΟΣ ΣΑΣ Σ aΣ Σb ΑΣ. ΑΣ' ΑΣ\0Α ΑΣ\x0bΑ ΑΣ\xadΑ ΑΣ中Α ΣΣ", "İΣ ΣİΣ", "\u0345\u0399 Ά ΐ"],
    *["İstanbul DİYARBAKIR ı ẞ ß Straße ǆ Ǆ ǅ ŉ Å", "won't can't I'm $5.00 a_b c-d e^f `g` ~"],
]


@pytest.fixture(scope="module")
def google():
    """The module tokenization.py."""
    return google_bert.load("tokenization")


@pytest.fixture(scope="module")
def vocab():
    """A vocabulary in which each character of the texts is a piece, inside words too."""
    texts = "".join(TEXTS)
    kept = ("L", "M", "N", "P", "S")  # no spaces, and none that is not a character
    characters = {c for c in texts + texts.lower() if unicodedata.category(c).startswith(kept)}
    continuing = {f"##{c}" for c in characters}
    pieces = [*wordpiece.SPECIAL, *sorted(characters), *sorted(continuing), "sep", "mask"]
    return "".join(f"{piece}\n" for piece in pieces).encode()


def ids_by_google(google, ours, texts):
    numbers = {piece: number for number, piece in enumerate(ours.pieces)}
    basic = google.BasicTokenizer(do_lower_case=ours.lower_case)
    pieces = google.WordpieceTokenizer(numbers)
    return [
        [numbers[piece] for word in basic.tokenize(text) for piece in pieces.tokenize(word)]
        for text in texts
    ]


@pytest.mark.parametrize("lower_case", [True, False])
def test_hostile_text_has_the_same_ids(google, vocab, lower_case):
    ours = wordpiece.WordPieceTokenizer(vocab, lower_case)
    for text, wanted in zip(TEXTS, ids_by_google(google, ours, TEXTS)):
        assert ours.encode_ids([text])[0] == wanted, ascii(text[:80])
        assert ours.encode([text])[0].ids == wanted


@pytest.mark.parametrize("lower_case", [True, False])
def test_characters_of_unicode_3_2_have_the_same_ids(google, vocab, lower_case):
    """Later versions of Unicode added or changed the characters that differ."""
    ours = wordpiece.WordPieceTokenizer(vocab, lower_case)
    changed = {"\u166d", "\u1734", "\u1885", "\u1886"}
    known = unicodedata.ucd_3_2_0.category
    characters = [chr(code) for code in range(0x110000) if known(chr(code)) != "Cn"]
    characters = [c for c in characters if c not in changed and known(c) != "Co"]
    texts = [f"a{c}b" for c in [*characters, "\ue000", "\uf8ff", "\U000f0000", "\U0010fffd"]]
    ours_of = ours.encode_ids(texts)
    wanted = ids_by_google(google, ours, texts)
    assert [ascii(t) for t, a, b in zip(texts, ours_of, wanted) if a != b] == []


@pytest.mark.parametrize("lower_case", [True, False])
@pytest.mark.skipif("BERT_TEXT" not in os.environ, reason="BERT_TEXT, a text file, is not set")
def test_a_thousand_lines_have_the_same_ids(google, lower_case):
    path = os.environ["BERT_TEXT"]
    unpack = {".gz": gzip.decompress, ".xz": lzma.decompress}
    content = pathlib.Path(path).read_bytes()
    content = unpack.get(pathlib.Path(path).suffix, bytes)(content)
    lines = content.decode("utf-8", "ignore").split("\n")
    lines = random.Random(0).sample(lines, min(1000, len(lines)))
    ours = wordpiece.load(os.environ["BERT_VOCAB"], lower_case)
    assert ours.encode_ids(lines) == ids_by_google(google, ours, lines)
