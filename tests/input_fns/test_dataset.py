"""The contract of a prepared data set."""

import json
import os

import pytest

from input_fns import DataError, dataset


def change(data_dir, **fields):
    """Changes top-level fields of a dataset.json."""
    path = os.path.join(data_dir, "dataset.json")
    with open(path) as file:
        content = {**json.load(file), **fields}
    with open(path, "w") as file:
        json.dump(content, file)


def test_splits_features_and_classes(data_dir):
    stripes = dataset.load(data_dir, "stripes")
    assert stripes.num_classes == 3
    assert stripes.class_names == ("stripe 0", "stripe 1", "stripe 2")
    assert stripes.features == {"image": dataset.Feature("raw", "uint8", (7, 5, 1))}
    assert stripes.features["image"].num_bytes == 35
    assert stripes.split("train").num_examples == 97
    assert stripes.split("test").label_histogram == (14, 14, 13)
    assert [shard.num_examples for shard in stripes.split("test").shards] == [13, 14, 14]


def test_json_and_back(data_dir, tmp_path):
    stripes = dataset.load(data_dir, "stripes")
    (tmp_path / "dataset.json").write_text(dataset.to_json(stripes))
    assert dataset.read(str(tmp_path)).splits == stripes.splits
    assert json.loads(dataset.to_json(stripes))["splits"]["train"]["num_examples"] == 97


def test_an_unknown_split(data_dir):
    with pytest.raises(DataError, match="no split 'dev'; it has: train, test"):
        dataset.load(data_dir, "stripes").split("dev")


def test_a_missing_folder():
    with pytest.raises(DataError, match="--data_dir=/no/such does not exist; make it with prepare"):
        dataset.load("/no/such", "digits")


def test_a_folder_without_dataset_json(tmp_path):
    with pytest.raises(DataError, match=r"holds no dataset\.json: not prepared, or stopped"):
        dataset.load(str(tmp_path), "digits")


def test_another_data_set(data_dir):
    with pytest.raises(DataError, match="holds the data set 'stripes', not --dataset=digits"):
        dataset.load(data_dir, "digits")


@pytest.mark.parametrize("content", ["not json", "{}", "[]", '{"format": 2, "name": "x"}'])
def test_a_file_that_prepare_data_did_not_write(tmp_path, content):
    (tmp_path / "dataset.json").write_text(content)
    with pytest.raises(DataError, match=r"is not a dataset\.json of prepare_data\.py"):
        dataset.load(str(tmp_path), "digits")


def test_a_format_of_another_version(own_data_dir):
    change(own_data_dir, format=1)
    with pytest.raises(DataError, match="has format 1, this version reads 2: make it anew"):
        dataset.load(own_data_dir, "stripes")


def test_every_broken_shard_is_counted(own_data_dir):
    os.remove(os.path.join(own_data_dir, "test-00000-of-00003-9126e575.tfrecord"))
    os.truncate(os.path.join(own_data_dir, "train-00002-of-00003-161ff8d4.tfrecord"), 5)
    message = r"2 shard\(s\) .* has 5 bytes instead of \d+; test-00000-of-00003.* is missing"
    with pytest.raises(DataError, match=message):
        dataset.load(own_data_dir, "stripes")
