"""Documents of text files, in parts that worker processes read."""

import gzip

import numpy as np
import pytest

from input_fns import DataError
from input_fns.convert import files
from input_fns.convert.runners import InProcess
from input_fns.text.sources import documents

TEXT = "a\nb é\n\n c\t\r\n\r\n\n \x0c\n日本\n\u3000\nd\n\x1c\ne\n\n\n"
DOCUMENTS = [["a", "b é"], ["c"], ["日本"], ["d"], ["e"]]


def read(path, encoding=None, indices=None):
    """Returns the documents of a file, and the number of its pieces."""
    notes = []
    with files.recording(notes.append):
        pieces = documents.find_pieces([str(path)], encoding, InProcess())
    count = sum(piece.num_documents for piece in pieces)
    indices = np.arange(count, dtype=np.uint32) if indices is None else indices
    parts = documents.cut_split(pieces, indices)
    return [document for part in parts for document in part], len(pieces), notes


@pytest.mark.parametrize("size", range(1, 9))
def test_a_document_is_in_one_part(tmp_path, monkeypatch, size):
    path = tmp_path / "a.txt"
    path.write_text(f"\ufeff{TEXT}", newline="")
    whole, count, _ = read(path)
    assert whole == DOCUMENTS
    assert count == 1
    monkeypatch.setattr(documents, "_PART_BYTES", size)
    monkeypatch.setattr(documents, "_READ_BYTES", size)
    found, count, _ = read(path)
    assert found == DOCUMENTS
    assert count > 2
    assert read(path, indices=np.array([1, 4], np.uint32))[0] == [["c"], ["e"]]


def test_a_large_text_has_larger_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "_PART_BYTES", 1)
    monkeypatch.setattr(documents, "_MAX_PARTS", 3)
    path = tmp_path / "a.txt"
    path.write_text("a\n\n" * 100)
    assert read(path) == ([["a"]] * 100, 3, [])


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        (gzip.compress(TEXT.encode(), mtime=0), None),
        (TEXT.encode("utf-16"), None),
        (TEXT.replace("日本", "à").encode("latin-1", "replace"), "latin-1"),
        ((TEXT.replace("日本", "à") + "plain text\n" * 9).encode("cp1252", "replace"), ""),
    ],
)
def test_another_file_is_read_as_a_whole(tmp_path, monkeypatch, content, encoding):
    path = tmp_path / ("a.txt.gz" if content[:2] == b"\x1f\x8b" else "a.txt")
    path.write_bytes(content)
    whole = read(path, encoding)
    assert whole[0][0] == ["a", "b é"]
    assert bool(whole[2]) == (encoding == "")  # it is read as Windows-1252
    monkeypatch.setattr(documents, "_PART_BYTES", 3)
    assert read(path, encoding) == whole


def test_an_error_names_the_line_of_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "_PART_BYTES", 2)
    path = tmp_path / "a.txt"
    path.write_bytes(b"a\n\nb\n\nc\n\xff\xff\xff\xff\n")
    with pytest.raises(DataError, match=r"a\.txt, line 6: no UTF-8"):
        read(path)


def test_a_file_that_changes_is_an_error(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("a\n\nb\n")
    pieces = documents.find_pieces([str(path)], None, InProcess())
    path.write_text("a\n\nb\n\nc\n")
    with pytest.raises(DataError, match=r"has 3 documents instead of 2 .* may have changed"):
        [*map(list, documents.cut_split(pieces, np.arange(2)))]
