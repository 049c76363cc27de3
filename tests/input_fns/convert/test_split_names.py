"""Names of splits in folders, files and columns."""

import pytest

from input_fns import DataError
from input_fns.convert import split_names
from input_fns.convert.options import Options


@pytest.mark.parametrize(
    ("name", "split"),
    [
        *((name, "train") for name in ("train", "Training", "TRAIN", " train ", "trn")),
        *((name, "validation") for name in ("val", "Valid", "Validation", "dev", "devel")),
        *((name, "test") for name in ("test", "Test", "testing", "tst")),
        *((name, "") for name in ("cat", "", "trainer", "latest", "seg_train", "trainval")),
    ],
)
def test_common_names(name, split):
    assert split_names.split_of(name) == split


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("reviews_train", "train"),
        ("TrainSet", "train"),
        ("val2017", "validation"),
        ("train-clean-100", "train"),
        ("seg_pred", ""),
        ("train_test", ""),
        ("contest", ""),
    ],
)
def test_a_word_of_a_name(name, split):
    assert split_names.split_in(name) == split


@pytest.mark.parametrize(
    ("found", "names"),
    [
        (["Training", "Test"], {"train": "Training", "test": "Test"}),
        (["reviews_train", "reviews_test"], {"train": "reviews_train", "test": "reviews_test"}),
        (
            ["train", "test_2016", "test_2017"],
            {"train": "train", "test_2016": "test_2016", "test_2017": "test_2017"},
        ),
        (["test", "test_hard"], {"test": "test", "test_hard": "test_hard"}),
        (["train", "extra"], {"train": "train", "extra": "extra"}),
    ],
)
def test_names_of_a_source(found, names):
    assert split_names.split_names(found, "here") == names


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (["train", "Training"], "both mean the split 'train'"),
        (["val", "dev"], "both mean the split 'validation'"),
        (["train_a", "train_b"], "are all of the split 'train'"),
        (["train", "train (1)"], r"'train' and 'train \(1\)' are all of the split 'train'"),
        (["train", " "], "has no split"),
        (["a/b"], "must be valid in file names"),
    ],
)
def test_ambiguous_names_are_errors(found, message):
    with pytest.raises(DataError, match=message):
        split_names.split_names(found, "here")


def find(folder, *names, **options):
    for name in names:
        (folder / name).write_text("")
    found = split_names.find_files(Options("x", source=str(folder), **options), (".csv", ".tsv"))
    return {split: path.rpartition("/")[2] for split, path in found.items()}


def test_files_of_splits(tmp_path):
    names = ("Train.CSV", "my_dev.tsv.gz", "README", "._Train.csv")
    assert find(tmp_path, *names) == {"train": "Train.CSV", "validation": "my_dev.tsv.gz"}


def test_a_file_alone_is_train(tmp_path):
    assert find(tmp_path, "reviews.csv") == {"train": "reviews.csv"}


def test_a_file_alone_may_name_another_split(tmp_path):
    assert find(tmp_path, "reviews_test.csv") == {"test": "reviews_test.csv"}


def test_flags_name_the_files(tmp_path):
    given = ("train=b.csv", "Dev=a.csv")
    assert find(tmp_path, "a.csv", "b.csv", "c.csv", split_files=given) == {
        "train": "b.csv",
        "validation": "a.csv",
    }


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (["train.csv", "other.csv"], {}, "other.csv has no split, while train.csv is 'train'"),
        (["a.csv", "b.csv"], {}, "--split_files=train=a.csv"),
        (["test1.csv", "test2.csv", "b.csv"], {}, "test1=test1.csv,test2=test2.csv"),
        (["train.csv", "train.tsv"], {}, "both train.csv and train.tsv"),
        (["a.txt"], {}, "no file that ends in"),
        (["a.csv"], {"split_files": ("a.csv",)}, "write SPLIT=FILE"),
        (["a.csv"], {"split_files": ("train=no.csv",)}, "is not a file"),
    ],
)
def test_files_that_are_not_understood_are_errors(tmp_path, names, options, message):
    with pytest.raises(DataError, match=message):
        find(tmp_path, *names, **options)


def test_what_is_there_is_named_where_no_file_is(tmp_path):
    (tmp_path / "train").mkdir()
    with pytest.raises(DataError, match=r"no file that ends in .*\. It has a\.xlsx, train$"):
        find(tmp_path, "a.xlsx")


def test_a_file_can_be_skipped(tmp_path):
    assert find(tmp_path, "train.csv", "other.csv", skip=("other*",)) == {"train": "train.csv"}
