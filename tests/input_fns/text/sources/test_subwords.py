"""From parallel text to rows of token ids: nothing is cut, and what is left out is counted."""

import numpy as np
import pytest

from input_fns import DataError, convert, dataset_info
from input_fns.convert.options import Options
from input_fns.text import vocabulary

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight"]


def write_pairs(folder, split, lines, targets=None):
    """Two files, the target in capitals if none is given."""
    targets = targets or [line.upper() for line in lines]
    for language, side in (("en", lines), ("de", targets)):
        (folder / f"{split}.{language}").write_text("".join(f"{line}\n" for line in side))


@pytest.fixture
def folder(tmp_path):
    """200 pairs for training, 13 for validation."""
    random = np.random.default_rng(0)
    lines = [" ".join(random.choice(WORDS, random.integers(1, 9))) for _ in range(213)]
    write_pairs(tmp_path, "train", lines[13:])
    write_pairs(tmp_path, "val", lines[:13])
    return tmp_path


def read(folder, **changes):
    options = {"vocab_size": 384, "max_length": 64, "languages": ("en", "de"), **changes}
    return convert.read(Options("parallel_text", source=str(folder), **options))


def texts(raw, split, side):
    """The text of every sentence of a split, row by row, as lists."""
    pieces = vocabulary.Vocabulary(raw.files[raw.kind.vocabulary])
    rows = []
    for row in raw.splits[split]:
        ids = np.frombuffer(row.values[side], "<u2").tolist()
        sentences = []
        while vocabulary.EOS in ids:
            end = ids.index(vocabulary.EOS)
            sentences += pieces.decode([ids[: end + 1]])
            ids = ids[end + 1 :]
        assert not any(ids)
        rows.append(sentences)
    return rows


def test_rows_are_of_one_length_and_type(folder):
    raw = read(folder)
    for split in raw.splits.values():
        row = next(iter(split))
        assert {name: feature.shape for name, feature in row.features.items()} == {
            "source": (64,),
            "target": (64,),
        }
        assert {feature.dtype for feature in row.features.values()} == {"uint16"}
        assert {len(value) for value in row.values.values()} == {2 * 64}


def test_every_training_pair_is_in_one_row_beside_its_translation(folder):
    raw = read(folder)
    source_rows, target_rows = texts(raw, "train", "source"), texts(raw, "train", "target")
    assert len(source_rows) < 100  # of 200 pairs
    pairs = [pair for row in zip(source_rows, target_rows) for pair in zip(*row)]
    assert all(source_text.upper() == target_text for source_text, target_text in pairs)
    expected = (folder / "train.en").read_text().splitlines()
    assert sorted(source_text for source_text, _ in pairs) == sorted(expected)


def test_other_splits_keep_their_order_a_pair_a_row(folder):
    raw = read(folder)
    lines = (folder / "val.en").read_text().splitlines()
    assert texts(raw, "validation", "source") == [[line] for line in lines]
    assert texts(raw, "validation", "target") == [[line.upper()] for line in lines]


def test_what_training_leaves_out_is_counted(folder):
    long = "one " * 70
    write_pairs(
        folder, "train", ["one two", "", long, "three", long], ["EINS", "LEER", "x", "", long]
    )
    raw = read(folder, vocab_size=384)
    described = raw.kind.splits["train"]
    assert described.pairs == 1
    assert described.left_out == {"empty": 2, "too long": 2}
    assert texts(raw, "train", "target") == [["EINS"]]


def test_what_is_held_out_of_training_leaves_out_the_same(folder):
    (folder / "val.en").unlink()
    (folder / "val.de").unlink()
    lines = (folder / "train.en").read_text().splitlines()
    lines = [f"{line} {i}" for i, line in enumerate(lines)]
    write_pairs(folder, "train", lines + ["one " * 70] * 3)
    for seed in range(9):
        described = read(folder, vocab_size=384, validation_fraction=0.5, seed=seed).kind.splits
        left_out = {name: split.left_out.get("too long", 0) for name, split in described.items()}
        assert sum(left_out.values()) == 3
        if left_out["validation"]:
            return
    pytest.fail("no seed holds a long pair out")


def test_a_long_pair_of_an_evaluation_is_refused(folder):
    lines = ["one", "two " * 70, "three"]
    write_pairs(folder, "val", lines)
    with pytest.raises(
        DataError, match=r"'validation': 1 pair.* in line 2.*--max_length=\d+ has"
    ) as error:
        read(folder)
    enough = int(str(error.value).rpartition("--max_length=")[2].split()[0])
    assert texts(read(folder, max_length=enough), "validation", "source") == [
        [line] for line in lines
    ]
    with pytest.raises(DataError, match="pair"):
        read(folder, max_length=enough - 1)


def test_an_empty_line_of_an_evaluation_is_kept(folder):
    write_pairs(folder, "val", ["one", "", "two"], ["EINS", "ZWEI", ""])
    raw = read(folder)
    assert texts(raw, "validation", "source") == [["one"], [""], ["two"]]
    assert texts(raw, "validation", "target") == [["EINS"], ["ZWEI"], [""]]


def test_tokens_are_counted(folder):
    raw = read(folder)
    ids = [np.frombuffer(row.values["source"], "<u2") for row in raw.splits["train"]]
    assert raw.kind.splits["train"].source_tokens == sum(map(np.count_nonzero, ids))
    assert (raw.kind.vocab_size, raw.kind.max_length) == (384, 64)


def test_a_vocabulary_can_be_that_of_another_data_set(folder, tmp_path):
    (model,) = read(folder).files.values()
    (tmp_path / "other.model").write_bytes(model)
    raw = read(folder, vocabulary=str(tmp_path / "other.model"), vocab_size=1280)
    assert raw.files[raw.kind.vocabulary] == model
    assert raw.kind.vocab_size == 384


def test_without_validation_some_pairs_are_held_out_and_equal_sources_stay_together(folder):
    (folder / "val.en").unlink()
    (folder / "val.de").unlink()
    raw = read(folder)
    training = {text for row in texts(raw, "train", "source") for text in row}
    held_out = [text for row in texts(raw, "validation", "source") for text in row]
    assert len(held_out) == pytest.approx(20, abs=5)
    assert not training & set(held_out)


def test_the_same_seed_makes_the_same_rows(folder):
    first, again, other = read(folder), read(folder), read(folder, seed=1)
    rows = [[row.values for row in raw.splits["train"]] for raw in (first, again, other)]
    assert rows[0] == rows[1]
    assert rows[0] != rows[2]


def test_a_vocabulary_is_found_in_the_folder_of_its_data_set(folder, pairs_dir):
    other = dataset_info.read(pairs_dir)
    raw = read(folder, vocabulary=pairs_dir)
    assert raw.kind.vocabulary == other.kind.vocabulary


def test_a_vocabulary_of_a_data_set_of_images(folder, data_dir):
    with pytest.raises(DataError, match="is a data set without text"):
        read(folder, vocabulary=data_dir)


@pytest.mark.parametrize("content", [b"", b"garbage", bytes(1000), b"\x0a\xff\xff\xff\xff\x0f"])
def test_a_vocabulary_that_is_none(folder, tmp_path, content):
    (tmp_path / "x.model").write_bytes(content)
    with pytest.raises(DataError, match=r"x\.model (is not a SentencePiece model|has pad and eos)"):
        read(folder, vocabulary=str(tmp_path / "x.model"))


def test_a_vocabulary_that_is_a_folder(folder, tmp_path):
    with pytest.raises(DataError, match="is not a file"):
        read(folder, vocabulary=str(tmp_path))
