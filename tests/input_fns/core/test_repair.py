"""What is left of a split with broken records can be trained on, and what is not is counted."""

import json
import os
import re

import pytest
import tensorflow as tf

from common.errors import UsageError
from input_fns import DataError, dataset_info
from input_fns.core import inspection, repair

SHARD = "train-00001-of-00003-e45eb784.tfrecord"  # 32 of the 97 records


@pytest.fixture
def shard(own_data_dir):
    """A shard that a test may break."""
    return os.path.join(own_data_dir, SHARD)


@pytest.fixture
def load(own_data_dir):
    """Loads a data set whose training shards may be broken."""
    return lambda: dataset_info.load(own_data_dir, "stripes", repaired_split="train")


def flip(path, *places):
    """Flips a bit of each of these bytes of a file."""
    with open(path, "rb") as file:
        content = bytearray(file.read())
    for place in places:
        content[place] ^= 4
    with open(path, "wb") as file:
        file.write(content)


def record_bytes(path):
    """Bytes of a record with what is around it; all records of these shards are of one size."""
    return os.path.getsize(path) // 32


def records_of(data):
    return [
        record
        for path in data.files("train")
        for record in tf.compat.v1.io.tf_record_iterator(path)
    ]


def test_a_whole_split_is_left_as_it_is(load, tmp_path):
    data = load()
    assert repair.without_bad_records(data, "train", str(tmp_path / "repaired"), 5) == (data, 0)
    assert not (tmp_path / "repaired").exists()


def test_broken_records_are_left_out_and_all_others_kept(load, shard, tmp_path, capsys):
    before = records_of(load())
    size = record_bytes(shard)
    flip(shard, 3 * size + 20, 17 * size + 20, 31 * size + 20)
    data, skipped = repair.without_bad_records(load(), "train", str(tmp_path), 3)
    assert skipped == 3
    assert data.split("train").num_examples == 94
    first = load().split("train").shards[0].num_examples
    lost = {first + 3, first + 17, first + 31}
    assert records_of(data) == [record for i, record in enumerate(before) if i not in lost]
    out = capsys.readouterr().out
    assert f"skipped: {SHARD}, record 3 at byte {3 * size}: corrupted record\n" in out
    assert "skipped 3 of 97 records of split 'train'" in out


def test_a_repaired_shard_has_an_index(load, shard, tmp_path):
    flip(shard, 3 * record_bytes(shard) + 20)
    data, _ = repair.without_bad_records(load(), "train", str(tmp_path / "repaired"), 5)
    repaired = data.splits["train"].shards[1]
    assert repaired.offsets == tuple(range(0, repaired.num_bytes, record_bytes(shard)))
    assert repaired.num_bytes == os.path.getsize(repaired.path)
    assert len(repaired.offsets) == repaired.num_examples == 31


def test_what_follows_a_broken_length_is_lost(load, shard, tmp_path):
    flip(shard, 20 * record_bytes(shard) + 2)
    data, skipped = repair.without_bad_records(load(), "train", str(tmp_path), 12)
    assert skipped == 12
    assert data.split("train").num_examples == 85


def test_a_shard_that_was_cut(load, shard, tmp_path):
    os.truncate(shard, 5 * record_bytes(shard) + 7)
    data, skipped = repair.without_bad_records(load(), "train", str(tmp_path), 97)
    assert skipped == 27
    assert len(records_of(data)) == 70


def test_what_follows_the_last_record_is_left_out(load, shard, tmp_path):
    before = records_of(load())
    with open(shard, "ab") as file:
        file.write(b"x" * 40)
    data, skipped = repair.without_bad_records(load(), "train", str(tmp_path), 1)
    assert skipped == 0
    assert records_of(data) == before


def test_an_empty_shard(load, shard, tmp_path):
    os.truncate(shard, 0)
    data, skipped = repair.without_bad_records(load(), "train", str(tmp_path), 32)
    assert skipped == 32
    assert [len(data.files("train")), len(records_of(data))] == [2, 65]


def test_more_than_was_allowed(load, shard, tmp_path):
    size = record_bytes(shard)
    flip(shard, 3 * size + 20, 17 * size + 20)
    message = rf"2 of 97 .*--skip_bad_records=1: {SHARD}, record 3 at byte {3 * size}: corrupted"
    with pytest.raises(DataError, match=message):
        repair.without_bad_records(load(), "train", str(tmp_path / "repaired"), 1)
    assert not (tmp_path / "repaired").exists()


def test_nothing_is_left(load, tmp_path):
    for path in load().files("train"):
        os.truncate(path, 0)
    with pytest.raises(DataError, match="97 of 97 records of split 'train'"):
        repair.without_bad_records(load(), "train", str(tmp_path), 97)


def test_inspection_lists_what_comes_after_a_broken_record(load, shard):
    size = record_bytes(shard)
    flip(shard, 3 * size + 20, 4 * size + 20, 17 * size + 2)
    found = list(inspection.problems(load(), ["train"]))
    assert [re.search(r"record (\d+)", line)[1] for line in found] == ["3", "4", "17"]


@pytest.mark.slow(cost=0.1)
def test_a_training_counts_what_it_skipped(run_with, own_data_dir, shard, tmp_path, result):
    flip(shard, 3 * record_bytes(shard) + 20)
    flags = [f"--data_dir={own_data_dir}", "--mode=train", "--dataset=stripes", "--model=mlp"]
    flags += ["--train_epochs=1", "--train_batch_size=13", "--params=hidden_units=8"]
    with pytest.raises(DataError, match="record 3 at byte"):
        run_with(f"--model_dir={tmp_path}/strict", *flags)
    flags += ["--skip_bad_records=2", f"--model_dir={tmp_path}/tolerant"]
    with pytest.raises(UsageError):
        run_with(*flags, "--params=hiden_units=8")
    assert not (tmp_path / "tolerant").exists()
    run_with(*flags)
    steps = -(-96 // 13)
    assert result(tmp_path / "tolerant", steps)["train"]["skipped_records"] == 1
    with open(own_data_dir + "/dataset.json") as file:
        assert json.load(file)["splits"]["train"]["num_examples"] == 97


def test_copies_are_found_in_a_relative_folder(load, shard, tmp_path, monkeypatch):
    flip(shard, 3 * record_bytes(shard) + 20)
    monkeypatch.chdir(tmp_path)
    data, skipped = repair.without_bad_records(load(), "train", "model/repaired", 1)
    assert skipped == 1
    assert len(records_of(data)) == 96
    assert dataset_info.to_json(data).count("repaired") == 0


def test_a_whole_shard_of_another_data_set_is_not_taken(load, shard, tmp_path):
    records = list(tf.compat.v1.io.tf_record_iterator(shard))
    with tf.io.TFRecordWriter(shard) as file:
        for record in records[::-1]:
            file.write(record)
    with pytest.raises(DataError, match=f"{SHARD} in .* is not the shard that dataset.json names"):
        repair.without_bad_records(load(), "train", str(tmp_path), 97)
