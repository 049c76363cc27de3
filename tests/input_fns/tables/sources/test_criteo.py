"""Click logs of Criteo: splits, numbers, vocabularies, hashed rows."""

import gzip

import numpy as np
import pytest
import tensorflow as tf

from input_fns import DataError, convert, dataset_info
from input_fns.convert import writer
from input_fns.convert.options import Options
from input_fns.core import inspection
from input_fns.tables.clicks_pipeline import ClicksPipeline
from input_fns.tables.sources import criteo
from tests import clicks_data


def row(label=0, numbers=(), categories=()):
    numbers = [*numbers, *[""] * (13 - len(numbers))]
    return "\t".join([str(label), *numbers, *categories, *[""] * (26 - len(categories))])


def read(source, **options):
    options = {"min_frequency": 2, "hash_rows": 5, **options}
    return convert.read(Options("criteo", source=str(source), **options))


def values(split, name, dtype):
    return np.array([np.frombuffer(found.values[name], dtype) for found in split])


def test_the_last_rows_are_test_and_those_before_validation(tmp_path):
    found = [row(i % 2, [str(i)]) for i in range(10)]
    path = tmp_path / "day.gz"
    path.write_bytes(gzip.compress("\n".join(found).encode()))
    raw = read(path, validation_fraction=0.2, test_fraction=0.3)
    numbers = {name: values(split, "numbers", "<f4")[:, 0] for name, split in raw.splits.items()}
    np.testing.assert_allclose(numbers["train"], np.log1p(np.arange(5)), rtol=1e-6)
    np.testing.assert_allclose(numbers["validation"], np.log1p([5, 6]), rtol=1e-6)
    np.testing.assert_allclose(numbers["test"], np.log1p([7, 8, 9]), rtol=1e-6)
    assert raw.splits["test"].labels.tolist() == [1, 0, 1]


def test_given_files_are_the_splits(tmp_path):
    for name, size in (("train.txt", 3), ("val.txt", 2), ("test.tsv", 1)):
        (tmp_path / name).write_text("\n".join([row()] * size))
    found = {name: len(split) for name, split in read(tmp_path).splits.items()}
    assert found == {"train": 3, "validation": 2, "test": 1}


def test_missing_and_negative_numbers_are_0_and_missing_ones_are_counted(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("\n".join([row(1, ["-2", "3"]), row(0, ["", "0"])]))
    raw = read(path, validation_fraction=0, test_fraction=0)
    found = values(raw.splits["train"], "numbers", "<f4")
    np.testing.assert_allclose(found[:, :3], [[0, np.log(4), 0], [0, 0, 0]], rtol=1e-6)
    missing = raw.kind.missing
    assert (missing["I1"], missing.get("I2", 0), missing["I3"], missing["C26"]) == (1, 0, 2, 2)


def test_frequent_values_have_rows_and_others_are_hashed(tmp_path):
    path = tmp_path / "a.txt"
    column = ["0000000b"] * 2 + ["0000000a"] * 3 + ["", "ffffffff", "0000000c"]
    path.write_text("\n".join(row(categories=[value]) for value in column))
    raw = read(path, validation_fraction=0, test_fraction=0)
    found = values(raw.splits["train"], "categories", "<i4")[:, 0]
    assert found[:6].tolist() == [2, 2, 1, 1, 1, 0]
    assert all(3 <= number < 5 for number in found[6:])
    assert (raw.kind.table_rows[0], raw.kind.vocabulary_rows[0]) == (5, 3)
    # A column without values: missing, and one row for unseen ones.
    assert (raw.kind.table_rows[1], raw.kind.vocabulary_rows[1]) == (2, 1)
    content = raw.files[raw.kind.vocabulary].decode()
    assert content.startswith("C1\t\nC1\t0000000a\nC1\t0000000b\nC2\t\n")
    limited = read(path, validation_fraction=0, test_fraction=0, max_rows=4, hash_rows=2)
    assert (limited.kind.table_rows[0], limited.kind.vocabulary_rows[0]) == (4, 2)


def test_blocks_do_not_change_the_result(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("\n".join(clicks_data.lines(41)))
    whole = read(path)
    monkeypatch.setattr(criteo, "_BLOCK", 7)
    parts = read(path)
    assert whole.files == parts.files
    for name, split in whole.splits.items():
        rows = zip(split, parts.splits[name], strict=True)
        assert all(a.values == b.values for a, b in rows)


def test_the_data_set_can_be_loaded_and_inspected(tmp_path):
    data = clicks_data.prepare(tmp_path / "raw", clicks_data.lines(), tmp_path / "data")
    assert not list(inspection.file_problems(data, data.splits))
    assert not inspection.inspect(data, "train").problems
    (tmp_path / "data" / data.kind.vocabulary).write_text("C1\t\n")
    assert "has changed" in next(inspection.file_problems(data, ()))


def test_invalid_metadata(tmp_path):
    data = clicks_data.prepare(tmp_path / "raw", clicks_data.lines(), tmp_path / "data")
    path = tmp_path / "data" / dataset_info.FILE_NAME
    content = path.read_text()
    first = data.kind.vocabulary_rows[0]
    path.write_text(
        content.replace(f'"vocabulary_rows": [\n   {first}', '"vocabulary_rows": [\n   99999')
    )
    with pytest.raises(DataError, match="vocabulary_rows must be below"):
        dataset_info.read(str(tmp_path / "data"))


def test_a_test_without_labels_can_only_be_predicted(tmp_path):
    rows = [row(i % 2, [str(i)], ["0000000A"]) for i in range(28)]
    (tmp_path / "train.txt").write_text("\n".join(rows))
    (tmp_path / "test.txt").write_text("\n".join(text.split("\t", 1)[1] for text in rows[5:8]))
    (tmp_path / "readme.txt").write_text("License\n")
    raw = read(tmp_path)
    assert {name: len(split) for name, split in raw.splits.items()} == {
        "train": 26,
        "validation": 2,
        "test": 3,
    }
    assert raw.splits["test"].labels is None
    assert not raw.splits["test"].has_labels
    found = values(raw.splits["test"], "numbers", "<f4")[:, 0]
    np.testing.assert_allclose(found, np.log1p([5, 6, 7]), rtol=1e-6)
    assert raw.left_out.counts == {"files whose rows do not have 40 values": 1}
    writer.write(raw, str(tmp_path / "data"))
    data = dataset_info.load(str(tmp_path / "data"), "criteo")
    assert not data.splits["test"].has_labels
    assert not inspection.inspect(data, "test").problems


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (row(), "test.txt, line 2: 40 values instead of 39: the first row has no label"),
        ("\t" * 37, "test.txt, line 2: 38 values instead of 39"),
        ("x" + "\t" * 38, "test.txt, line 2: I1 'x' is not an integer"),
    ],
)
def test_invalid_rows_without_labels(tmp_path, line, message):
    (tmp_path / "train.txt").write_text("\n".join([row()] * 28))
    (tmp_path / "test.txt").write_text("\t" * 38 + f"\n{line}\n")
    with pytest.raises(DataError, match=message):
        read(tmp_path)


def test_capitals_are_the_same_value_in_training_and_serving(tmp_path):
    found = [row(i % 2, ["3.0"], ["ABCDEF01" if i % 3 else "abcdef01"]) for i in range(28)]
    data = clicks_data.prepare(tmp_path / "raw", found, tmp_path / "data", min_frequency=28 - 4)
    content = (tmp_path / "data" / data.kind.vocabulary).read_text()
    assert content.startswith("C1\t\nC1\tabcdef01\nC2\t\n")
    asked = [["ABCDEF01", *[""] * 25], ["abcdef01", *[""] * 25]]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        rows_of = ClicksPipeline(data).find_rows(tf.constant(asked))
        session.run(tf.compat.v1.tables_initializer())
        assert session.run(rows_of)[:, 0].tolist() == [1, 1]


def test_files_are_named_by_a_flag(tmp_path):
    (tmp_path / "monday.txt").write_text("\n".join([row()] * 28))
    (tmp_path / "sunday.txt").write_text("\n".join([row()] * 3))
    with pytest.raises(DataError, match=r"monday.txt has no split.*--split_files=train="):
        read(tmp_path)
    raw = read(tmp_path, split_files=("train=monday.txt", "test=sunday.txt"))
    assert {name: len(split) for name, split in raw.splits.items()} == {"train": 28, "test": 3}
