"""Click logs are read in parts and from any row, in any encoding, as by one reader."""

import codecs
import collections
import gzip
import itertools
import lzma

import numpy as np
import pytest

from input_fns import DataError
from input_fns.convert.options import Options
from input_fns.convert.runners import InProcess
from input_fns.tables.sources import criteo, criteo_counts, criteo_text
from tests import clicks_data

LINES = clicks_data.lines(31)
TEXT = "\n".join(LINES)
FILES = {
    "plain.txt": f"{TEXT}\n".encode(),
    "no_last_feed.txt": TEXT.encode(),
    "crlf.txt": f"{TEXT}\n".replace("\n", "\r\n").encode(),
    "mark.txt": codecs.BOM_UTF8 + f"{TEXT}\r".replace("\n", "\r\n").encode(),
    "utf-16.txt": TEXT.replace("\n", "\r\n").encode("utf-16"),
    "utf-32.txt.xz": lzma.compress(TEXT.encode("utf-32")),
    "packed.gz": gzip.compress(f"{TEXT}\n".encode()),
}


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of about 3 rows, parts of 5 and runs of 4."""
    monkeypatch.setattr(criteo_text, "_BLOCK_BYTES", 700)
    monkeypatch.setattr(criteo_text, "_DECODED_LINES", 3)
    monkeypatch.setattr(criteo_counts, "_PART_BYTES", 1100)
    monkeypatch.setattr(criteo_counts, "_RUN_ROWS", 4)


def count(path):
    logs, runs = criteo_counts.count({"train": [str(path)]}, (), InProcess())
    return logs["train"], runs


@pytest.mark.parametrize("size", [1, 7, 20, 10**6])
@pytest.mark.parametrize("block", [3, 8, 100])
def test_each_line_is_in_the_part_that_has_its_first_byte(tmp_path, monkeypatch, size, block):
    monkeypatch.setattr(criteo_text, "_BLOCK_BYTES", block)
    content = b"a\n\nbcdefgh\r\n\r\nijklmnopqrstuvwxyz\nab\nc\nlast"
    (tmp_path / "a").write_bytes(content)
    lines = content.split(b"\n")
    starts = itertools.accumulate([0, *(len(line) + 1 for line in lines[:-1])])
    texts = {start: line.removesuffix(b"\r") for start, line in zip(starts, lines)}
    for begin in range(0, len(content), size):
        part = range(begin, begin + size)
        found = list(criteo_text.iterate_blocks(str(tmp_path / "a"), part.start, part.stop))
        assert all(piece.startswith(texts[place] + b"\n") for place, piece in found)
        expected = [text for start, text in texts.items() if start in part]
        assert b"".join(piece for _, piece in found).split(b"\n") == [*expected, b""]


@pytest.mark.parametrize("name", FILES)
def test_any_rows_of_any_file_are_those_of_the_text(tmp_path, small_blocks, name):
    (tmp_path / name).write_bytes(FILES[name])
    log, runs = count(tmp_path / name)
    assert log.files[0].size == len(LINES)
    assert [i for run in runs for i in run.rows] == list(range(len(LINES)))
    assert len(runs) > 1
    for rows in (range(31), range(1), range(7, 12), range(12, 20), range(5, 6), range(30, 31)):
        blocks = [lines for _, lines in log.files[0].blocks(rows)]
        assert b"".join(blocks).decode().splitlines() == LINES[rows.start : rows.stop]


@pytest.mark.parametrize("name", FILES)
def test_an_invalid_line_has_the_number_that_it_has_in_the_file(tmp_path, small_blocks, name):
    unpack = {"xz": lzma, "gz": gzip}.get(name.rpartition(".")[2])
    content = unpack.decompress(FILES[name]) if unpack else FILES[name]
    encoding = name[:6] if name.startswith("utf") else "utf-8"
    lines = content.decode(encoding).split("\n")
    lines[17] = lines[17].replace("\t", "\tx", 1)
    content = "\n".join(lines).encode(encoding)
    (tmp_path / name).write_bytes(unpack.compress(content) if unpack else content)
    with pytest.raises(DataError, match=rf"{name}, line 18: I1 'x-?\d*' is not an integer"):
        count(tmp_path / name)


def test_a_line_of_another_kind_of_file_is_not_read_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(criteo_text, "_MAX_LINE_BYTES", 3000)
    monkeypatch.setattr(criteo_text, "_BLOCK_BYTES", 700)
    (tmp_path / "a").write_text(f"{LINES[0]}\n{'x' * 9000}")
    with pytest.raises(DataError, match="line 2: over 64 MiB"):
        count(tmp_path / "a")


@pytest.mark.parametrize("train", [1, 4, 9, 12, 30])
@pytest.mark.parametrize("name", ["plain.txt", "packed.gz"])
def test_the_vocabulary_has_the_values_of_train_only(tmp_path, small_blocks, name, train):
    (tmp_path / name).write_bytes(FILES[name])
    options = Options(
        "criteo",
        source=str(tmp_path / name),
        min_frequency=2,
        hash_rows=3,
        validation_fraction=0,
        test_fraction=1 - train / len(LINES),
    )
    raw = criteo.read(options, InProcess())
    assert len(raw.splits["train"]) == train
    expected = []
    for i in range(26):
        values = [line.split("\t")[14 + i] for line in LINES[:train]]
        counts = collections.Counter(filter(None, values))
        common = sorted((-n, value) for value, n in counts.items() if n > 1)
        expected += [f"C{i + 1}\t{value}" for value in ("", *(value for _, value in common))]
    assert raw.files[raw.kind.vocabulary].decode().splitlines() == expected
    missing = sum(value == "" for line in LINES for value in line.split("\t"))
    assert sum(raw.kind.missing.values()) == missing


def test_blocks_are_those_of_rows_read_one_by_one(tmp_path, small_blocks):
    (tmp_path / "a.txt").write_bytes(FILES["plain.txt"])
    raw = criteo.read(Options("criteo", source=str(tmp_path / "a.txt")), InProcess())
    split = raw.splits["train"]
    rows = list(itertools.chain.from_iterable(split.blocks()))
    labels = np.array([row.label for row in rows])
    assert labels.tolist() == [int(line[0]) for line in LINES[: len(split)]]
    assert all(split.read(i) == row for i, row in enumerate(rows))
