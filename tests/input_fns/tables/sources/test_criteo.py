"""Click logs of Criteo: splits, numbers, vocabularies, hashed rows."""

import gzip
import io
import tarfile

import numpy as np
import pytest
import tensorflow as tf

from input_fns import DataError, convert, dataset_info
from input_fns.convert import files, writer
from input_fns.convert.options import Options
from input_fns.core import inspection
from input_fns.tables.clicks_pipeline import ClicksPipeline
from input_fns.tables.sources import criteo_counts, criteo_text
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
    assert [found.label for found in raw.splits["test"]] == [1, 0, 1]


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
    monkeypatch.setattr(criteo_text, "_BLOCK_BYTES", 700)
    monkeypatch.setattr(criteo_counts, "_PART_BYTES", 1500)
    monkeypatch.setattr(criteo_counts, "_RUN_ROWS", 5)
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
    assert {found.label for found in raw.splits["test"]} == {None}
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


def write_days(folder, sizes, ending=".gz"):
    """Writes day_0.gz, ...; I1 is the number of the row in all days."""
    first = 0
    for day, size in enumerate(sizes):
        text = "\n".join(row(i % 2, [str(i)]) for i in range(first, first + size))
        content = gzip.compress(text.encode()) if ending == ".gz" else text.encode()
        (folder / f"day_{day}{ending}").write_bytes(content)
        first += size


def rows_of(raw):
    return {
        name: np.expm1(values(split, "numbers", "<f4")[:, 0]).round().astype(int).tolist()
        for name, split in raw.splits.items()
    }


@pytest.mark.parametrize("ending", [".gz", "", ".txt"])
def test_days_are_one_log_and_the_last_one_is_test_and_validation(tmp_path, ending):
    sizes = [3, 2, 1, 1, 1, 1, 1, 1, 1, 1, 5]  # day_10 is after day_9
    write_days(tmp_path, sizes, ending)
    assert rows_of(read(tmp_path)) == {
        "train": list(range(13)),
        "validation": [16, 17],
        "test": [13, 14, 15],
    }


def test_fractions_of_days_are_the_last_rows(tmp_path):
    write_days(tmp_path, [6, 4])
    raw = read(tmp_path, validation_fraction=0.2, test_fraction=0.5)
    assert rows_of(raw) == {
        "train": [0, 1, 2],
        "validation": [3, 4],
        "test": [5, 6, 7, 8, 9],
    }
    assert [
        len(split)
        for split in read(
            tmp_path, skip=("day_1.gz",), test_fraction=0.5, validation_fraction=0
        ).splits.values()
    ] == [3, 3]


def test_parts_of_packed_days_are_read_in_any_order(tmp_path, monkeypatch):
    monkeypatch.setattr(criteo_text, "_BLOCK_BYTES", 150)
    write_days(tmp_path, [11, 13, 4])
    raw = read(tmp_path)
    train = raw.splits["train"]
    expected = rows_of(raw)["train"]
    for begin, end in ((0, 4), (2, 5), (8, 20), (20, 24), (3, 24), (12, 13)):
        part = train.part(begin, end)
        found = np.expm1(values(part, "numbers", "<f4")[:, 0]).round().astype(int)
        assert found.tolist() == expected[begin:end]
    next(iter(train))  # a reader that stops early
    assert rows_of(raw)["train"] == expected


def test_a_packed_file_is_read_once_for_parts_in_order(tmp_path, monkeypatch):
    write_days(tmp_path, [20, 2])
    train = read(tmp_path).splits["train"]
    opened, iterate = [], criteo_text.iterate_blocks
    monkeypatch.setattr(
        criteo_text,
        "iterate_blocks",
        lambda path, *place, **row: opened.append(path) or iterate(path, *place, **row),
    )
    for begin in range(0, 20, 4):
        with files.recording() as paths:  # as a shard, which is stale if a file changes
            assert len(list(train.part(begin, begin + 2))) == 2
        assert paths == {str(tmp_path / "day_0.gz")}
    assert len(opened) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("missing", "has the days 0 to 3 without day 1, 2. Download"),
        ("twice", "has both day_0 and day_0.gz. Leave one"),
        ("empty", "day_3.gz has no rows"),
        ("truncated", "day_3.gz .* is not a complete gzip file"),
        ("invalid", "day_1.gz, line 2: 3 values instead of 40"),
        ("one row", "day_3.gz has one row, too few"),
    ],
)
def test_invalid_days(tmp_path, change, message):
    write_days(tmp_path, [3, 2, 2, 2])
    last = tmp_path / "day_3.gz"
    if change == "missing":
        (tmp_path / "day_1.gz").unlink()
        (tmp_path / "day_2.gz").unlink()
    elif change == "twice":
        (tmp_path / "day_0").write_text(row())
    elif change == "truncated":
        last.write_bytes(last.read_bytes()[:-9])
    elif change == "invalid":
        text = f"{row()}\na\tb\tc\n"
        (tmp_path / "day_1.gz").write_bytes(gzip.compress(text.encode()))
    else:
        last.write_bytes(gzip.compress(b"" if change == "empty" else row().encode()))
    with pytest.raises(DataError, match=message):
        read(tmp_path)


def test_train_txt_beside_days_is_the_log(tmp_path):
    write_days(tmp_path, [3, 2])
    (tmp_path / "train.txt").write_text("\n".join([row()] * 28))
    raw = read(tmp_path)
    assert len(raw.splits["train"]) == 24
    assert raw.left_out.counts == {".gz files that are not used": 2}


def write_archive(path, **texts):
    """Writes an archive with readme.txt and {stem: lines} in a folder, as Kaggle's."""
    mode = "w:gz" if path.name.endswith("gz") else "w"
    with tarfile.open(path, mode) as archive:
        for stem, lines in {"readme": ["Click logs"], **texts}.items():
            content = "".join(f"{line}\n" for line in lines).encode()
            info = tarfile.TarInfo(f"dac/{stem}.txt")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


@pytest.mark.parametrize("name", ["dac.tar.gz", "dac.tgz", "dac.tar"])
def test_the_archive_of_kaggle_is_its_files(tmp_path, monkeypatch, name):
    monkeypatch.setattr(criteo_counts, "_PART_BYTES", 150)
    texts = {
        "train": [row(i % 2, [str(i)], [f"{i % 3:08x}"]) for i in range(20)],
        "test": [row(0, [str(i)]).split("\t", 1)[1] for i in range(3)],
    }
    for folder in ("packed", "unpacked"):
        (tmp_path / folder).mkdir()
    write_archive(tmp_path / "packed" / name, **texts)
    for stem, lines in texts.items():
        (tmp_path / "unpacked" / f"{stem}.txt").write_text("\n".join(lines))
    wanted = read(tmp_path / "unpacked")
    for source in (tmp_path / "packed", tmp_path / "packed" / name):
        found = read(source)
        assert found.files == wanted.files
        assert found.left_out.counts == {".txt files that are not used": 1}
        assert list(found.splits) == ["train", "validation", "test"]
        for split in wanted.splits:
            assert list(found.splits[split]) == list(wanted.splits[split])


def test_an_archive_without_train_is_an_error(tmp_path):
    write_archive(tmp_path / "a.tar.gz", test=[row()])
    with pytest.raises(
        DataError, match=r"a.tar.gz has no train.txt or train.tsv, only .*dac/test.txt"
    ):
        read(tmp_path)


def test_an_error_names_the_text_in_the_archive_and_its_line(tmp_path):
    write_archive(tmp_path / "a.tar.gz", train=[row()] * 6 + ["x"])
    with pytest.raises(DataError, match=r"dac/train.txt, line 7"):
        read(tmp_path)


def test_a_truncated_archive_is_named(tmp_path):
    path = tmp_path / "a.tar.gz"
    write_archive(path, train=[row(i % 2, [str(i)]) for i in range(500)])
    path.write_bytes(path.read_bytes()[:-99])
    with pytest.raises(DataError, match=r"a.tar.gz .* is not a complete gzip file"):
        read(path)
    path.write_bytes(gzip.compress(b"no tar" * 200))
    with pytest.raises(DataError, match=r"a.tar.gz has no valid header of a tar at byte 0"):
        read(path)


def test_other_archives_must_be_unpacked(tmp_path):
    (tmp_path / "dac.zip").write_bytes(b"")
    for source in (tmp_path, tmp_path / "dac.zip"):
        with pytest.raises(DataError, match=r"only one is read.* Unpack dac.zip,"):
            read(source)
    (tmp_path / "dac.tgz").write_bytes(b"")
    with pytest.raises(DataError, match=r"Unpack dac.tgz and dac.zip,"):
        read(tmp_path)


def test_a_text_hides_the_archive_beside_it(tmp_path):
    write_archive(tmp_path / "a.tar.gz", train=[row()] * 2)
    (tmp_path / "train.txt").write_text("\n".join([row()] * 28))
    raw = read(tmp_path)
    assert len(raw.splits["train"]) == 24
    assert raw.left_out.counts == {".gz files that are not used": 1}
