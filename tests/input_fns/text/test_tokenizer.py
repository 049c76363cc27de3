"""Byte-level BPE and characters: what a text becomes, and that it comes back."""

import json
import pickle

import numpy as np
import pytest
import tokenizers as library

from common.constants import END_OF_TEXT
from input_fns import DataError
from input_fns.text import tokenizer

TEXT = "Héllo, wörld!\r\n\n  you're 12 ok\t🎉 \x00x"
CORPUS = ["the cat sat on the mat. " * 9, "the dog sat\n" * 9]


@pytest.fixture(scope="module")
def bpe():
    return tokenizer.train(CORPUS, 300)


@pytest.mark.parametrize("kind", ["bpe", "characters"])
def test_text_comes_back_and_bytes_are_counted(bpe, kind):
    found = bpe if kind == "bpe" else tokenizer.characters([TEXT])
    (ids,) = found.encode([TEXT])
    assert found.decode(ids) == TEXT
    assert found.num_bytes[ids].sum() == len(TEXT.encode())
    assert ids.dtype == np.int32


@pytest.mark.parametrize("kind", ["bpe", "characters"])
def test_the_library_joins_tokens_without_spaces(bpe, kind):
    found = bpe if kind == "bpe" else tokenizer.characters([TEXT])
    (ids,) = found.encode([TEXT])
    assert library.Tokenizer.from_str(found.content.decode()).decode(ids) == TEXT


def test_learnt_tokens_are_those_of_the_library(bpe):
    (ids,) = bpe.encode([CORPUS[0]])
    theirs = library.Tokenizer.from_str(bpe.content.decode())
    assert ids.tolist() == theirs.encode(CORPUS[0]).ids
    assert len(ids) < len(CORPUS[0]) / 3
    assert tokenizer.train(CORPUS, 300).content == bpe.content


def test_a_long_text_is_encoded_in_pieces_without_other_tokens(bpe, monkeypatch):
    text = "the cat  sat\n\non the mat's 12 dogs " * 5
    expected = bpe.encode([text])[0].tolist()
    monkeypatch.setattr(tokenizer, "_PIECE_CHARACTERS", 7)
    monkeypatch.setattr(tokenizer, "_CALL_CHARACTERS", 20)
    assert bpe.encode([text])[0].tolist() == expected


def test_the_end_of_text_is_a_token_that_text_cannot_spell(bpe):
    (ids,) = bpe.encode([f"a{END_OF_TEXT}b"])
    assert ids.tolist().count(bpe.end_of_text) == 1
    assert bpe.end_of_text == bpe.size - 1
    assert bpe.decode(ids) == "ab"
    parts = bpe.encode([END_OF_TEXT[:-1], "|>"])
    assert not any(bpe.end_of_text in ids for ids in parts)


def test_a_vocabulary_of_gpt2_is_read_from_both_forms(bpe, tmp_path):
    model = json.loads(bpe.content)["model"]
    merges = [" ".join(pair) if isinstance(pair, list) else pair for pair in model["merges"]]
    for folder, names in (
        ("hugging_face", ("vocab.json", "merges.txt")),
        ("openai", ("encoder.json", "vocab.bpe")),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / names[0]).write_text(json.dumps(model["vocab"]))
        (tmp_path / folder / names[1]).write_text("\n".join(["#version: 0.2", *merges, ""]))
        found = tokenizer.load(str(tmp_path / folder))
        assert found.encode([TEXT])[0].tolist() == bpe.encode([TEXT])[0].tolist()


def test_special_tokens_of_a_tokenizer_json_are_not_made_of_text(bpe, tmp_path):
    theirs = library.Tokenizer.from_str(bpe.content.decode())
    theirs.add_special_tokens(["the"])
    theirs.save(str(tmp_path / "tokenizer.json"))
    found = tokenizer.load(str(tmp_path))
    assert found.encode(["the cat"])[0].tolist() == bpe.encode(["the cat"])[0].tolist()


def test_it_is_pickled(bpe):
    copy = pickle.loads(pickle.dumps(bpe))
    assert copy.encode(["the mat"])[0].tolist() == bpe.encode(["the mat"])[0].tolist()


def test_an_unknown_character_is_named():
    found = tokenizer.characters(["abc\n"])
    with pytest.raises(DataError, match=r"2 characters not in the vocabulary of 4: é \(U"):
        found.encode(["aé☃"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["model"].update(type="Unigram"), "not a tokenizer.json"),
        (lambda c: c.update(pre_tokenizer={"type": "Whitespace"}), "of Whitespace BPE"),
        (lambda c: c.update(normalizer={"type": "NFC"}), "changes texts before it splits them"),
        (lambda c: c["pre_tokenizer"].update(add_prefix_space=True), "changes texts before"),
        (lambda c: c["model"]["vocab"].pop(END_OF_TEXT), "has no token <|endoftext|>"),
        (lambda c: c["model"]["vocab"].update({END_OF_TEXT: 999}), "are not 0, 1, 2"),
    ],
)
def test_another_tokenizer_is_an_error(bpe, tmp_path, change, message):
    content = json.loads(bpe.content)
    change(content)
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(DataError) as error:
        tokenizer.load(str(tmp_path / "tokenizer.json"))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"tokenizer\.json is not"):
        tokenizer.load(str(tmp_path))
