"""Writing shards: in order, of a sensible number, and whole or not at all."""

import contextlib
import dataclasses
import itertools
import os
import re

import numpy as np
import pytest
import tensorflow as tf

from common import files
from input_fns import DataError, dataset_info
from input_fns.convert import shard_tasks, source, split_shards, writer
from input_fns.core import framing
from input_fns.image import image_pipeline


def make_raw(size=11, name="numbers", first=0):
    """Images whose pixels count up from `first`, in a split "train"."""
    images = (first + np.arange(size * 6)).astype(np.uint8).reshape(size, 3, 2, 1)
    split = source.RawArrays(images, np.arange(size) % 2)
    return source.RawDataset(name, ("even", "odd"), {"train": split})


def stored_images(data_dir, session):
    """Every image of the split, in the order of the shards."""
    numbers = dataset_info.load(str(data_dir), "numbers")
    size = numbers.split("train").num_examples
    batches = image_pipeline.ImagePipeline(numbers).eval_input_fn("train")({"batch_size": size})
    features, _ = session.run(tf.compat.v1.data.make_one_shot_iterator(batches).get_next())
    return features["image"]


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("num_shards", [1, 3, 11, 50])
def test_examples_keep_their_order_over_the_shards(tmp_path, session, num_shards):
    raw = make_raw()
    written = writer.write(raw, str(tmp_path), num_shards)
    assert len(written.split("train").shards) == min(num_shards, 11)
    np.testing.assert_array_equal(stored_images(tmp_path, session), raw.splits["train"].images)


def test_the_histogram_and_the_sizes_are_those_of_the_files(tmp_path):
    split = writer.write(make_raw(), str(tmp_path), num_shards=2).split("train")
    assert split.label_histogram == (6, 5)
    for shard in split.shards:
        assert os.path.getsize(tmp_path / shard.name) == shard.num_bytes


@pytest.mark.parametrize("max_offsets", [64, 4, 3])
def test_the_index_has_the_offsets_of_records(tmp_path, monkeypatch, max_offsets):
    monkeypatch.setattr(framing, "_MAX_OFFSETS", max_offsets)
    (shard,) = writer.write(make_raw(), str(tmp_path), num_shards=1).split("train").shards
    assert len(shard.offsets) <= max_offsets
    path = str(tmp_path / shard.name)
    assert framing.scan(path, shard.stride) == (11, shard.crc32, shard.offsets)
    assert shard.stride == -(-11 // max_offsets)


def test_the_stride_follows_from_the_number_of_offsets():
    for count in itertools.chain(range(1, 9000), [10**6, 10**9 + 1]):
        stride = -(-count // framing._MAX_OFFSETS)
        offsets = (0,) * -(-count // stride)
        assert dataset_info.ShardInfo("a", 0, count, offsets=offsets).stride == stride


@pytest.mark.parametrize(
    ("num_bytes", "num_shards"),
    [(5_000, 1), (20 * 2**20, 2), (500 * 2**20, 50), (5 * 2**30, 100), (140 * 2**30, 1434)],
)
def test_shards_hold_10_to_100_mebibytes_and_are_a_hundred_if_they_can(num_bytes, num_shards):
    assert split_shards.choose_num_shards(num_bytes) == num_shards


def test_progress_is_told(tmp_path):
    lines = []
    writer.write(make_raw(), str(tmp_path), num_shards=2, progress=lines.append)
    assert [line.split(",")[0] for line in lines] == ["train: shard 1/2", "train: shard 2/2"]


@pytest.fixture
def stopped(monkeypatch):
    """Makes a write stop at its eighth example."""
    serialize, calls = shard_tasks.serialize, []

    def serialize_some(row, label):
        calls.append(label)
        if len(calls) == 8:
            raise KeyboardInterrupt
        return serialize(row, label)

    monkeypatch.setattr(shard_tasks, "serialize", serialize_some)


def test_a_run_that_is_stopped_leaves_nothing_that_looks_complete(tmp_path, stopped):
    with pytest.raises(KeyboardInterrupt):
        writer.write(make_raw(), str(tmp_path), num_shards=3)
    with pytest.raises(DataError, match="not prepared, or stopped half-way"):
        dataset_info.load(str(tmp_path), "numbers")


def test_an_overwrite_that_is_stopped_leaves_the_old_data_set(tmp_path, session, request):
    old = make_raw()
    writer.write(old, str(tmp_path), num_shards=3)
    request.getfixturevalue("stopped")
    with pytest.raises(KeyboardInterrupt):
        writer.write(make_raw(first=100), str(tmp_path), num_shards=3)
    np.testing.assert_array_equal(stored_images(tmp_path, session), old.splits["train"].images)


@pytest.mark.parametrize("stop_at", range(1, 12))
def test_an_overwrite_stopped_anywhere_leaves_the_old_or_the_new(
    tmp_path, session, monkeypatch, stop_at
):
    old, new = make_raw(), make_raw(first=100)
    writer.write(old, str(tmp_path), num_shards=3)
    calls = []

    def stopping(function):
        def call(*args, **kwargs):
            calls.append(args)
            if len(calls) == stop_at:
                raise KeyboardInterrupt
            return function(*args, **kwargs)

        return call

    monkeypatch.setattr(tf.io.gfile, "rename", stopping(tf.io.gfile.rename))
    monkeypatch.setattr(tf.io.gfile, "remove", stopping(tf.io.gfile.remove))
    monkeypatch.setattr(files, "atomic_write", stopping(files.atomic_write))
    with contextlib.suppress(KeyboardInterrupt):
        writer.write(new, str(tmp_path), num_shards=3)
    images = stored_images(tmp_path, session)
    is_new = images[0, 0, 0, 0] == 100
    np.testing.assert_array_equal(images, (new if is_new else old).splits["train"].images)


def test_the_same_data_gets_the_same_names_and_other_data_other_names(tmp_path):
    names = [
        {shard.name for shard in writer.write(raw, str(tmp_path / folder), 2).split("train").shards}
        for raw, folder in ((make_raw(), "a"), (make_raw(), "b"), (make_raw(first=1), "c"))
    ]
    assert names[0] == names[1]
    assert not names[0] & names[2]


def shard_names(folder):
    """What the shards in a folder are called, without their checksums, after all other files."""
    names = sorted(os.listdir(folder))
    return [re.sub(r"-[0-9a-f]{8}\.tfrecord", ".tfrecord", name) for name in names]


def test_the_next_run_removes_what_a_killed_one_left(tmp_path):
    writer.write(make_raw(), str(tmp_path), num_shards=5)
    (tmp_path / "dataset.json").unlink()
    for name in ("train-00003.tfrecord.partial-0123abcd", "train-00003.tfrecord.partial"):
        (tmp_path / name).write_bytes(b"half")
    (tmp_path / "dataset.json.partial-0123abcd").write_text("half")
    writer.write(make_raw(), str(tmp_path), num_shards=2)
    assert shard_names(tmp_path) == [
        "dataset.json",
        "train-00000-of-00002.tfrecord",
        "train-00001-of-00002.tfrecord",
    ]


def test_the_old_shards_go_and_foreign_files_stay(tmp_path):
    (tmp_path / "mine.tfrecord").write_text("precious")
    writer.write(make_raw(), str(tmp_path), num_shards=3)
    writer.write(make_raw(), str(tmp_path), num_shards=1)
    assert shard_names(tmp_path) == [
        "dataset.json",
        "mine.tfrecord",
        "train-00000-of-00001.tfrecord",
    ]


def test_a_data_set_with_names_of_an_older_version_is_read_and_replaced(tmp_path, session):
    raw = make_raw()
    (shard,) = writer.write(raw, str(tmp_path), num_shards=1).split("train").shards
    old_name = "train-00000-of-00001.tfrecord"
    os.rename(tmp_path / shard.name, tmp_path / old_name)
    path = tmp_path / "dataset.json"
    path.write_text(path.read_text().replace(shard.name, old_name))
    np.testing.assert_array_equal(stored_images(tmp_path, session), raw.splits["train"].images)
    writer.write(raw, str(tmp_path), num_shards=1)
    assert sorted(os.listdir(tmp_path)) == ["dataset.json", shard.name]


def test_a_dataset_json_cannot_name_a_file_of_another_folder(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "precious.tfrecord").write_text("precious")
    (shard,) = writer.write(make_raw(), str(tmp_path / "data"), 1).split("train").shards
    path = tmp_path / "data" / "dataset.json"
    path.write_text(path.read_text().replace(shard.name, "../precious.tfrecord"))
    with pytest.raises(DataError, match=r'name is "../precious.tfrecord", and must be a plain'):
        dataset_info.read(str(tmp_path / "data"))
    writer.write(make_raw(first=1), str(tmp_path / "data"), 1)
    assert (tmp_path / "precious.tfrecord").exists()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"class_names": ("a\nb", "c")}, "not a class name"),
        ({"class_names": ("a", "")}, "not a class name"),
        ({"class_names": ("a", "a")}, "the class name 'a' occurs more than once"),
        ({"splits": {"../evil": None}}, "cannot be a part of the name of a file"),
        ({"files": {"../evil": b""}}, "cannot be a part of the name of a file"),
        ({"name": "a\nb"}, "cannot be the name of a data set"),
    ],
)
def test_names_that_cannot_be_stored(tmp_path, changed, message):
    with pytest.raises(DataError, match=message):
        writer.write(dataclasses.replace(make_raw(), **changed), str(tmp_path / "data"))
    assert not (tmp_path / "data").exists()


def test_an_empty_split_is_refused(tmp_path):
    with pytest.raises(DataError, match="split 'train' of numbers has no examples"):
        writer.write(make_raw(size=0), str(tmp_path))


def test_a_label_outside_the_classes_is_refused(tmp_path):
    raw = make_raw()
    raw.splits["train"].labels[[4, 9]] = 2
    with pytest.raises(DataError, match=r"example 4 has label 2, outside the 2 classes \(2 such"):
        writer.write(raw, str(tmp_path))
    assert os.listdir(tmp_path) == []


class Rows:
    """A split of given rows, some of them broken."""

    def __init__(self, rows):
        self._rows = rows
        self.labels = np.arange(len(rows)) % 2
        self.num_bytes, self.groups = 100, None

    def __len__(self):
        return len(self._rows)

    def __iter__(self):
        return iter(self._rows)


def row(number, encoding="raw", shape=(2, 3, 1)):
    feature = dataset_info.Feature(encoding, "uint8", shape)
    return source.Row({"image": bytes([number] * 6)}, {"image": feature}, f"{number}.png")


def write_rows(tmp_path, rows, num_shards=3):
    raw = source.RawDataset("numbers", ("even", "odd"), {"train": Rows(rows)})
    return writer.write(raw, str(tmp_path), num_shards)


def test_broken_examples_are_left_out_and_listed(tmp_path, session):
    broken = source.Broken("b.png", "it is empty")
    rows = [row(0), broken, row(2), row(3), broken, broken, row(6)]
    split = write_rows(tmp_path, rows).split("train")
    assert split.num_examples == 4
    assert split.label_histogram == (3, 1)  # 0, 2 and 6 are even
    assert split.broken == (("b.png", "it is empty"),) * 3
    assert dataset_info.read(str(tmp_path)).split("train") == split
    assert stored_images(tmp_path, session)[:, 0, 0, 0].tolist() == [0, 2, 3, 6]


def test_a_shard_whose_examples_are_all_broken_is_no_file(tmp_path):
    broken = source.Broken("b.png", "it is empty")
    split = write_rows(tmp_path, [row(0), row(1), broken, broken, row(4), row(5)]).split("train")
    assert [shard.name[:20] for shard in split.shards] == [
        "train-00000-of-00002",
        "train-00001-of-00002",
    ]
    assert len(os.listdir(tmp_path)) == 3


def test_a_split_of_nothing_but_broken_examples(tmp_path):
    message = "all of its 2 examples are skipped; the first is a.png: it is not an image"
    with pytest.raises(DataError, match=message):
        write_rows(tmp_path, [source.Broken("a.png", "it is not an image")] * 2)
    with pytest.raises(DataError, match="not prepared, or stopped half-way"):
        dataset_info.load(str(tmp_path), "numbers")


def test_what_differs_between_examples_is_not_promised(tmp_path):
    rows = [row(0, "jpeg"), row(1, "png", (3, 2, 1)), row(2, "jpeg")]
    written = write_rows(tmp_path, rows)
    assert written.features == {"image": dataset_info.Feature("image", "uint8", (None, None, 1))}
    assert dataset_info.read(str(tmp_path)).features == written.features


def test_the_file_of_an_example_is_stored_with_it(tmp_path):
    path = write_rows(tmp_path, [row(7)]).files("train")[0]
    (record,) = tf.compat.v1.io.tf_record_iterator(path)
    name = tf.train.Example.FromString(record).features.feature["name"]
    assert name.bytes_list.value == [b"7.png"]


class Changed(Rows):
    """A split whose file got other examples after it was counted."""

    def __len__(self):
        return 11


@pytest.mark.parametrize(
    ("size", "message"),
    [(9, "yields 9 examples instead of the 11"), (12, "yields more examples than the 11")],
)
@pytest.mark.parametrize("num_shards", [1, 3])
def test_a_split_yields_as_many_examples_as_it_has(tmp_path, size, message, num_shards):
    split = Changed(list(map(row, range(size))))
    split.labels = np.arange(12) % 2
    raw = source.RawDataset("numbers", ("even", "odd"), {"train": split})
    with pytest.raises(DataError, match=message):
        writer.write(raw, str(tmp_path / "out"), num_shards)
    assert not any(name.endswith(".json") for name in os.listdir(tmp_path / "out"))
