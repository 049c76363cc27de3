"""Images listed in a CSV file, as Kaggle ships them."""

import csv
import pathlib

import numpy as np
import pytest

from input_fns import DataError, convert
from input_fns.convert.options import Options

APPLE = pathlib.Path(__file__).parents[5] / "shared" / "data" / "apple-leaf"


@pytest.fixture
def table(folder):
    """Writes rows to a CSV file beside the images; returns the options that read it."""

    def write(*rows, **options):
        path = folder / "labels.csv"
        with open(path, "w", newline="") as file:
            csv.writer(file).writerows(rows)
        return {"source": folder, "csv": str(path), "validation_fraction": 0.0, **options}

    return write


def labels_of(raw, split="train"):
    """`{file: class name}` of a split."""
    split = raw.splits[split]
    names = [str(pathlib.Path(path).relative_to(split.options.source)) for path in split.paths]
    return dict(zip(names, (raw.class_names[label] for label in split.labels)))


def test_a_label_column(read, table):
    rows = ("file", "kind"), ("cat/00.jpeg", "cat"), ("dog/03.png", "dog"), ("cat/02.jpeg", "cat")
    raw = read("image_csv", **table(*rows))
    assert raw.class_names == ("cat", "dog")
    assert labels_of(raw) == {"cat/00.jpeg": "cat", "dog/03.png": "dog", "cat/02.jpeg": "cat"}


def test_a_column_a_class_and_names_without_extension(read, table):
    rows = ("image_id", "dog", "cat"), ("cat/00", "0", "1"), ("dog/03", "1", "0")
    raw = read("image_csv", **table(*rows))
    assert raw.class_names == ("dog", "cat")
    assert labels_of(raw) == {"cat/00.jpeg": "cat", "dog/03.png": "dog"}


def test_extensions_in_capitals(read, table, folder):
    (folder / "cat" / "00.jpeg").rename(folder / "cat" / "00.JPEG")
    raw = read("image_csv", **table(("f", "kind"), ("cat/00", "cat"), ("dog/03.PNG", "dog")))
    assert labels_of(raw) == {"cat/00.JPEG": "cat", "dog/03.png": "dog"}


def test_an_image_that_is_listed_twice_stays_in_one_split(read, table):
    images = [f"{kind}/{i:02d}" for kind in ("cat", "dog") for i in range(4)]
    rows = [(image, image[:3]) for image in 2 * images]
    raw = read("image_csv", **table(("f", "kind"), *rows, validation_fraction=0.5))
    train, validation = (set(labels_of(raw, split)) for split in ("train", "validation"))
    assert train
    assert validation
    assert not train & validation


def test_an_exact_name_comes_first(read, table, folder):
    (folder / "cat" / "00.JPEG").write_bytes((folder / "cat" / "01.jpeg").read_bytes())
    rows = ("f", "kind"), ("cat/00.jpeg", "cat"), ("cat/00.JPEG", "dog")
    assert labels_of(read("image_csv", **table(*rows))) == {
        "cat/00.jpeg": "cat",
        "cat/00.JPEG": "dog",
    }


@pytest.mark.parametrize("column", ["kind", "group", "part"])
def test_an_image_that_is_listed_twice_with_another_value_is_refused(read, table, column):
    columns = {"f": "cat/00", "kind": "cat", "group": "one", "part": "train"}
    rows = columns.keys(), columns.values(), {**columns, column: "other"}.values()
    options = {"label_columns": ("kind",), "group_column": "group", "split_column": "part"}
    with pytest.raises(DataError, match=r"line 3: .*00.jpeg is 'other', and '.*' at .*line 2"):
        read("image_csv", **table(*rows, **options))


def test_chosen_columns(read, table):
    rows = ("n", "file", "a", "kind"), ("1", "cat/00.jpeg", "x", "cat"), ("2", "dog/03", "y", "dog")
    raw = read("image_csv", **table(*rows, image_column="file", label_columns=("kind",)))
    assert labels_of(raw) == {"cat/00.jpeg": "cat", "dog/03.png": "dog"}


@pytest.mark.parametrize("name", ["", "Unnamed: 0"])
def test_numbers_of_rows_of_pandas_are_not_labels(read, table, name):
    rows = (name, "file", "kind"), ("0", "cat/00.jpeg", "cat"), ("7", "dog/03.png", "dog")
    assert labels_of(read("image_csv", **table(*rows))) == {
        "cat/00.jpeg": "cat",
        "dog/03.png": "dog",
    }


def test_a_column_without_a_name_may_name_the_files(read, table, folder):
    (folder / "0.png").write_bytes((folder / "dog" / "03.png").read_bytes())
    for file in ("dog/03", "0"):
        raw = read("image_csv", **table(("", "kind"), (file, "dog")))
        assert list(labels_of(raw).values()) == ["dog"]


def test_a_first_line_that_is_no_header_is_refused(read, table):
    rows = ("cat/00.jpeg", "cat"), ("dog/03.png", "dog")
    with pytest.raises(DataError, match=r"first line names the image 'cat/00.jpeg'.*--columns"):
        read("image_csv", **table(*rows))
    assert len(read("image_csv", **table(*rows, columns=("f", "k"))).splits["train"]) == 2


def test_a_first_line_without_extensions_that_is_no_header_is_refused(read, table):
    rows = ("cat/00", "cat"), ("dog/03", "dog"), ("cat/01", "cat")
    with pytest.raises(DataError, match=r"first line names the image 'cat/00'.*--columns"):
        read("image_csv", **table(*rows))


def test_rows_that_repeat_or_are_empty_are_told(table, folder):
    rows = ("f", "kind"), ("cat/00", "cat"), ("dog/03", "dog"), ("", ""), ("cat/00", "cat")
    lines, options = [], {**table(*rows), "source": str(folder)}
    raw = convert.read(Options("image_csv", **options), lines.append)
    assert len(raw.splits["train"]) == 3
    assert "1 rows without a value are left out" in lines[0]
    assert "1 rows repeat a file, and each row is an example" in lines[1]


def test_a_split_column(read, table):
    rows = ("f", "kind", "part"), ("cat/00", "cat", "val"), ("cat/01", "cat", "train")
    more = ("dog/00", "dog", "train"), ("dog/01", "dog", "extra")
    raw = read("image_csv", **table(*rows, *more, split_column="part"))
    assert {name: len(split) for name, split in raw.splits.items()} == {
        "train": 2,
        "validation": 1,
        "extra": 1,
    }


def test_near_duplicates_stay_on_one_side(read, table):
    rows = [(f"cat/{i:02d}", "cat", f"leaf {i // 3}") for i in range(11)]
    rows += [(f"dog/{i:02d}", "dog", f"bark {i // 2}") for i in range(7)]
    options = table(("f", "kind", "leaf"), *rows, group_column="leaf", validation_fraction=0.4)
    splits = read("image_csv", **options).splits
    groups = {name: set(split.groups) for name, split in splits.items()}
    assert groups["train"] & groups["validation"] == set()
    assert len(splits["train"]) + len(splits["validation"]) == 18
    assert min(np.bincount(splits["validation"].labels)) > 0


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([("f", "k"), ("cat/99", "cat")], {}, "line 2: no image 'cat/99' in"),
        ([("f", "k"), ("cat/00", "cat"), ("", "cat")], {}, "line 3: no image ''"),
        ([("f", "k"), ("cat/00", "")], {}, "line 2: no label in column 'k'"),
        (
            [("f", "k"), ("cat/00", "cow")],
            {"class_names": ("cat", "dog")},
            "line 2: unknown label 'cow'; the classes are cat, dog",
        ),
        (
            [("f", "k"), ("cat/00", "cat")],
            {"class_names": ("cat", "dog")},
            "no row has the label dog",
        ),
        ([("f", "a", "b"), ("cat/00", "1", "1")], {}, "line 2: exactly one .* a=1, b=1"),
        ([("f", "a", "b"), ("cat/00", "0", "0")], {}, "line 2: exactly one of the label columns"),
        ([("f", "a", "b"), ("cat/00", "cat", "1")], {}, "a=cat, b=1. --label_columns says"),
        ([("f", "k"), ("cat/00", "x")], {"group_column": "g"}, "no column 'g'; it has: f, k"),
        ([("f", "k")], {}, "has 0 rows and 1 label columns"),
        (
            [("f", "k", "s"), ("cat/00", "cat", "val"), ("dog/00", "dog", "dev")],
            {"split_column": "s"},
            "column 's': 'val' and 'dev' both mean the split 'validation'",
        ),
        (
            [("f", "k", "s"), ("cat/00", "cat", "train"), ("dog/00", "dog", "")],
            {"split_column": "s"},
            "line 3: no value in column 's'",
        ),
        ([], {}, r"labels\.csv is empty: a header line is needed, or --columns"),
    ],
)
def test_a_wrong_table(read, table, rows, options, message):
    with pytest.raises(DataError, match=rf"labels\.csv.*{message}|{message}"):
        read("image_csv", **table(*rows, **options))


def test_a_missing_table(read, folder):
    with pytest.raises(DataError, match=r"no\.csv is not there"):
        read("image_csv", source=folder, csv=str(folder / "no.csv"))


def test_a_quote_without_its_other(read, table):
    options = table(("f", "k"), ("cat/00", "cat"))
    pathlib.Path(options["csv"]).write_text('f,k\ncat/00,"cat\ncat/01,cat\n')
    with pytest.raises(DataError, match=r"labels\.csv, line 2: invalid CSV"):
        read("image_csv", **options)


def test_a_table_that_is_no_utf8(read, table):
    options = table(("f", "k"), ("cat/00", "cat"))
    pathlib.Path(options["csv"]).write_bytes(b"f,k\ncat/00,c\xe4t\n")
    assert read("image_csv", **options).class_names == ("c\u00e4t",)
    with pytest.raises(DataError, match=r"labels\.csv, line 2.*--encoding"):
        read("image_csv", **options, encoding="utf-8")


def test_another_delimiter(read, table):
    options = table(("f", "k"), ("cat/00", "cat"))
    pathlib.Path(options["csv"]).write_text("f;k\ncat/00;cat\n")
    assert labels_of(read("image_csv", **options, delimiter=";")) == {"cat/00.jpeg": "cat"}


def test_spaces_between_columns(read, table):
    options = table(("f", "k"))
    pathlib.Path(options["csv"]).write_text("cat/00 1 1 2\ndog/03 2 1 2\n")
    options |= {"delimiter": " ", "label_columns": ("class",)}
    with pytest.raises(DataError, match=r"more than one column '1'.*name the columns with --col"):
        read("image_csv", **options)
    raw = read("image_csv", **options, columns=("file", "class", "species", "breed"))
    assert labels_of(raw) == {"cat/00.jpeg": "1", "dog/03.png": "2"}


def test_names_without_folders_are_found_if_only_one_file_has_them(read, table, folder):
    rows = ("f", "k"), ("03.png", "dog"), ("10", "cat")
    assert labels_of(read("image_csv", **table(*rows))) == {
        "dog/03.png": "dog",
        "cat/10.jpeg": "cat",
    }
    (folder / "dog" / "10.jpeg").write_bytes((folder / "cat" / "10.jpeg").read_bytes())
    with pytest.raises(DataError, match=r"line 3: '10' may be .*cat/10.jpeg or .*dog/10.jpeg"):
        read("image_csv", **table(*rows))


def test_the_extension_may_have_another_case_in_subfolders(read, table, folder):
    (folder / "cat" / "11.JPG").write_bytes((folder / "cat" / "10.jpeg").read_bytes())
    raw = read("image_csv", **table(("f", "k"), ("03.PNG", "dog"), ("11", "cat")))
    assert labels_of(raw) == {"dog/03.png": "dog", "cat/11.JPG": "cat"}


def test_two_paths_elsewhere_that_end_in_one_file_are_refused(read, table, folder):
    (folder / "1.jpg").write_bytes((folder / "cat" / "10.jpeg").read_bytes())
    rows = ("f", "k"), ("C:\\x\\1.jpg", "cat"), ("C:\\y\\1.jpg", "cat")
    with pytest.raises(
        DataError, match=r"line 3: .*y.*1.jpg' and .*x.*1.jpg' of .*line 2 both end"
    ):
        read("image_csv", **table(*rows))


@pytest.mark.skipif(not APPLE.exists(), reason="the real leaves are not here")
def test_the_real_table_of_the_leaves(read, tmp_path):
    import tarfile

    with tarfile.open(APPLE / "plantvillage-apple-color.tar.gz") as tar:
        tar.extractall(tmp_path)
    raw = read(
        "image_csv",
        source=tmp_path / "apple-leaf",
        csv=str(APPLE / "labels.csv"),
        label_columns=("healthy", "black_rot", "rust", "scab"),
        split_column="split_by_shot",
    )
    assert {name: len(split) for name, split in raw.splits.items()} == {
        "train": 988,
        "validation": 123,
        "test": 124,
    }


ROWS = ("f", "kind"), ("cat/00.jpeg", "cat"), ("dog/03.png", "dog")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([*ROWS, ("cat/01.jpeg",)], "line 4: 1 values instead of 2: f, kind"),
        ([*ROWS, ("cat/01.jpeg", "cat", "x")], "line 4: 3 values instead of 2: f, kind"),
        ([("f", "f"), *ROWS[1:]], "more than one column 'f'"),
        ([*ROWS, ("cat/01.jpeg", "c\nat")], r"line 4: the label 'c\\nat' has control characters"),
        ([*ROWS, ("cat/01.jpeg", "c\0at")], "line 4: a NUL byte"),
        (
            [*ROWS, ("cat/01.jpeg", "c" * 200_000)],
            "line 4: .* has 200000 characters",
        ),
        ([*ROWS, ("../secret.png", "cat")], "line 4: no image '../secret.png' in"),
        ([*ROWS, ("cat/../../secret", "cat")], "line 4: no image 'cat/../../secret' in"),
        ([*ROWS, ("/etc/passwd", "cat")], "line 4: no image '/etc/passwd' in"),
        ([*ROWS, ("cat", "cat"), ("x", "cat")], r"no image 'cat' in .*photos \(and 1 more rows\)"),
    ],
)
def test_a_table_that_is_broken(read, table, folder, rows, message):
    (folder.parent / "secret.png").write_bytes((folder / "dog" / "00.png").read_bytes())
    given = table(*(row for row in rows if not any("\0" in value for value in row)))
    with open(given["csv"], "a", newline="") as file:
        for row in rows:
            if any("\0" in value for value in row):
                file.write(",".join(row) + "\n")
    with pytest.raises(DataError, match=message):
        read("image_csv", **given)


@pytest.mark.parametrize("split", ["../../evil", "/evil", "..", "a\nb", "a\\b", "x" * 300])
def test_a_split_that_is_no_file_name(read, table, split):
    rows = [("f", "kind", "s"), ("cat/00.jpeg", "cat", "train"), ("dog/03.png", "dog", split)]
    with pytest.raises(DataError, match="cannot be a split"):
        read("image_csv", **table(*rows, split_column="s"))


def test_two_links_to_one_image_have_one_label(read, table, folder):
    (folder / "dog" / "link.jpeg").symlink_to("../cat/00.jpeg")
    with pytest.raises(DataError, match=r"link.jpeg is 'dog', and 'cat' at"):
        read("image_csv", **table(*ROWS, ("dog/link.jpeg", "dog")))


def test_paths_inside_the_source_may_be_absolute(read, table, folder):
    raw = read("image_csv", **table(*ROWS, (str(folder / "cat" / "01.jpeg"), "cat")))
    assert len(raw.splits["train"]) == 3


@pytest.mark.parametrize(
    ("one", "zero"),
    [
        ("1", "0"),
        ("1.0", "0.0"),
        ("True", "False"),
        ("true", "FALSE"),
        (" 1", " 0"),
        ("1.", "0.00"),
    ],
)
def test_spellings_of_one_and_zero(read, table, one, zero):
    rows = ("f", "cat", "dog"), ("cat/00", one, zero), ("dog/03", zero, one)
    assert labels_of(read("image_csv", **table(*rows))) == {
        "cat/00.jpeg": "cat",
        "dog/03.png": "dog",
    }


@pytest.mark.parametrize("value", ["0.5", "2", "", "yes", "nan", "10"])
def test_a_label_column_of_other_values_is_refused(read, table, value):
    rows = ("f", "cat", "dog"), ("cat/00", "1", "0"), ("dog/03", value, "1")
    with pytest.raises(DataError, match="line 3: exactly one of the label columns should be 1"):
        read("image_csv", **table(*rows))


def test_spaces_around_values_and_names_are_removed(read, table):
    rows = ("f", " kind", "part "), (" cat/00", "cat ", " val"), ("dog/03", " dog", "train")
    options = table(*rows, ("cat/01", "cat", "train"), split_column="part", label_columns=("kind",))
    raw = read("image_csv", **options)
    assert raw.class_names == ("cat", "dog")
    assert labels_of(raw, "validation") == {"cat/00.jpeg": "cat"}
    assert set(labels_of(raw).values()) == {"cat", "dog"}


def test_labels_in_two_unicode_forms_are_one_class(read, table):
    rows = ("f", "kind"), ("cat/00", "caf\u00e9"), ("cat/01", "cafe\u0301"), ("dog/00", "the")
    assert read("image_csv", **table(*rows)).class_names == ("caf\u00e9", "the")


def test_numbers_are_sorted_as_numbers(read, table):
    rows = [("f", "kind"), *((f"cat/{i:02d}", label) for i, label in enumerate(("10", "9", "2")))]
    assert read("image_csv", **table(*rows)).class_names == ("2", "9", "10")


def test_two_spellings_of_a_number_are_refused(read, table):
    rows = ("f", "kind"), ("cat/00", "1"), ("cat/01", "1.0"), ("dog/00", "2")
    with pytest.raises(DataError, match=r"column 'kind': the labels '1' and '1\.0' are one"):
        read("image_csv", **table(*rows))


@pytest.mark.parametrize(
    "name",
    [
        "cat\\00.jpeg",
        "C:\\data\\cat\\00.jpeg",
        "../photos/cat/00.jpeg",
        "/old/cat/00.jpg",
        "./cat//00",
    ],
)
def test_paths_of_other_systems(read, table, folder, name):
    (folder / "cat" / "00.jpeg").rename(folder / "cat" / "00.jpg")
    name = name.replace("00.jpeg", "00.jpg")
    rows = ("f", "kind"), (name, "cat"), ("dog/03.png", "dog")
    assert labels_of(read("image_csv", **table(*rows))) == {
        "cat/00.jpg": "cat",
        "dog/03.png": "dog",
    }


def test_file_names_in_another_unicode_form(read, table, folder):
    (folder / "cat" / "00.jpeg").rename(folder / "cat" / "cafe\u0301.jpeg")
    rows = ("f", "kind"), ("cat/caf\u00e9.jpeg", "cat"), ("dog/03.png", "dog")
    assert len(read("image_csv", **table(*rows)).splits["train"]) == 2


GROUPS = [("cat/00", "cat", "p1"), ("cat/01", "cat", "p2"), ("dog/00", "dog", "p1")]


def test_a_group_in_two_given_splits_is_refused(read, table):
    rows = [(*row, split) for row, split in zip(GROUPS, ("train", "train", "Val"))]
    options = table(("f", "k", "g", "s"), *rows, group_column="g", split_column="s")
    with pytest.raises(
        DataError, match=r"line 4: 'g' is 'p1' in .* 'Val', and in 'train' at .*line 2"
    ):
        read("image_csv", **options)


def test_groups_in_one_given_split_each(read, table):
    rows = [(*row, split) for row, split in zip(GROUPS, ("Training", "TEST", "Training"))]
    options = table(("f", "k", "g", "s"), *rows, group_column="g", split_column="s")
    splits = read("image_csv", **options).splits
    assert {name: len(split) for name, split in splits.items()} == {"train": 2, "test": 1}


def test_a_row_without_a_group_is_refused(read, table):
    options = table(("f", "k", "g"), *GROUPS, ("dog/01", "dog", " "), group_column="g")
    with pytest.raises(DataError, match="line 5: no value in column 'g'"):
        read("image_csv", **options)


def test_a_split_without_labels(read, table):
    rows = ("cat/00", "cat", "train"), ("dog/00", "dog", "train"), ("dog/01", "", "test")
    raw = read("image_csv", **table(("f", "k", "s"), *rows, split_column="s"))
    assert raw.class_names == ("cat", "dog")
    assert {name: split.has_labels for name, split in raw.splits.items()} == {
        "train": True,
        "test": False,
    }


def test_a_label_that_is_missing_in_a_split_with_labels(read, table):
    rows = ("cat/00", "cat", "train"), ("dog/00", "", "test"), ("dog/01", "dog", "test")
    with pytest.raises(DataError, match="line 3: no label in column 'k'"):
        read("image_csv", **table(("f", "k", "s"), *rows, split_column="s"))


def test_missing_labels_are_counted(read, table):
    rows = ("cat/00", "cat"), ("dog/00", ""), ("dog/01", "dog"), ("dog/02", " ")
    message = r"line 3: no label in column 'k' \(the first of 2 such rows\)\. Add them, or remove"
    with pytest.raises(DataError, match=message):
        read("image_csv", **table(("f", "k"), *rows))


def test_columns_of_a_table_without_a_header_line(read, table):
    raw = read("image_csv", **table(*ROWS[1:], columns=("f", "kind")))
    assert labels_of(raw) == {"cat/00.jpeg": "cat", "dog/03.png": "dog"}


def test_a_table_of_tabs(read, folder):
    path = folder / "labels.tsv"
    path.write_text("f\tkind\ncat/00\tcat\ndog/03\tdog\n")
    raw = read("image_csv", source=folder, csv=str(path), validation_fraction=0.0)
    assert labels_of(raw) == {"cat/00.jpeg": "cat", "dog/03.png": "dog"}


def test_images_that_no_row_names_are_counted(read, table):
    left_out = read("image_csv", **table(*ROWS)).left_out
    assert left_out.counts == {
        ".jpeg files that are not used": 10,
        ".png files that are not used": 6,
    }
