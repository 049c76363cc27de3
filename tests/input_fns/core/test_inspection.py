"""Inspection reads every record, and finds what is wrong and where."""

import dataclasses
import io
import os
import re
import struct

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from input_fns import DataError, convert, dataset_info
from input_fns.convert import shard_tasks, source, writer
from input_fns.convert.options import Options
from input_fns.core import framing, inspection
from input_fns.image import contact_sheet
from input_fns.text.token_pipeline import TokenPipeline
from tests import audio_data, bert_data
from tests.input_fns.text.sources import text_data
from tests.marks import slow

SHARD = "train-00001-of-00003-e45eb784.tfrecord"


@pytest.fixture
def stripes(own_data_dir):
    """A data set that a test may break."""
    return dataset_info.load(own_data_dir, "stripes")


def offsets(path):
    """Where each record of a shard begins: a header of 12 bytes, the data, 4 bytes."""
    places, place = [], 0
    for record in tf.compat.v1.io.tf_record_iterator(path):
        places.append(place)
        place += 12 + len(record) + 4
    return places


def rewrite(path, change):
    """Changes the tf.train.Example of record 5 of a shard."""
    records = list(tf.compat.v1.io.tf_record_iterator(path))
    example = tf.train.Example.FromString(records[5])
    change(example.features.feature)
    records[5] = example.SerializeToString()
    with tf.io.TFRecordWriter(path) as file:
        for record in records:
            file.write(record)


def test_a_whole_data_set(stripes):
    report = inspection.inspect(stripes, "test")
    assert report.problems == []
    first, *histogram = report.lines
    assert first.startswith("test: 41 examples in 3 shards of 0.0 to 0.0 MB")
    assert histogram[2].split() == ["stripe", "2", "13", "#" * 37]


def test_an_index_of_other_records(stripes):
    split = stripes.split("train")
    first, *others = split.shards
    wrong = dataclasses.replace(first, offsets=(0, *(offset + 1 for offset in first.offsets[1:])))
    splits = {"train": dataclasses.replace(split, shards=(wrong, *others))}
    changed = dataclasses.replace(stripes, splits=splits)
    (problem,) = inspection.inspect(changed, "train").problems
    assert problem == f"{first.name} has other offsets of records than dataset.json says"
    with pytest.raises(DataError, match="has other offsets of records"):
        inspection.check_contents(changed, ["train"])


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("record", [31, slow(0), slow(5)])
def test_a_flipped_byte_is_found_with_its_shard_and_offset(stripes, record):
    path = os.path.join(stripes.data_dir, SHARD)
    place = offsets(path)[record]
    with open(path, "r+b") as file:
        file.seek(place + 12 + 20)
        byte = file.read(1)
        file.seek(place + 12 + 20)
        file.write(bytes([byte[0] ^ 4]))
    report = inspection.inspect(stripes, "train")
    assert report.problems == [f"{SHARD}, record {record} at byte {place}: corrupted record"]
    assert inspection.inspect(stripes, "test").problems == []


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda f: f["label"].int64_list.value.__setitem__(0, 3), "its label [3] is none of the 3"),
        slow(lambda f: f.pop("label"), "its label [] is none of the 3 classes"),
        (lambda f: f.pop("image"), "it has no feature 'image'"),
        (
            lambda f: f["image"].bytes_list.value.__setitem__(0, b"short"),
            "'image' has 5 bytes instead of 35",
        ),
    ],
)
def test_a_record_that_does_not_fit(stripes, change, problem):
    path = os.path.join(stripes.data_dir, SHARD)
    rewrite(path, change)
    (found,) = inspection.problems(stripes, ["train"])
    assert found.startswith(f"{SHARD}, record 5 at byte {offsets(path)[5]}: {problem}")


def test_a_recording_that_does_not_fit(tmp_path):
    raw = audio_data.write_folder(tmp_path / "raw", 5)
    data = audio_data.prepare("audio_folder", raw, tmp_path / "data", validation_fraction=0.0)
    assert not list(inspection.problems(data, ["train"]))
    (path,) = data.files("train")
    for num_bytes in (9602, 801):
        rewrite(path, lambda f: f["waveform"].bytes_list.value.__setitem__(0, b"1" * num_bytes))  # noqa: B023
        (found,) = inspection.problems(data, ["train"])
        assert found.endswith(f"'waveform' has {num_bytes} bytes instead of up to 9600")


def test_an_image_that_cannot_be_decoded(tmp_path):
    images = np.zeros([7, 4, 4, 3], np.uint8)
    written = writer.write(
        source.RawDataset("x", ("a", "b"), {"train": source.RawArrays(images, np.arange(7) % 2)}),
        str(tmp_path),
    )
    path = written.files("train")[0]
    encoded = io.BytesIO()
    Image.fromarray(images[0]).save(encoded, "JPEG")
    with tf.io.TFRecordWriter(path) as file:
        for i in range(7):
            data = encoded.getvalue() if i != 5 else encoded.getvalue()[:-30]
            row = source.Row({"image": data}, {})
            file.write(shard_tasks.serialize(row, i % 2))
    as_jpeg = dataset_info.Feature("jpeg", "uint8", (4, 4, 3))
    jpegs = dataset_info.DatasetInfo(
        "x", str(tmp_path), {"image": as_jpeg}, ("a", "b"), written.splits
    )
    (problem,) = inspection.problems(jpegs, ["train"])
    assert "record 5 at byte" in problem
    assert "'image' is not a complete JPEG or PNG" in problem


def test_a_record_that_is_no_example(stripes):
    path = os.path.join(stripes.data_dir, SHARD)
    with tf.io.TFRecordWriter(path) as file:
        file.write(b"\xff\xff junk")
    (problem,) = inspection.problems(stripes, ["train"])
    assert problem == f"{SHARD}, record 0 at byte 0: no tf.train.Example"


def test_shards_that_are_missing_empty_or_short(stripes):
    names = [shard.name for shard in stripes.split("train").shards]
    paths = stripes.files("train")
    os.remove(paths[0])
    open(paths[1], "w").close()
    os.truncate(paths[2], os.path.getsize(paths[2]) - 3)
    problems = inspection.inspect(stripes, "train").problems
    assert problems[0] == f"{names[0]} is missing"
    assert problems[1].startswith(f"{names[1]} has 0 bytes instead of")
    assert any(line.startswith(f"{names[2]}, record 32 at byte") for line in problems)


def test_a_whole_shard_with_other_examples(stripes):
    path = os.path.join(stripes.data_dir, SHARD)
    records = list(tf.compat.v1.io.tf_record_iterator(path))
    with tf.io.TFRecordWriter(path) as file:
        for record in records[:-1]:
            file.write(record)
    problems = inspection.inspect(stripes, "train").problems
    assert f"{SHARD} holds 31 examples instead of 32" in problems


def test_text(pairs_dir):
    data = dataset_info.load(pairs_dir, "pairs")
    report = inspection.inspect(data, "test")
    assert report.problems == []
    assert report.lines[0].startswith("test: 11 examples in 1 shard")
    assert re.fullmatch(
        r"  11 pairs, \d+ \+ \d+ tokens, in 11 rows of 32, \d+% full", report.lines[1]
    )
    assert inspection.describe_feature(data.features["source"]) == "uint16 32, raw"


@pytest.mark.slow(cost=0.1)
def test_the_contact_sheet_shows_images_of_each_class(stripes):
    sheet = np.asarray(Image.open(io.BytesIO(contact_sheet.of_classes(stripes))))
    assert sheet.shape == (3 * 68 + 4, 160 + 10 * 68, 3)
    cells = sheet[4 + 68 : 68 + 68, 160 : 160 + 64].astype(int)  # the first image of class 1
    columns = cells.mean(axis=(0, 2)).reshape(-1, 8).mean(axis=1)
    assert columns.argmax() in (1, 2)  # bright in the second of five columns
    assert sheet[8:60, 4:150].min() < 100  # the class has a name


def test_a_class_of_few_images(tmp_path):
    raw = {
        "train": source.RawArrays(
            np.full([6, 5, 4, 3], 200, np.uint8), np.array([0, 1, 0, 1, 0, 0])
        )
    }
    written = writer.write(source.RawDataset("x", ("a", "b"), raw), str(tmp_path))
    sheet = np.asarray(Image.open(io.BytesIO(contact_sheet.of_classes(written))))
    white = (sheet[4:68, 160 + 4 * 68 :] == 255).all()
    assert white  # class a has four images, and then no more


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, bool])
def test_images_of_any_channels_and_dtype_are_drawn(channels, dtype):
    image = np.zeros([5, 4, channels], dtype)
    image[1, 2] = 1
    pixels = np.asarray(contact_sheet.to_picture(image, image.max()))
    expected = np.zeros([5, 4, 3])
    expected[1, 2] = 255
    np.testing.assert_array_equal(pixels, expected)


def test_negative_values_and_nan_are_drawn_black():
    image = np.array([-3.0, np.nan, 0, 2], np.float32).reshape(2, 2, 1)
    pixels = np.asarray(contact_sheet.to_picture(image, np.float32(2)))
    assert pixels[..., 0].tolist() == [[0, 0], [0, 255]]


def other_records(stripes):
    """Replaces a shard by one of as many records and bytes."""
    path = os.path.join(stripes.data_dir, SHARD)
    records = list(tf.compat.v1.io.tf_record_iterator(path))
    with tf.io.TFRecordWriter(path) as file:
        for record in records[::-1]:
            file.write(record)


def test_a_shard_of_another_data_set_is_found(stripes):
    other_records(stripes)
    (problem,) = inspection.inspect(stripes, "train").problems
    assert problem.startswith(f"{SHARD} holds other records than dataset.json names: their crc32")


def test_the_start_of_a_run_checks_small_shards(stripes, monkeypatch):
    inspection.check_contents(stripes, ["train", "test"])
    other_records(stripes)
    inspection.check_contents(stripes, ["test"])
    with pytest.raises(DataError, match=f"{SHARD} holds other records"):
        inspection.check_contents(stripes, ["train"])
    monkeypatch.setattr(inspection, "_CHECKED_BYTES", 2000)
    inspection.check_contents(stripes, ["train"])


def test_a_vocabulary_that_is_not_that_of_dataset_json(tmp_path, monkeypatch):
    documents_dir = bert_data.prepare_pretraining(tmp_path)
    data = dataset_info.read(documents_dir)
    path = os.path.join(documents_dir, data.kind.vocabulary)
    other_size = dataclasses.replace(data.kind, vocab_size=99)
    (problem,) = inspection.file_problems(dataclasses.replace(data, kind=other_size), [])
    assert problem.endswith("has 20 lines, not vocab_size=99")
    with open(path, "ab") as file:
        file.write(b"more\n")
    with pytest.raises(DataError, match=r"vocab-.*txt has changed: its checksum is .* --overwrite"):
        inspection.check_contents(data, [])
    monkeypatch.setattr(inspection, "_CHECKED_BYTES", os.path.getsize(path) - 1)
    inspection.check_contents(data, [])  # a large file is not read at the start
    assert list(inspection.file_problems(data, []))
    os.remove(path)
    with pytest.raises(DataError, match=r"vocab-.*txt is missing"):
        inspection.check_contents(data, [])


def test_tags_have_a_range(tmp_path):
    """-1 is the tag of a token where no word starts."""
    (tmp_path / "train.txt").write_text("a A\nb B\n")
    (tmp_path / "vocab.txt").write_bytes(bert_data.VOCAB)
    options = Options(
        "token_files",
        source=str(tmp_path / "train.txt"),
        vocabulary=str(tmp_path / "vocab.txt"),
        validation_fraction=0.0,
    )
    written = writer.write(convert.read(options), str(tmp_path / "data"))
    assert inspection.inspect(written, "train").problems == []
    fewer = dataclasses.replace(written, properties={"num_tags": 1, "tag_names": ["A"]})
    (problem,) = inspection.inspect(fewer, "train").problems
    assert problem.endswith("'tag_ids' has values outside of -1 to 0")


def test_a_data_set_of_an_older_version_has_no_checksums(stripes):
    other_records(stripes)
    split = stripes.split("train")
    shards = tuple(dataclasses.replace(shard, crc32=0) for shard in split.shards)
    splits = {"train": dataclasses.replace(split, shards=shards)}
    older = dataclasses.replace(stripes, splits=splits)
    inspection.check_contents(older, ["train"])
    assert inspection.inspect(older, "train").problems == []


@pytest.mark.parametrize("length", [2**31, 2**64 - 6, slow(2**40), slow(2**60), slow(2**64 - 1)])
def test_a_length_that_would_end_the_process(stripes, length):
    """TensorFlow allocates what a length with a good checksum says: a segmentation fault."""
    path = os.path.join(stripes.data_dir, SHARD)
    header = struct.pack("<Q", length)
    with open(path, "r+b") as file:
        file.write(header + framing.masked_crc32c(header))
    (problem,) = inspection.problems(stripes, ["train"])
    assert re.fullmatch(rf"{SHARD}, record 0 at byte 0: (corrupted|truncated) record", problem)
    with pytest.raises(DataError, match="record 0 at byte 0"):
        inspection.check_contents(stripes, ["train"])


def test_a_label_above_32_bits_is_none_of_the_classes(stripes):
    path = os.path.join(stripes.data_dir, SHARD)
    rewrite(path, lambda f: f["label"].int64_list.value.__setitem__(0, 2**32 + 1))
    (problem,) = inspection.problems(stripes, ["train"])
    assert "its label [4294967297] is none of the 3 classes" in problem


def test_a_feature_of_another_type(stripes):
    path = os.path.join(stripes.data_dir, SHARD)
    rewrite(path, lambda f: f["image"].int64_list.value.append(3))
    (problem,) = inspection.problems(stripes, ["train"])
    assert "it has no feature 'image'" in problem


def test_a_split_without_shards_is_inspected(stripes):
    splits = {"train": dataset_info.SplitInfo((), ())}
    report = inspection.inspect(dataclasses.replace(stripes, splits=splits), "train")
    assert report.lines[0].startswith("train: 0 examples in 0 shards")


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: os.symlink("/dev/zero", path)])
def test_a_shard_that_is_not_a_file(stripes, make):
    path = os.path.join(stripes.data_dir, SHARD)
    os.remove(path)
    make(path)
    assert inspection.inspect(stripes, "train").problems == [f"{SHARD} is not a file"]
    with pytest.raises(DataError, match=f"{SHARD} is not a file"):
        dataset_info.load(stripes.data_dir, "stripes")


def test_the_tokens_of_wordpiece_text_are_shown(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    vocabulary = text_data.vocab_file(tmp_path)
    (folder / "train.txt").write_text("Good JJ\ndogs NN\n\nthe DT\n")
    raw, _ = text_data.read("token_files", folder, vocabulary, validation_fraction=0.0)
    written = writer.write(dataclasses.replace(raw, splits=raw.splits), str(tmp_path / "out"))
    lines = "\n".join(inspection.inspect(written, "train").lines)
    assert "first: [CLS] good dogs [SEP]\n    tag_ids = ['JJ', 'NN']" in lines


def test_the_class_of_wordpiece_text_is_shown(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    vocabulary = text_data.vocab_file(tmp_path)
    (folder / "train.tsv").write_text("sentence\tlabel\ngood dogs\t1\n")
    raw, _ = text_data.read("sst2", folder, vocabulary, validation_fraction=0.0)
    written = writer.write(raw, str(tmp_path / "out"))
    lines = "\n".join(inspection.inspect(written, "train").lines)
    assert "first: [CLS] good dogs [SEP]\n    label = positive" in lines


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    ("dataset", "text"), [("sst2", "sentence"), ("stsb", "sentence1\tsentence2")]
)
def test_a_split_without_labels_has_no_problem(tmp_path, session, dataset, text):
    folder = tmp_path / "texts"
    folder.mkdir()
    vocabulary = text_data.vocab_file(tmp_path)
    row = "good dogs\t" * text.count("sentence")
    label = "label" if dataset == "sst2" else "score"
    (folder / "train.tsv").write_text(f"{text}\t{label}\n{row}1\n")
    (folder / "test.tsv").write_text(f"{text}\n{row.strip()}\n")
    raw, _ = text_data.read(dataset, folder, vocabulary, validation_fraction=0.0)
    writer.write(raw, str(tmp_path / "out"))
    written = dataset_info.read(str(tmp_path / "out"))
    report = inspection.inspect(written, "test")
    assert not report.problems
    assert "  no labels: for prediction only" in report.lines
    assert report.lines[-1].startswith("  first: [CLS] good dogs [SEP]")
    inspection.check_contents(written, written.splits)
    batch = TokenPipeline(written).predict_input_fn("test")({"batch_size": 2})
    element = tf.compat.v1.data.make_one_shot_iterator(batch).get_next()
    assert set(session.run(element)) == {"input_ids", "input_mask", "segment_ids"}
