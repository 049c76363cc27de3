"""A run resumes with the finished shards of a killed run."""

import dataclasses
import errno
import json
import os

import numpy as np
import pytest
from PIL import Image

from input_fns import DataError, convert, dataset_info
from input_fns.convert import finished_shards, shard_tasks, writer
from input_fns.convert.fingerprint import Fingerprints, state_of
from input_fns.convert.options import Options
from tests import audio_data, bert_data, clicks_data, shapes_data

SHARDS = 3


def write_pictures(folder):
    for number in range(21):
        path = folder / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full([7, 13, 3], number, np.uint8)).save(path)
    path.write_text("no image")
    return Options("image_folder", source=str(folder))


def write_boxes(folder):
    folder.mkdir(parents=True)
    shapes_data.write_coco(folder, {"train": 7})
    return Options("coco", source=str(folder), task="detection")


def write_clicks(folder):
    folder.mkdir(parents=True)
    (folder / "train.txt").write_text("\n".join(clicks_data.lines(70)) + "\n")
    return Options("criteo", source=str(folder), min_frequency=3, hash_rows=7)


def write_recordings(folder):
    audio_data.write_folder(folder)
    return Options("audio_folder", source=str(folder), sample_rate=8000, max_seconds=0.6)


def write_texts(folder):
    folder.mkdir(parents=True)
    rows = "".join(f"{text}\t{label}\n" for text, label in bert_data.sentences(31, 1))
    (folder / "train.tsv").write_text(f"text\tlabel\n{rows}")
    (folder.parent / "vocab.txt").write_bytes(bert_data.VOCAB)
    return Options(
        "text_files",
        source=str(folder),
        text_columns=("text",),
        label_columns=("label",),
        vocabulary=str(folder.parent / "vocab.txt"),
        max_length=24,
    )


SOURCES = [write_pictures, write_boxes, write_clicks, write_recordings, write_texts]


class Written(list):
    """The names of examples."""

    fail_at = None


@pytest.fixture
def serialized(monkeypatch):
    """A list with a name for each example that is written; `fail_at` is where the disk is full."""
    written, real = Written(), shard_tasks.serialize

    def serialize(row, label):
        if len(written) == written.fail_at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(row.name)
        return real(row, label)

    def serialize_rows(rows):
        return b"".join(serialize(row, row.label) for row in rows)

    monkeypatch.setattr(shard_tasks, "serialize", serialize)
    monkeypatch.setattr(shard_tasks, "serialize_rows", serialize_rows)
    return written


def write(options, data_dir, lines=None):
    progress = (lambda line: None) if lines is None else lines.append
    return writer.write(convert.read(options), str(data_dir), SHARDS, progress)


def num_examples(written):
    return sum(split.num_examples for split in written.splits.values())


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def interrupted(tmp_path, serialized):
    """Writes a source up to the middle of its second shard; returns its options."""

    def interrupt(write_source):
        options = write_source(tmp_path / "raw")
        write(options, tmp_path / "expected")
        sizes = [shard.num_examples for shard in _first_split(tmp_path / "expected").shards]
        serialized.fail_at = len(serialized) + sizes[0] + 1
        with pytest.raises(OSError, match="No space left"):
            write(options, tmp_path / "data")
        serialized.clear()
        serialized.fail_at = None
        return options, sizes[0]

    return interrupt


def _first_split(data_dir):
    return next(iter(dataset_info.read(str(data_dir)).splits.values()))


@pytest.mark.parametrize("write_source", SOURCES)
def test_the_same_command_resumes_after_a_full_disk(
    write_source, interrupted, serialized, tmp_path
):
    options, num_finished = interrupted(write_source)
    lines = []
    written = write(options, tmp_path / "data", lines)
    assert contents(tmp_path / "data") == contents(tmp_path / "expected")
    assert len(serialized) == num_examples(written) - num_finished
    assert f"shard 1/{SHARDS}" in lines[0]
    assert lines[0].endswith("all of an earlier run")


def test_a_failed_run_says_what_it_keeps(serialized, tmp_path):
    serialized.fail_at, lines = 10, []
    with pytest.raises(OSError, match="No space left"):
        write(write_pictures(tmp_path / "raw"), tmp_path / "data", lines)
    assert lines[-1] == "1 finished shards are kept for the same command"
    assert len(list((tmp_path / "data").iterdir())) == 2  # the shard and what is known about it


@pytest.mark.parametrize("write_source", SOURCES)
def test_a_source_that_was_moved_is_the_same(write_source, interrupted, serialized, tmp_path):
    options, num_finished = interrupted(write_source)
    (tmp_path / "raw").rename(tmp_path / "moved")
    moved = dataclasses.replace(options, source=f"{tmp_path}/moved/")  # as a shell completes it
    written = write(moved, tmp_path / "data")
    assert len(serialized) == num_examples(written) - num_finished


def test_a_file_that_has_changed_is_named(interrupted, serialized, tmp_path):
    options, _ = interrupted(write_pictures)
    first = convert.read(options).splits["train"].read(0).name
    path = tmp_path / "raw" / first
    Image.fromarray(np.full([7, 13, 3], 200, np.uint8)).save(path)
    lines = []
    written = write(options, tmp_path / "data", lines)
    assert lines[0] == f"{path} has changed: its shard is written again"
    assert len(serialized) == num_examples(written)


def test_another_file_is_another_order(interrupted, serialized, tmp_path):
    options, _ = interrupted(write_pictures)
    Image.fromarray(np.zeros([7, 13, 3], np.uint8)).save(tmp_path / "raw" / "a" / "00.png")
    lines = []
    written = write(options, tmp_path / "data", lines)
    assert lines[0].startswith("shards of an earlier run are written again: the examples or the op")
    assert len(serialized) == num_examples(written)
    assert not [name for name in contents(tmp_path / "data") if "partial" in name]


def flip_a_bit(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("kind", ["tfrecord", "json"])
@pytest.mark.parametrize("damage", [flip_a_bit, lambda path: path.write_bytes(b""), os.unlink])
def test_a_damaged_shard_is_written_again(kind, damage, interrupted, serialized, tmp_path):
    options, _ = interrupted(write_pictures)
    (path,) = (tmp_path / "data").glob(f"*.{kind}.partial-*")
    damage(path)
    written = write(options, tmp_path / "data")
    assert contents(tmp_path / "data") == contents(tmp_path / "expected")
    assert len(serialized) == num_examples(written)


def test_what_is_known_about_a_shard_is_untrusted(interrupted, tmp_path):
    """A count that contradicts the records is not believed."""
    options, _ = interrupted(write_pictures)
    (path,) = (tmp_path / "data").glob("*.json.partial-*")
    known = json.loads(path.read_text())
    known["split"]["shards"][0]["num_examples"] -= 1
    path.write_text(json.dumps(known))
    write(options, tmp_path / "data")
    assert contents(tmp_path / "data") == contents(tmp_path / "expected")


def test_an_error_of_the_data_leaves_nothing(serialized, tmp_path, monkeypatch):
    options = write_pictures(tmp_path / "raw")

    def refuse(complete):
        raise DataError("all labels are equal")

    with pytest.raises(DataError, match="all labels"):
        writer.write(convert.read(options), str(tmp_path / "data"), SHARDS, before_commit=refuse)
    assert not contents(tmp_path / "data")


def test_fingerprints_follow_values_and_not_objects():
    digest = Fingerprints("/data/raw").of
    text = "a" * 3
    assert digest([text, text], {"b", "c"}) == digest(["aaa", "aa" + "a"], {"c", "b"})
    assert digest("/data/raw/a.png") == Fingerprints("/moved").of("/moved/a.png")
    different = [
        *("/data/raw2/a.png", "a", b"a", 1, 1.0, True, None, range(3), [], (), {}, {"a": 1}),
        *(np.zeros(2), np.zeros([2, 1]), np.zeros(2, np.float32), np.int64(1), np.array(["a"])),
        *(np.array(["a"], object), [["a"], []], [[], ["a"]], set(), int, len, Options("digits")),
    ]
    assert len(set(map(digest, different))) == len(different)


def test_a_value_without_a_pickle_has_no_fingerprint():
    for value in (lambda: 0, open(os.devnull), iter([])):  # noqa: SIM115
        if value is not None:
            with pytest.raises(TypeError):
                Fingerprints("").of(i for i in [value])


def test_a_pipe_has_no_state(tmp_path):
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(OSError, match="not a file"):
        state_of(str(tmp_path / "a.png"), str(tmp_path))


def test_names_of_finished_shards():
    path = finished_shards.shard_name("train-00003", "0123456789abcdef")
    assert path == "train-00003.tfrecord.partial-01234567"
    assert finished_shards.manifest_path(f"/a/{path}") == "/a/train-00003.json.partial-01234567"
    assert finished_shards.fits({"train-00003": "01234567"}, f"/a/{path}")
    assert finished_shards.fits({"train-00004": "89abcdef"}, f"/a/{path}")
    assert not finished_shards.fits({"train-00003": "89abcdef"}, f"/a/{path}")
