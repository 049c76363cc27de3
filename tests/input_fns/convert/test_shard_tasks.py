"""A task writes the bytes that TensorFlow would write."""

import dataclasses
import pickle
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from input_fns import DataError
from input_fns.convert import shard_tasks
from input_fns.convert.shard_tasks import ShardTask
from input_fns.convert.source import Broken, RawArrays, RawSplit, Row, Rows
from input_fns.dataset_info import Feature


@dataclasses.dataclass(frozen=True)
class Numbers(RawSplit):
    """Rows of the bytes of numbers; a negative one is broken."""

    KEYS = ("numbers", "labels")

    numbers: list[int]
    labels: np.ndarray | None = None
    paths: tuple[str, ...] = ()

    def read(self, i):
        """Returns the row of a number."""
        if self.numbers[i] < 0:
            return Broken(f"{i}.png", "it is negative")
        values = bytes([self.numbers[i]] * 6)
        stated = (self.paths[0], 0.0, self.numbers[i]) if self.paths else None
        return Row({"image": values}, {"image": Feature("raw", "uint8", (6,))}, stated_range=stated)


def task_of(examples, path, size=None, **options):
    """A task of the examples 10, 11, ... of a split of 30."""
    size = len(examples) if size is None else size
    return ShardTask("numbers", "train", 10, size, 30, examples, str(path), 3, **options)


@pytest.mark.parametrize("label", [None, 0, 1, 127, 128, 300, 2**40 + 5])
@pytest.mark.parametrize("name", ["", "a.png", "é/ü.png", "x" * 200])
def test_rows_are_serialized_as_by_protobuf(label, name):
    values = {"zebra": b"", "image": bytes(range(256)) * 70, "image_id": b"7", "a/b": b"\0\xff"}
    row = Row(values, {}, name)
    example = tf.train.Example()
    for key, value in ({**values, "name": name.encode()} if name else values).items():
        example.features.feature[key].bytes_list.value.append(value)
    if label is not None:
        example.features.feature["label"].int64_list.value.append(label)
    assert shard_tasks.serialize(row, label) == example.SerializeToString(deterministic=True)


@dataclasses.dataclass(frozen=True)
class Blocks(RawSplit):
    """Rows of random values, in blocks of three."""

    KEYS = ("labels_of",)

    labels_of: np.ndarray

    def blocks(self):
        """Yields all rows."""
        random = np.random.default_rng(0)
        features = {name: Feature("raw", "uint8", (5,)) for name in ("zebra", "a", "image", "mask")}
        for begin in range(0, len(self), 3):
            labels = self.labels_of[begin : begin + 3]
            values = {
                name: random.integers(0, 256, [len(labels), size, 2], dtype=np.uint8)
                for name, size in zip(features, (1, 0, 70, 2))
            }
            yield Rows(values, features, labels)

    def __iter__(self):
        return (row for rows in self.blocks() for row in rows)


@pytest.mark.parametrize("labels", [[0, 2, 1, 1], [0, 127], [300, 5, 128, 127], [7]])
def test_blocks_are_written_as_their_rows(tmp_path, labels):
    split = Blocks(np.array(labels))
    task = dataclasses.replace(task_of(split, tmp_path / "a"), num_classes=301)
    result = shard_tasks.run(task)
    records = list(tf.compat.v1.io.tf_record_iterator(str(tmp_path / "a")))
    assert records == [shard_tasks.serialize(row, row.label) for row in split]
    by_row = dataclasses.replace(
        task, path=str(tmp_path / "b"), examples=shard_tasks.InOrder(iter(split), len(split), None)
    )
    expected = dataclasses.asdict(shard_tasks.run(by_row))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert result.histogram.tolist() == np.bincount(labels, minlength=301).tolist()
    for name, value in dataclasses.asdict(result).items():
        assert name == "path" or np.array_equal(value, expected[name])


def test_rows_without_labels_are_written_without(tmp_path):
    rows = dataclasses.replace(next(Blocks(np.arange(2)).blocks()), labels=None)
    records = b"".join(shard_tasks.serialize(row, None) for row in rows)
    assert shard_tasks.serialize_rows(rows) == records


@pytest.mark.parametrize(("labels", "wrong"), [([0, 3], 3), ([-1, 0], -1)])
@pytest.mark.parametrize("in_blocks", [True, False])
def test_a_label_of_a_row_outside_of_the_classes_is_an_error(tmp_path, labels, wrong, in_blocks):
    split = Blocks(np.array(labels))
    split = split if in_blocks else shard_tasks.InOrder(iter(split), len(split), None)
    result = shard_tasks.run(task_of(split, tmp_path / "a"))
    assert f"has the label {wrong}, outside the 3 classes" in str(result.error)


def test_the_result_says_what_is_in_the_file(tmp_path):
    labels = np.array([2, 0, 0, 2, 1])
    result = shard_tasks.run(task_of(Numbers([7, -1, 5, 3, 9], labels), tmp_path / "a"))
    assert (result.end, result.num_examples, result.error) == (15, 4, None)
    assert result.histogram.tolist() == [1, 1, 2]
    assert result.broken == [("1.png", "it is negative")]
    assert result.features == {"image": Feature("raw", "uint8", (6,))}
    assert result.num_bytes == (tmp_path / "a").stat().st_size
    records = list(tf.compat.v1.io.tf_record_iterator(str(tmp_path / "a")))
    stored = [tf.train.Example.FromString(record).features.feature for record in records]
    assert [one["image"].bytes_list.value[0][0] for one in stored] == [7, 5, 3, 9]
    assert [one["label"].int64_list.value[0] for one in stored] == [2, 0, 2, 1]


def test_an_error_is_a_part_of_the_result(tmp_path):
    result = shard_tasks.run(task_of(Numbers([1, 2]), tmp_path / "a", size=3))
    with pytest.raises(DataError, match="'train' of numbers yields 12 examples instead of the 30"):
        raise result.error


def test_two_ranges_of_values_are_kept_with_their_first_files(tmp_path):
    result = shard_tasks.run(task_of(Numbers([5, 5, 6, 7], paths=("a.tif",)), tmp_path / "a"))
    assert result.stated_ranges == [("a.tif", 0.0, 5), ("a.tif", 0.0, 6)]


def test_a_task_is_pickled_without_other_examples(tmp_path):
    split = RawArrays(np.zeros([1000, 9, 9, 1], np.uint8), np.zeros(1000, np.int64))
    assert len(pickle.dumps(task_of(split.part(10, 12), tmp_path / "a"))) < 2000


def test_the_modules_of_tasks_import_no_tensorflow():
    program = """
import sys
from input_fns.convert import shard_tasks
from input_fns.image.sources import annotated_images, image_files
from input_fns.audio.sources import recordings
from input_fns.tables.sources import criteo, ratings
from input_fns.text.sources import pretraining_rows, squad_windows, subwords, token_files
sys.exit("tensorflow" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
