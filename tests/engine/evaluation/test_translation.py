"""Lines of text to translate: order, skipped lines, errors."""

import numpy as np
import pytest

from engine.evaluation import translation
from input_fns import DataError, dataset_info
from input_fns.text.text_pipeline import TextPipeline


@pytest.fixture
def pipeline(pairs_dir):
    return TextPipeline(dataset_info.load(pairs_dir, "pairs"))


@pytest.fixture
def file(tmp_path):
    def write(content):
        (tmp_path / "input.txt").write_bytes(content)
        return str(tmp_path / "input.txt")

    return write


def test_sentences_are_sorted_by_length_and_restored_to_line_order(pipeline, file):
    path = file(b"one\none two three\none two\n")
    found = translation.from_file(path, pipeline)
    lengths = np.count_nonzero(found.rows, axis=1)
    assert (np.diff(lengths) < 0).all()
    assert pipeline.vocabulary.decode(found.rows) == ["one two three", "one two", "one"]
    assert found.in_order("ABC") == ["C", "A", "B"]


def test_empty_and_long_lines_get_empty_translations(pipeline, file, capsys):
    path = file(b"one\n\n" + b"two " * 5000 + b"\r\n  \n" + "three 😀\n".encode())
    found = translation.from_file(path, pipeline)
    assert found.lines.tolist() == [4, 0]
    assert found.in_order(["A", "B"]) == ["B", "", "", "", "A"]
    printed = capsys.readouterr().out
    assert "2 line(s) are empty and are skipped: 2, 4" in printed
    assert "1 line(s) are longer than the 32 tokens" in printed
    assert printed.rstrip().endswith(": 3")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"one\n\xff\n", r"input\.txt, line 2, byte 4: no UTF-8"),
        (b"", "has no line that can be translated"),
        (b"\n\n", "has no line that can be translated"),
    ],
)
def test_a_file_without_text_is_rejected(pipeline, file, content, message):
    with pytest.raises(DataError, match=message):
        translation.from_file(file(content), pipeline)


def test_a_missing_file_is_rejected(pipeline, tmp_path):
    with pytest.raises(DataError, match="is not there"):
        translation.from_file(str(tmp_path / "none.txt"), pipeline)


def test_too_few_translations_are_an_error(pipeline):
    found = translation.from_split(pipeline, "test")
    assert (found.num_lines, len(found.rows)) == (11, 11)
    with pytest.raises(DataError, match="10 translations for 11 sentences"):
        found.in_order(["A"] * 10)
