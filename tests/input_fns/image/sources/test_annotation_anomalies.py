"""Boxes and masks from which nothing can be learned are an error, odd ones a warning."""

import json
import os

import numpy as np
import pytest
from PIL import Image

from input_fns import DataError, convert
from input_fns.convert import writer
from input_fns.convert.options import Options
from input_fns.image.sources import boxes
from tests import shapes_data, written

SMALL = {"size": (20, 24), "side": (5, 9)}


@pytest.fixture
def shapes(tmp_path):
    """A folder with 6 images of train and 3 of val."""
    shapes_data.write_coco(tmp_path / "shapes", {"train": 6, "val": 3}, **SMALL)
    return tmp_path / "shapes"


@pytest.fixture
def change(shapes):
    """Changes the annotations of a split: `change("train", lambda number, annotation: ...)`."""

    def apply(split, edit):
        path = shapes / "annotations" / f"instances_{split}.json"
        content = json.loads(path.read_text())
        for number, annotation in enumerate(content["annotations"]):
            edit(number, annotation)
        path.write_text(json.dumps(content))

    return apply


@pytest.fixture
def prepared(shapes, tmp_path):
    """Converts the folder as prepare_data.py does: `prepared() -> warnings`."""

    def run(task="detection"):
        options = Options("coco", source=str(shapes), task=task)
        return "\n".join(written.with_warnings(options, tmp_path / "data"))

    return run


def crowd(number, annotation):
    annotation["iscrowd"] = 1


def fractions(number, annotation):
    annotation["bbox"] = [0.1, 0.2, 0.5, 0.25]


def test_a_plain_data_set_has_no_anomaly(prepared):
    assert prepared() == ""


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (crowd, r"all 11 boxes of 'train' are a crowd \(iscrowd=1\) or difficult.* CVAT writes"),
        (fractions, "100% of the boxes of 'train' are inside the first pixel.*fractions. Write"),
    ],
)
def test_boxes_that_cannot_be_learned_from_are_an_error(prepared, change, tmp_path, edit, message):
    change("train", edit)
    with pytest.raises(DataError, match=message):
        prepared()
    assert list((tmp_path / "data").iterdir()) == []


def test_centers_in_fractions_are_an_error(prepared, change):
    change("train", lambda number, box: box.update(bbox=[0.5, 0.75, 0.8, 0.4]))
    with pytest.raises(DataError, match="100% of the boxes of 'train' are inside the first two"):
        prepared()


def test_a_part_of_the_boxes_in_fractions_is_an_error(prepared, change):
    change("train", lambda number, box: number < 3 and fractions(number, box))
    with pytest.raises(DataError, match="27% of the boxes of 'train' are inside"):
        prepared()


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (crowd, "boxes of 'validation' are a crowd (iscrowd=1) or difficult"),
        (fractions, "100% of the boxes of 'validation' are inside the first pixel"),
    ],
)
def test_boxes_of_an_evaluation_are_a_warning(prepared, change, edit, message):
    change("val", edit)
    assert message in prepared()


def test_small_boxes_elsewhere_are_no_fractions(prepared, change):
    change("train", lambda number, box: box.update(bbox=[3, 4, 1, 1]))
    assert prepared() == ""


def test_boxes_below_a_pixel_are_a_warning(prepared, change):
    change("train", lambda number, box: box.update(bbox=[3, 4, 0.5, 0.5]))
    assert "100% of the boxes of 'train' are smaller than a pixel" in prepared()


def test_a_few_crowds_are_no_anomaly(prepared, change):
    change("train", lambda number, box: box.update(iscrowd=int(number == 0)))
    assert prepared() == ""


def test_corners_instead_of_sizes_are_a_warning(prepared, change):
    def to_corners(number, annotation):
        x, y, width, height = annotation["bbox"]
        annotation["bbox"] = [x, y, x + width, y + height]

    change("train", to_corners)
    assert "boxes of 'train' reached out of their image" in prepared()


def test_class_names_that_may_be_one_are_a_warning(prepared, shapes, change):
    path = shapes / "annotations" / "instances_train.json"
    content = json.loads(path.read_text())
    names = [category["name"] for category in content["categories"]]
    content["categories"].append({"id": 99, "name": names[0].upper()})
    path.write_text(json.dumps(content))
    change("train", lambda number, box: number == 0 and box.update(category_id=99))
    assert f"the classes '{names[0]}' and '{names[0].upper()}' may be one class" in prepared()


@pytest.mark.parametrize(("excess", "is_counted"), [(0.01, False), (0.49, False), (0.5, True)])
def test_boxes_that_lose_a_fraction_of_a_pixel_are_not_counted(excess, is_counted):
    notes = boxes.Notes()
    assert boxes.fix((2.0, 3.0, 20 + excess, 7.0), (20, 24), notes) == (2.0, 3.0, 20, 7.0)
    assert notes.corrected[boxes.CLIPPED] == is_counted


def test_many_boxes_that_are_left_out_are_a_warning(prepared, change):
    change("train", lambda number, box: box.update(bbox=[3, 4, 5, 0 if number < 4 else 5]))
    expected = "4 boxes of 'train' are left out, 7 are stored: of zero width or height"
    assert expected in prepared()


def test_many_annotations_of_no_category_are_a_warning(prepared, change):
    change("train", lambda number, box: number < 6 and box.update(category_id=0))
    assert "6 annotations of a category that is not in the JSON are left out" in prepared()


def test_many_images_that_are_skipped_are_a_warning(prepared, shapes):
    for name in sorted(os.listdir(shapes / "train"))[:2]:
        (shapes / "train" / name).write_bytes(b"<html>")
    found = prepared()
    assert "2 of 6 images of 'train' are skipped; the first is " in found
    assert "it is not an image" in found


def test_a_split_without_boxes_is_a_warning(prepared, shapes):
    path = shapes / "annotations" / "instances_val.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "annotations": []}))
    assert "'validation' has no box" in prepared()


def no_mask(number, annotation):
    annotation["segmentation"] = []


def test_masks_of_background_are_an_error_with_the_reason(prepared, change, tmp_path):
    change("train", no_mask)
    message = (
        "all pixels of 'train' have the class 'background' or are ignored, and none circle, "
        "square; left out: 11 without a polygon or run lengths"
    )
    with pytest.raises(DataError, match=message):
        prepared("segmentation")
    assert list((tmp_path / "data").iterdir()) == []


def test_masks_of_background_in_an_evaluation_are_a_warning(prepared, change):
    change("val", no_mask)
    assert "all pixels of 'validation' have the class 'background'" in prepared("segmentation")


@pytest.fixture
def write_masks(tmp_path):
    """Writes a folder of 3 images and masks: `write_masks(mask) -> folder`."""

    def write(mask):
        for name in ("images", "masks"):
            (tmp_path / "source" / name).mkdir(parents=True)
        for number in range(3):
            pixels = np.random.default_rng(number).integers(0, 256, [9, 11, 3], np.uint8)
            Image.fromarray(pixels).save(tmp_path / "source" / "images" / f"{number}.png")
            Image.fromarray(mask).save(tmp_path / "source" / "masks" / f"{number}.png")
        return tmp_path / "source"

    return write


def flags_of(source, tmp_path):
    names = ["--class_names=no,yes", "--validation_fraction=0"]
    return ["--dataset=image_masks", f"--source={source}", f"--data_dir={tmp_path}/data", *names]


def test_masks_that_are_all_ignored_are_an_error(prepare, write_masks, tmp_path):
    source = write_masks(np.full([9, 11], 255, np.uint8))
    with pytest.raises(DataError, match="'train' has no pixel of a class: all are ignored"):
        prepare(*flags_of(source, tmp_path))


def test_masks_that_are_nearly_all_ignored_are_a_warning(prepare, write_masks, tmp_path, capsys):
    mask = np.full([9, 11], 255, np.uint8)
    mask[0, :4] = [0, 1, 0, 1]
    prepare(*flags_of(write_masks(mask), tmp_path))
    assert "warning: 96.0% of the pixels of 'train' are ignored" in capsys.readouterr().out


@pytest.mark.slow(cost=0.1)
def test_an_inspection_prints_the_same_warnings(prepare, prepared, change, tmp_path, capsys):
    change("val", crowd)
    warnings = prepared()
    prepare("--mode=inspect", f"--data_dir={tmp_path}/data")
    printed = capsys.readouterr().out
    assert f"warning: {warnings}\n" in printed
    assert "no problem found" not in printed


@pytest.mark.slow(cost=0.1)
def test_an_inspection_fails_on_what_cannot_be_learned_from(prepare, shapes, change, tmp_path):
    change("train", crowd)
    raw = convert.read(Options("coco", source=str(shapes), task="detection"))
    writer.write(raw, str(tmp_path / "data"))
    with pytest.raises(SystemExit):
        prepare("--mode=inspect", f"--data_dir={tmp_path}/data")


@pytest.mark.slow(cost=0.1)
def test_the_file_of_ids_of_images_is_checked(prepare, shapes, tmp_path, capsys):
    for split in ("train", "val"):
        path = shapes / "annotations" / f"instances_{split}.json"
        content = json.loads(path.read_text())
        for image in content["images"]:
            image["id"] = f"image {image['id']}"
        for annotation in content["annotations"]:
            annotation["image_id"] = f"image {annotation['image_id']}"
        path.write_text(json.dumps(content))
    data_dir = tmp_path / "data"
    prepare("--dataset=coco", f"--source={shapes}", f"--data_dir={data_dir}")
    (path,) = data_dir.glob("image_ids-*.json")
    assert len(json.loads(path.read_text())) == 9
    prepare("--mode=inspect", f"--data_dir={data_dir}")
    assert "no problem found" in capsys.readouterr().out
    path.write_text("[]")
    with pytest.raises(SystemExit):
        prepare("--mode=inspect", f"--data_dir={data_dir}")
    assert f"problem: {path} has changed" in capsys.readouterr().out
