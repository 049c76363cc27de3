"""Subwords: whole texts come back, whatever is in them."""

import numpy as np
import pytest

from common.constants import EOS, PAD, SUBWORDS
from input_fns import DataError
from input_fns.text import vocabulary

LINES = ["a small dog runs over the small hill", "the dog sees a bird", "birds see the hill"] * 20
STRANGE = [
    "",
    " ",
    "  two  spaces  ",
    "\ttab",
    "emoji 😀👍🏽 and 日本語",
    "e\u0301 is not é",
    "“quotes” — ﬁ",
    "x" * 10_000,
    "\x00\x01 control",
    "line\u2028separator",
]


@pytest.fixture(scope="module", params=SUBWORDS)
def pieces(request):
    return vocabulary.train(map(str.encode, LINES), 384, request.param, seed=0)


def test_what_is_encoded_is_decoded(pieces):
    lines = LINES[:3] + STRANGE
    encoded = pieces.encode(lines)
    rows = np.zeros([len(lines), max(map(len, encoded)) + 1], np.int32)
    for row, ids in zip(rows, encoded):
        row[: len(ids)] = ids
    assert pieces.decode(rows) == lines


def test_each_line_ends_in_the_id_that_the_models_know(pieces):
    for ids in pieces.encode(LINES[:3] + STRANGE):
        assert ids[-1] == EOS
        assert not {PAD, EOS} & set(ids[:-1])


def test_the_size_is_a_multiple_of_128_though_the_text_has_fewer_pieces(pieces):
    assert pieces.size == 384
    assert max(max(ids) for ids in pieces.encode(LINES)) < 384


def test_ids_that_are_no_piece_are_left_out(pieces):
    ids = pieces.encode(["the dog"])[0]
    assert pieces.decode([[383, *ids, 5, 6]]) == ["the dog"]


def test_known_words_are_short_and_others_bytes(pieces):
    known, strange = pieces.encode(["the small dog", "日本語"])
    assert len(known) <= len(" the small dog") + 1
    assert len(strange) == 1 + 3 * 3 + 1  # a space, three bytes each, the end


def test_a_model_is_itself_after_a_round_trip(pieces, tmp_path):
    (tmp_path / "vocabulary.model").write_bytes(pieces.model)
    again = vocabulary.load(str(tmp_path / "vocabulary.model"))
    assert again.encode(LINES) == pieces.encode(LINES)


def test_what_is_no_vocabulary_is_refused(tmp_path):
    with pytest.raises(DataError, match="is not there"):
        vocabulary.load(str(tmp_path / "none.model"))
    (tmp_path / "text.model").write_text("no model")
    with pytest.raises(DataError, match=r"text\.model is not a SentencePiece model"):
        vocabulary.load(str(tmp_path / "text.model"))


def test_without_text_there_is_no_vocabulary():
    with pytest.raises(DataError, match="no text to learn a vocabulary from"):
        vocabulary.train([b"", "\u2003".encode()], 384, "unigram", seed=0)


def test_more_characters_than_room_are_refused():
    with pytest.raises(DataError, match="no vocabulary of 256 pieces"):
        vocabulary.train(map(str.encode, LINES), 256, "unigram", seed=0)
