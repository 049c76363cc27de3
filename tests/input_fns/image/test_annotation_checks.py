"""Inspection of boxes and masks: statistics, invalid records, and the contact sheet."""

import dataclasses
import io
import json
import os

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from common import drawing
from input_fns import DataError, convert, dataset_info
from input_fns.convert import writer
from input_fns.convert.options import Options
from input_fns.core import inspection
from tests import shapes_data
from tests.marks import slow

SMALL = {"size": (40, 48), "side": (9, 16)}


def prepare_shapes(folder, task):
    """Prepares drawn shapes; returns their metadata."""
    shapes_data.write_coco(folder / "source", {"train": 7, "val": 4}, **SMALL)
    options = Options("coco", source=str(folder / "source"), task=task)
    writer.write(convert.read(options), str(folder / "data"))
    return dataset_info.load(str(folder / "data"), "coco")


@pytest.fixture(scope="module")
def detection(tmp_path_factory):
    """A data set of boxes, which a test must not change."""
    return prepare_shapes(tmp_path_factory.mktemp("boxes"), "detection")


@pytest.fixture(scope="module")
def segmentation(tmp_path_factory):
    """A data set of masks, which a test must not change."""
    return prepare_shapes(tmp_path_factory.mktemp("masks"), "segmentation")


def changed(data, folder, change):
    """Returns a copy of a data set whose record 2 of train is changed."""
    (shard,) = data.splits["train"].shards
    records = list(tf.compat.v1.io.tf_record_iterator(data.path(shard)))
    example = tf.train.Example.FromString(records[2])
    change(example.features.feature)
    records[2] = example.SerializeToString()
    path = os.path.join(folder, "changed.tfrecord")
    with tf.io.TFRecordWriter(path) as file:
        for record in records:
            file.write(record)
    shard = dataclasses.replace(
        shard, name="changed.tfrecord", num_bytes=os.path.getsize(path), crc32=0
    )
    split = dataclasses.replace(data.splits["train"], shards=(shard,))
    return dataclasses.replace(data, data_dir=str(folder), splits={"train": split})


def set_bytes(name, value):
    """Returns a change of one feature; `value` may be a function of an array."""

    def change(features):
        (old,) = features[name].bytes_list.value
        features[name].bytes_list.value[0] = value if isinstance(value, bytes) else value(old)

    return change


def edit(dtype, index, value):
    """Returns a function that changes one number of stored bytes."""

    def apply(old):
        numbers = np.frombuffer(old, dtype).copy()
        numbers[index] = value
        return numbers.tobytes()

    return apply


def png(array):
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG")
    return file.getvalue()


def test_statistics_of_boxes(detection):
    report = inspection.inspect(detection, "train")
    assert report.problems == []
    drawn = shapes_data.drawings("train", 7, **SMALL).values()
    boxes = [box for drawing in drawn for box in drawing.boxes]
    assert report.lines[1] == f"  7 images, {len(boxes)} boxes"
    assert report.lines[2] == "  images: height 40, width 48"
    most = max(len(drawing.boxes) for drawing in drawn)
    assert report.lines[3].startswith(f"  boxes: up to {most} in an image, median ")
    assert "1 images without; 0 crowd or difficult" in report.lines[3]
    assert report.lines[4] == "  areas: 100% below 32 x 32, 0% below 96 x 96, 0% larger"
    circles = [box for d in drawn for box, label in zip(d.boxes, d.classes) if label == 0]
    name, count, *_ = report.lines[5].split()
    assert (name, int(count)) == ("circle", len(circles))


def test_statistics_of_masks(segmentation):
    report = inspection.inspect(segmentation, "train")
    assert report.problems == []
    masks = [d.class_mask for d in shapes_data.drawings("train", 7, **SMALL).values()]
    assert report.lines[3] == "  ignored: 0.00% of the pixels"
    for label, line in enumerate(report.lines[4:7]):
        share = np.mean([mask == label for mask in masks])
        images = sum((mask == label).any() for mask in masks)
        assert line.endswith(f"{share:.2%}, in {images} images")


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("boxes", edit("<f4", 3, 999), "999.0] (y0, x0, y1, x1) is not in its image of 48 x 40"),
        slow("boxes", edit("<f4", 0, np.nan), "is not in its image of 48 x 40"),
        ("classes", edit("<i4", 0, 2), "'classes' has values outside of -1 to 1"),
        slow("classes", edit("<i4", 0, -1), "its boxes do not end with rows of zeros for class -1"),
        slow("areas", edit("<f4", 0, 0), "'areas' or 'is_crowd' has invalid values"),
        slow("boxes", b"short", "'boxes' has 5 bytes instead of"),
        slow("image", b"\xff\xd8 no jpeg", "'image' is not a complete JPEG or PNG"),
    ],
)
def test_an_invalid_record_of_boxes_is_named(detection, tmp_path, name, value, problem):
    broken = changed(detection, tmp_path, set_bytes(name, value))
    found = inspection.inspect(broken, "train").problems
    assert found[0].startswith("changed.tfrecord, record 2 at byte ")
    assert problem in found[0]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (png(np.full([40, 48], 3, np.uint8)), "its mask has the value 3, and 3 classes"),
        slow(
            png(np.zeros([48, 40], np.uint8)),
            "its mask has 40 x 48 pixels, and its image 48 x 40",
        ),
    ],
)
def test_an_invalid_mask_is_named(segmentation, tmp_path, value, problem):
    broken = changed(segmentation, tmp_path, set_bytes("mask", value))
    broken = dataclasses.replace(
        broken,
        features={
            name: dataclasses.replace(feature, shape=(None, None, feature.shape[-1]))
            for name, feature in broken.features.items()
        },
    )
    (found,) = inspection.inspect(broken, "train").problems
    assert found.startswith("changed.tfrecord, record 2 at byte ")
    assert found.endswith(problem)


def test_other_counts_than_those_of_dataset_json_are_a_problem(detection):
    train = detection.kind.splits["train"]
    wrong = dataclasses.replace(train, counts=(0, *train.counts[1:]))
    annotations = dataclasses.replace(detection.kind, splits={"train": wrong})
    found = inspection.inspect(dataclasses.replace(detection, kind=annotations), "train")
    assert len(found.problems) == 1
    assert "as dataset.json says" in found.problems[0]


@pytest.mark.slow(cost=0.1)
def test_prepare_and_inspect_print_what_was_left_out(prepare, tmp_path, capsys):
    source, data_dir = tmp_path / "source", tmp_path / "data"
    shapes_data.write_coco(source, {"train": 7, "val": 4}, **SMALL)
    path = source / "annotations" / "instances_train.json"
    content = json.loads(path.read_text())
    content["annotations"][0]["bbox"] = [-5, -5, 9, 9]
    content["annotations"][1]["bbox"] = [99, 99, 9, 9]
    path.write_text(json.dumps(content))
    prepare("--dataset=coco", f"--source={source}", f"--data_dir={data_dir}")
    total = len(content["annotations"]) - 1
    expected = (
        f"7 images, {total} boxes; corrected: 1 clipped to the image; left out: 1 outside of the "
        "image"
    )
    out = capsys.readouterr().out
    assert f"train: {expected}" in out
    assert "train: outside of the image, for example: train/" in out
    prepare("--mode=inspect", f"--data_dir={data_dir}")
    out = capsys.readouterr().out
    assert f"  {expected}" in out
    assert f"images with their boxes: {data_dir}/contact_sheet.png" in out
    with Image.open(data_dir / "contact_sheet.png") as sheet:
        colors = {color for _, color in sheet.getcolors(2**24)}
    assert {drawing.class_color(label) for label in range(2)} <= colors


def test_masks_of_objects_are_drawn_and_checked(tmp_path):
    pytest.importorskip("pycocotools")
    data = prepare_shapes(tmp_path, "instance_segmentation")
    (label, picture), without = data.kind.contact_sheet(data), tmp_path / "without"
    assert label == "images with their boxes and masks"
    without.mkdir()
    boxes = prepare_shapes(without, "detection")
    assert picture != boxes.kind.contact_sheet(boxes)[1]
    assert inspection.inspect(data, "train").problems == []
    for value in (lambda old: b"9 9" + old[5:], lambda old: old.rpartition(b"\n")[0]):
        (problem,) = inspection.inspect(
            changed(data, tmp_path, set_bytes("outlines", value)), "train"
        ).problems
        assert "'outlines' has " in problem


def test_a_data_set_without_boxes_writes_nothing(prepare, tmp_path):
    source = tmp_path / "source"
    shapes_data.write_coco(source, {"train": 3}, **SMALL)
    path = source / "annotations" / "instances_train.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "annotations": []}))
    with pytest.raises(DataError, match=r"no image of the split 'train' of .* has a valid box"):
        prepare("--dataset=coco", f"--source={source}", f"--data_dir={tmp_path}/data")
    assert not (tmp_path / "data").exists()
