"""Rows of WordPiece ids."""

import json

import numpy as np
import pytest

from input_fns import DataError
from input_fns.convert import writer
from input_fns.text.sources import token_rows
from tests.input_fns.text.sources import text_data
from tests.input_fns.text.sources.text_data import TOKENIZER, decoded


def cut(first, second, room):
    """Cuts as in the description of google-research/bert: token by token."""
    while first + second > room:
        if first > second:
            first -= 1
        else:
            second -= 1
    return first, second


def test_the_longer_text_of_a_pair_is_cut_first():
    assert token_rows.truncated_lengths(5, 2, 6) == (4, 2)
    assert token_rows.truncated_lengths(4, 4, 7) == (4, 3)
    for first, second, room in np.ndindex(9, 9, 18):
        wanted = cut(first, second, room)
        assert token_rows.truncated_lengths(first, second, room) == wanted


def test_a_pair_has_two_segments():
    values = token_rows.row_values((np.array([7, 8]), np.array([9])), TOKENIZER, 8)
    ids = np.frombuffer(values["input_ids"], "<u2").tolist()
    cls, sep = TOKENIZER.cls_id, TOKENIZER.sep_id
    assert ids == [cls, 7, 8, sep, 9, sep, TOKENIZER.pad_id, TOKENIZER.pad_id]
    assert list(values["segment_ids"]) == [0, 0, 0, 0, 1, 1, 0, 0]
    assert list(values["input_mask"]) == [1, 1, 1, 1, 1, 1, 0, 0]


def test_a_block_has_the_values_of_its_rows():
    pairs = [([7, 8], [9]), ([], [5, 6, 7]), ([1, 2, 3], []), ([], [])]
    ids = np.array([token for pair in pairs for text in pair for token in text], np.uint16)
    lengths = np.array([list(map(len, pair)) for pair in pairs])
    block = token_rows.block_values(ids, lengths, TOKENIZER, 8)
    for i, pair in enumerate(pairs):
        row = {name: values[i].tobytes() for name, values in block.items()}
        assert row == token_rows.row_values([np.array(text) for text in pair], TOKENIZER, 8)


@pytest.fixture
def table(tmp_path):
    """A function that reads rows of (text, label) as text_files."""
    vocabulary = text_data.vocab_file(tmp_path)
    folder = tmp_path / "texts"
    folder.mkdir()

    def read(rows, **options):
        lines = ["text\tlabel", *("\t".join(row) for row in rows)]
        (folder / "train.tsv").write_text("\n".join(lines), "utf-8")
        options = {"validation_fraction": 0.0, "vocabulary": vocabulary, **options}
        return text_data.read(
            "text_files", folder, text_columns=("text",), label_columns=("label",), **options
        )

    return read


def test_truncated_texts_are_counted(table):
    raw, lines = table([("dogs " * 50_000, "a"), ("dog", "b")], max_length=8)
    assert sorted(text_data.texts(raw.splits["train"])) == [
        "[CLS] dog [SEP]",
        "[CLS] dogs dogs dogs [SEP]",
    ]
    described = raw.kind.splits["train"]
    assert (described.num_texts, described.num_truncated, described.num_tokens) == (2, 1, 11)
    assert "1 truncated" in lines[-1]


def test_tokens_may_be_removed_from_the_middle(table):
    text = "the dog " + "the " * 50_000 + "dog the dog the dog dog the"
    raw, _ = table([(text, "a"), ("the dog", "b")], max_length=10, truncate="middle")
    assert sorted(text_data.texts(raw.splits["train"])) == [
        "[CLS] the dog [SEP]",
        "[CLS] the dog the dog the dog dog the [SEP]",
    ]
    assert raw.kind.truncate == "middle"
    assert raw.kind.splits["train"].num_truncated == 1


def test_texts_without_tokens_are_counted(table):
    _, lines = table([("\u200b\u200d", "a"), ("dog", "b")])
    assert lines[-1] == "train: 1 of them without tokens, such as of invisible characters"


def test_the_counts_are_in_dataset_json(table, tmp_path):
    raw, _ = table([("dogs " * 9, "a"), ("dog", "b")], max_length=8)
    writer.write(raw, str(tmp_path / "out"))
    stored = json.loads((tmp_path / "out" / "dataset.json").read_text())["wordpiece"]
    assert stored["splits"]["train"]["num_truncated"] == 1
    assert stored["vocab_size"] == TOKENIZER.vocab_size
    assert (tmp_path / "out" / stored["vocabulary"]).read_bytes() == TOKENIZER.vocab


def test_a_vocabulary_may_be_that_of_a_prepared_data_set(table, tmp_path):
    raw, _ = table([("dog", "a"), ("dog s", "b")])
    writer.write(raw, str(tmp_path / "out"))
    again, _ = table([("dog", "a"), ("dog s", "b")], vocabulary=str(tmp_path / "out"))
    assert again.kind.vocabulary == raw.kind.vocabulary
    with pytest.raises(DataError, match="was prepared with --lower_case=true"):
        table([("dog", "a"), ("a", "b")], vocabulary=str(tmp_path / "out"), lower_case=False)


def test_a_vocabulary_of_a_cased_data_set_may_have_no_capital_letter(table, tmp_path):
    rows, options = [("the dog", "a"), ("the film", "b")] * 3, {"lower_case": False}
    raw, _ = table(rows, vocabulary="", vocab_size=512, **options)
    writer.write(raw, str(tmp_path / "out"))
    again, _ = table(rows, vocabulary=str(tmp_path / "out"), **options)
    assert again.kind.vocabulary == raw.kind.vocabulary


def test_a_vocabulary_may_be_learnt(table):
    raw, lines = table([("the dog", "a"), ("the film", "b")] * 3, vocabulary="", vocab_size=512)
    assert "learning 512" in lines[0]
    assert b"\nfilm\n" in raw.files[raw.kind.vocabulary]


@pytest.mark.parametrize(
    ("pieces", "lower_case", "message"),
    [
        (["Dog", "Film", "dog"], True, "2 pieces with capital letters.*--lower_case=false"),
        (["dog", "film"], False, "no piece with a capital letter.*Remove --lower_case=false"),
    ],
)
def test_a_vocabulary_of_the_other_case_is_an_error(table, tmp_path, pieces, lower_case, message):
    vocabulary = tmp_path / "other.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces]))
    with pytest.raises(DataError, match=message):
        table([("dog", "a"), ("a", "b")], vocabulary=str(vocabulary), lower_case=lower_case)


def test_a_regression_has_scores(table):
    raw, _ = table([("dog", "0.5"), ("dogs", "-2")], task="regression")
    assert raw.labels == ("score",)
    assert raw.class_names == ()
    scores = sorted(float(decoded(row)["score"][0]) for row in raw.splits["train"])
    assert scores == [-2.0, 0.5]
