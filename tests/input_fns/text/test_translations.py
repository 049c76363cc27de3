"""Lines of text to translate: order, skipped lines, errors."""

import numpy as np
import pytest

from input_fns import DataError, dataset_info
from input_fns.text import translations
from input_fns.text.sources import sentence_file
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


@pytest.fixture
def written(tmp_path):
    """Writes translations, given in the order of the rows, in two batches; returns the file."""

    def write(sentences, texts):
        writer = translations.TranslationWriter("".join, sentences)
        path = tmp_path / "output.txt"
        writer.write(str(path), iter([{"target": texts[:1]}, {"target": texts[1:]}]))
        return path.read_text()

    return write


def test_sentences_are_sorted_by_length_and_restored_to_line_order(pipeline, file, written):
    path = file(b"one\none two three\none two\n")
    found = sentence_file.read(path, pipeline)
    lengths = np.count_nonzero(found.rows, axis=1)
    assert (np.diff(lengths) < 0).all()
    assert pipeline.vocabulary.decode(found.rows) == ["one two three", "one two", "one"]
    assert written(found, "ABC") == "C\nA\nB\n"


def test_empty_and_long_lines_get_empty_translations(pipeline, file, written, capsys):
    path = file(b"one\n\n" + b"two " * 5000 + b"\r\n  \n" + "three 😀\n".encode())
    found = sentence_file.read(path, pipeline)
    assert found.lines.tolist() == [4, 0]
    assert written(found, "AB") == "B\n\n\n\nA\n"
    printed = capsys.readouterr().out
    assert "2 lines skipped, empty: 2, 4" in printed
    assert "1 line skipped, longer than the 32 tokens" in printed
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
        sentence_file.read(file(content), pipeline)


def test_a_missing_file_is_rejected(pipeline, tmp_path):
    with pytest.raises(DataError, match="is not there"):
        sentence_file.read(str(tmp_path / "none.txt"), pipeline)


def test_a_split_has_a_line_for_each_example(pipeline):
    found = pipeline.split_examples("test")
    assert (found.what, found.num_lines, found.size) == ("", 11, 11)
