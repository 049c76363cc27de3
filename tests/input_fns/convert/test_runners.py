"""The shards do not depend on who writes them."""

import functools
import os

import numpy as np
import pytest
from PIL import Image

from input_fns import DataError
from input_fns.convert import runners, source, writer
from input_fns.convert.options import Options
from input_fns.convert.shared_array import SharedArray
from input_fns.image.sources import image_files


@pytest.fixture
def raw(tmp_path, monkeypatch):
    """A data set of 7 files, one of them broken; the working folder has modules that exit."""
    monkeypatch.setattr(runners.Processes, "min_examples", 0)
    for number in range(7):
        path = tmp_path / "raw" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full([7, 13, 3], number, np.uint8)).save(path)
    path.write_text("no image")
    (tmp_path / "working").mkdir()
    for name in ("multiprocessing", "pickle", "struct", "threading"):
        (tmp_path / "working" / f"{name}.py").write_text("raise SystemExit(3)\n")
    monkeypatch.chdir(tmp_path / "working")
    return image_files.read(Options("image_folder", source="../raw"))


def contents(folder):
    """`{name: content}` of the files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.slow
def test_a_pool_writes_what_one_process_writes(raw, tmp_path):
    lines = []
    written = writer.write(raw, str(tmp_path / "here"), 3, lines.append)
    with runners.of(2) as runner:
        there = writer.write(raw, str(tmp_path / "there"), 3, lines.append, runner=runner)
    assert contents(tmp_path / "here") == contents(tmp_path / "there")
    assert written.splits == there.splits
    words = [line.split(",")[0] for line in lines]
    assert words == [f"train: shard {i}/3" for i in (1, 2, 3)] * 2
    assert os.getcwd() == str(tmp_path / "working")


def sum_of_shared(numbers, shared):
    """The sum of the elements of a shared array with these numbers."""
    return int(shared.array[list(numbers)].sum())


@pytest.mark.slow
def test_a_pool_applies_a_function_in_the_order_of_the_items():
    with runners.of(2) as runner:
        shared = SharedArray.write(runner.folder, [np.arange(7) ** 2, np.array([100])])
        function = functools.partial(sum_of_shared, shared=shared)
        assert list(runner.apply(function, [(1, 2), (7,), (3,)])) == [5, 100, 9]
        with pytest.raises(IndexError, match="index 8 is out of bounds"):
            list(runner.apply(function, [(1,), (8,), (0,)]))
        assert next(runner.apply(function, iter([(2,), (3,)]))) == 4  # stops early
    assert not os.path.exists(os.path.dirname(shared.path))


def test_one_item_is_run_in_this_process():
    with runners.of(2) as runner:
        assert list(runner.apply(lambda item: (item, os.getpid()), [13])) == [(13, os.getpid())]


class Killer(source.RawArrays):
    """A split whose reader is killed."""

    def read(self, i):
        """Ends the process, as the kernel does without memory."""
        os.kill(os.getpid(), 9)


@pytest.mark.slow
def test_a_killed_process_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(runners.Processes, "min_examples", 0)
    split = Killer(np.zeros([6, 3, 2, 1], np.uint8), np.zeros(6, np.int64))
    raw = source.RawDataset("numbers", ("a", "b"), {"train": split})
    message = "killed, perhaps out of memory, while examples 0 to 1 of"
    with runners.of(2) as runner, pytest.raises(DataError, match=message):
        writer.write(raw, str(tmp_path), 3, runner=runner)
    assert os.listdir(tmp_path) == []


def test_a_class_of_a_user_is_read_in_this_process(tmp_path, monkeypatch):
    monkeypatch.setattr(runners.Processes, "min_examples", 0)
    raw = source.RawDataset("numbers", (), {"train": Stream(5)})
    written = writer.write(raw, str(tmp_path), 2, runner=runners.of(2))
    assert [shard.num_examples for shard in written.split("train").shards] == [2, 3]


class Stream:
    """A split of a user, without `RawSplit` and without `take`."""

    labels = groups = None
    num_bytes = 100

    def __init__(self, size):
        self._rows = map(self._row, range(size))  # once
        self._size = size
        self._process = os.getpid()

    def _row(self, number):
        assert os.getpid() == self._process
        image = np.full([2, 3, 1], number, np.uint8)
        return source.RawArrays(image[np.newaxis], np.zeros(1)).read(0)

    def __len__(self):
        return self._size

    def __iter__(self):
        return self._rows
