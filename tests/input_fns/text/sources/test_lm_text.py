"""Plain text for language models: documents, splits and rows."""

import json

import pytest

from common.constants import END_OF_TEXT
from input_fns import DataError, convert
from input_fns.convert.options import Options
from input_fns.text import tokenizer
from tests.input_fns.text.sources.text_data import decoded

LENGTH = 8


def read(source, **options):
    lines = []
    options = {"max_length": LENGTH, "tokenizer": "characters", **options}
    raw = convert.read(Options("lm_text", source=str(source), **options), lines.append)
    return raw, lines


def stream(split):
    """The tokens that the rows of a split predict, in order, and the first tokens of the rows."""
    predicted, firsts = [], []
    for row in split:
        values = decoded(row)
        firsts.append(int(values["tokens"][0]))
        predicted += values["tokens"][1 : 1 + values["num_tokens"].item()].tolist()
    return predicted, firsts


def text_of(raw, name):
    predicted, _ = stream(raw.splits[name])
    found = tokenizer.Tokenizer(raw.files[raw.kind.vocabulary])
    return [END_OF_TEXT if i == found.end_of_text else found.decode([i]) for i in predicted]


def test_each_token_is_predicted_once_with_the_one_before_it(tmp_path):
    (tmp_path / "train.txt").write_text("To be, or not to be.\n")
    (tmp_path / "val.txt").write_text("That is\r\n it")
    raw, lines = read(tmp_path)
    assert "".join(text_of(raw, "train")) == f"To be, or not to be.\n{END_OF_TEXT}"
    assert "".join(text_of(raw, "validation")) == f"That is\r\n it{END_OF_TEXT}"
    predicted, firsts = stream(raw.splits["train"])
    assert firsts == [raw.kind.end_of_text, *predicted[LENGTH - 1 :: LENGTH][: len(firsts) - 1]]
    assert lines[-2] == "train: 1 documents, 21 bytes, 22 tokens, in 3 rows of 8"
    assert raw.kind.vocab_size == len(set("To be, or not to be.\nThat is\r\n it")) + 1


def test_bytes_of_rows_sum_to_those_of_the_text(tmp_path):
    text = "naïve café ☃ " * 9
    (tmp_path / "train.txt").write_text(text)
    raw, _ = read(tmp_path, tokenizer="bpe", vocab_size=512, validation_fraction=0.0)
    rows = [decoded(row) for row in raw.splits["train"]]
    assert sum(row["num_bytes"].item() for row in rows) == len(text.encode())
    assert raw.kind.splits["train"].num_bytes == len(text.encode())
    assert sum(row["num_tokens"].item() for row in rows) == raw.kind.splits["train"].num_tokens


def test_blocks_equal_rows_one_by_one(tmp_path):
    (tmp_path / "train.txt").write_text("abcdefghij" * 4)
    raw, _ = read(tmp_path, validation_fraction=0.0)
    split = raw.splits["train"]
    expected = [dict(split.read(i).values) for i in range(len(split))]
    assert [dict(row.values) for row in split] == expected


def test_the_end_of_one_text_is_held_out(tmp_path):
    text = "".join(chr(ord("a") + i % 26) for i in range(200))
    (tmp_path / "input.txt").write_text(text)
    raw, lines = read(tmp_path / "input.txt", test_fraction=0.05, validation_fraction=0.1)
    assert "".join(text_of(raw, "train"))[: -len(END_OF_TEXT)] == text[:170]
    assert "".join(text_of(raw, "validation"))[: -len(END_OF_TEXT)] == text[170:190]
    assert "".join(text_of(raw, "test"))[: -len(END_OF_TEXT)] == text[190:]
    assert "'validation' is the end of the text of 'train': 20 characters" in lines


def test_documents_of_files_and_json_lines(tmp_path):
    (tmp_path / "a.txt").write_text(f"one{END_OF_TEXT}two{END_OF_TEXT}\n")
    rows = [{"text": "three", "id": 3}, {"text": " "}, {"text": "four"}]
    (tmp_path / "b.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    raw, lines = read(tmp_path, validation_fraction=0.0)
    documents = "".join(text_of(raw, "train")).split(END_OF_TEXT)
    assert sorted(documents) == ["", "four", "one", "three", "two"]
    assert raw.kind.splits["train"].left_out == {"documents without a text": 2}
    assert "left out" in lines[-1]


def test_whole_documents_are_held_out_of_many(tmp_path):
    texts = [f"<{i}>" for i in range(30)]
    (tmp_path / "all.txt").write_text(END_OF_TEXT.join([*texts, " ", "\n"]))
    raw, _ = read(tmp_path)
    found = {name: "".join(text_of(raw, name)).split(END_OF_TEXT)[:-1] for name in raw.splits}
    assert sorted(found["train"] + found["validation"]) == sorted(texts)
    assert len(found["validation"]) == 3
    empty = {name: split.left_out for name, split in raw.kind.splits.items()}
    assert empty == {"train": {"documents without a text": 2}, "validation": {}}


def test_a_vocabulary_of_another_data_set_lacks_a_character(tmp_path):
    (tmp_path / "train.txt").write_text("abc")
    content = tokenizer.characters(["ab"]).content
    (tmp_path / "vocabulary").mkdir()
    (tmp_path / "vocabulary" / "tokenizer.json").write_bytes(content)
    with pytest.raises(DataError, match=r"split '.*': 1 character .*: c \(U\+0063\)"):
        read(tmp_path / "train.txt", vocabulary=str(tmp_path / "vocabulary"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train.txt", b" \n", "has no text"),
        ("train.txt", b"a\n\x81\xfe\xff\n", "line 2"),
        ("train.jsonl", b'{"text": "a"}\n{"words": 1}\n', "line 2: it is no JSON object"),
        ("train.jsonl", b'{"text": "\\ud800"}\n', "lone surrogate"),
    ],
)
def test_bad_text_is_one_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as error:
        read(tmp_path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
