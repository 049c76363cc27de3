"""Masks with the number of an object in each pixel: Pascal VOC, one class, Cityscapes."""

import functools
import io

import numpy as np
import pytest
from PIL import Image

from input_fns import DataError
from input_fns.image.sources import instance_files, mask_files
from tests import shapes_data
from tests.shapes_data import stored

SMALL = {"size": (20, 24), "side": (5, 9)}
NAMES = ("background", "circle", "square")
TASK = "instance_segmentation"


def numbers(drawing, dtype=np.uint8, void=False):
    """Returns the number of a shape from 1 in each pixel, 0 elsewhere, 255 around shapes."""
    around = shapes_data.void_borders(drawing) == 255
    return np.where(around & void, 255, drawing.object_mask).astype(dtype)


def write(folder, values):
    """Writes masks `{image id: [height, width]}`."""
    folder.mkdir(parents=True, exist_ok=True)
    for image_id, mask in values.items():
        Image.fromarray(mask).save(folder / shapes_data.file_name(image_id))


@pytest.fixture
def read(read):
    """Reads a data set of objects, all images in "train"."""
    return functools.partial(read, task=TASK, validation_fraction=0.0)


@pytest.fixture
def drawn():
    return shapes_data.drawings("train", 7, **SMALL)


@pytest.fixture
def voc(tmp_path):
    """A folder of Pascal VOC with masks of 7 images."""
    shapes_data.write_voc_objects(tmp_path / "voc", {"train": 7}, **SMALL)
    return tmp_path / "voc"


@pytest.fixture
def images(tmp_path, drawn):
    """A folder of images, for masks beside them."""
    write(tmp_path / "own" / "images", {i: d.image for i, d in drawn.items()})
    return tmp_path / "own"


def by_image(raw):
    """Returns `{image id: row}`; rows are shuffled."""
    return {int(row.name.rpartition("/")[2][:-4]): row for row in raw.splits["train"]}


def names_of(row, raw):
    return [raw.kind.class_names[label] for label in stored(row, "classes") if label >= 0]


def test_objects_of_voc_are_those_of_coco(read, voc, tmp_path):
    shapes_data.write_coco(tmp_path / "coco", {"train": 7}, **SMALL)
    coco = read("coco", source=tmp_path / "coco")
    raw = read("voc", source=voc, class_names=NAMES)
    assert raw.kind.class_names == coco.kind.class_names == ("circle", "square")
    assert raw.properties["category_ids"] == [1, 2]
    for row, expected in zip(raw.splits["train"], coco.splits["train"]):
        for values in (row.values, expected.values):
            del values["image_id"]  # from 1, and that of the JSON
        assert row.values == expected.values
        assert not row.notes.corrected
        assert not row.notes.left_out


@pytest.mark.parametrize("folders", [("SegmentationObjectPNG", "SegmentationClassPNG")])
def test_folders_of_labelme_have_arrays_beside_the_masks(read, voc, folders):
    for name in ("SegmentationObject", "SegmentationClass"):
        (voc / name).rename(voc / f"{name}PNG")
        (voc / name).mkdir()
        np.save(voc / name / "0000005.npy", np.zeros([20, 24], np.int32))
    raw = read("voc", source=voc, class_names=NAMES)
    assert len(raw.splits["train"]) == 7


def test_borders_of_voc_belong_to_no_object(read, voc, drawn):
    write(voc / "SegmentationObject", {i: numbers(d, void=True) for i, d in drawn.items()})
    raw = read("voc", source=voc, class_names=NAMES)
    for image_id, row in by_image(raw).items():
        drawing = drawn[image_id]
        np.testing.assert_array_equal(stored(row, "boxes")[: len(drawing.boxes)], drawing.boxes)


def test_an_object_has_the_class_of_most_of_its_pixels(read, voc, drawn):
    image_id, drawing = next(iter(drawn.items()))
    assert len(drawing.classes) > 0
    classes = drawing.class_mask
    y, x = np.argwhere(drawing.masks[0])[0]
    classes[y, x] = 3 - classes[y, x]  # a pixel of the other class
    write(voc / "SegmentationClass", {image_id: classes})
    raw = read("voc", source=voc, class_names=NAMES)
    row = by_image(raw)[image_id]
    assert names_of(row, raw) == [NAMES[1 + label] for label in drawing.classes]


def test_an_object_without_a_class_is_left_out_and_counted(read, voc, drawn):
    image_id, drawing = next(iter(drawn.items()))
    write(voc / "SegmentationClass", {image_id: drawing.class_mask * ~drawing.masks[0]})
    raw = read("voc", source=voc, class_names=NAMES)
    row = by_image(raw)[image_id]
    assert len(names_of(row, raw)) == len(drawing.classes) - 1
    assert row.notes.left_out == {instance_files.OTHER_CLASS: 1}


def test_a_missing_mask_of_classes_is_a_broken_image(read, rows, voc, drawn):
    name = shapes_data.file_name(next(iter(drawn)))
    (voc / "SegmentationClass" / name).unlink()
    good, (broken,) = rows(read("voc", source=voc, class_names=NAMES).splits["train"])
    assert len(good) == 6
    assert f"SegmentationObject/{name}" in broken.reason


def test_masks_of_two_sizes_are_a_broken_image(read, rows, voc, drawn):
    image_id, drawing = next(iter(drawn.items()))
    write(voc / "SegmentationClass", {image_id: drawing.class_mask[:-1]})
    _, (broken,) = rows(read("voc", source=voc, class_names=NAMES).splits["train"])
    assert "has 24 x 19 pixels, and the mask of objects 24 x 20" in broken.reason


def test_the_first_class_is_the_background(read, voc):
    with pytest.raises(DataError, match="the first of --class_names must be the background"):
        read("voc", source=voc, class_names=NAMES[1:] + NAMES[:1], mask_values=tuple("120"))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_objects_of_one_class(read, images, drawn, dtype):
    write(images / "masks", {i: numbers(d, dtype) for i, d in drawn.items()})
    raw = read("image_masks", source=images, class_names=("shape",))
    for image_id, row in by_image(raw).items():
        drawing = drawn[image_id]
        count = len(drawing.boxes)
        np.testing.assert_array_equal(stored(row, "boxes")[:count], drawing.boxes)
        np.testing.assert_array_equal(stored(row, "areas")[:count], drawing.masks.sum(axis=(1, 2)))
        assert names_of(row, raw) == ["shape"] * count


def test_colors_of_objects(read, images, drawn):
    palette = np.random.default_rng(1).integers(1, 256, [256, 3], np.uint8)
    palette[0] = 0
    write(images / "masks", {i: palette[numbers(d)] for i, d in drawn.items()})
    raw = read("image_masks", source=images, class_names=("shape",))
    for image_id, row in by_image(raw).items():
        drawing = drawn[image_id]
        assert len(names_of(row, raw)) == len(drawing.boxes)


@pytest.mark.parametrize(("values", "objects"), [([0, 255], 1), ([1, 255], 1), ([1, 254, 255], 3)])
def test_255_is_a_border_if_it_follows_no_number(read, images, drawn, values, objects):
    mask = np.zeros([20, 24], np.uint8)
    mask[5, : len(values)] = values
    write(images / "masks", dict.fromkeys(drawn, mask))
    raw = read("image_masks", source=images, class_names=("shape",))
    row = next(iter(raw.splits["train"]))
    assert len(names_of(row, raw)) == objects
    assert row.notes.corrected == ({instance_files.VOID_PIXELS: 1} if values == [1, 255] else {})


@pytest.mark.parametrize(("ignored", "objects"), [(("7",), 1), ((), 2)])
def test_ignored_numbers_are_no_objects(read, images, drawn, ignored, objects):
    mask = np.zeros([20, 24], np.uint8)
    mask[5, :2] = 1, 7
    write(images / "masks", dict.fromkeys(drawn, mask))
    raw = read("image_masks", source=images, class_names=("shape",), ignored=ignored)
    assert len(names_of(next(iter(raw.splits["train"])), raw)) == objects


def test_a_blue_object_of_a_mask_in_colors_is_no_border(read, voc, images, drawn):
    """The number of the color is 255."""
    mask = np.zeros([20, 24, 3], np.uint8)
    mask[5, :3], mask[9, :3] = (0, 0, 255), (0, 0, 9)
    for folder in (voc / "SegmentationObject", images / "masks"):
        write(folder, dict.fromkeys(drawn, mask))
    for raw in (
        read("voc", source=voc, class_names=NAMES),
        read("image_masks", source=images, class_names=("shape",)),
    ):
        row = next(iter(raw.splits["train"]))
        missing = sum(row.notes.left_out.values())  # without a class in the other mask of VOC
        assert len(names_of(row, raw)) + missing == 2
        assert not row.notes.corrected


def test_numbers_of_cityscapes_have_the_class(read, images, drawn):
    """24001: the second person; 24: a group of persons; 33000: a bicycle; 7: road."""
    mask = np.zeros([20, 24], np.uint16)
    mask[5, :7] = 24000, 24001, 24, 33000, 7, 26000, 26000
    write(images / "masks", dict.fromkeys(drawn, mask))
    raw = read(
        *("image_masks",),
        source=images,
        class_names=("person", "car"),
        mask_values=("24", "26"),
        label_divisor=1000,
    )
    row = next(iter(raw.splits["train"]))
    assert names_of(row, raw) == ["person", "person", "person", "car"]
    assert stored(row, "is_crowd")[:4].tolist() == [1, 0, 0, 0]
    assert stored(row, "boxes")[3].tolist() == [5, 5, 6, 7]
    assert row.notes.left_out == {instance_files.OTHER_CLASS: 1}
    assert raw.properties["category_ids"] == [24, 26]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "need their class, as --class_names=person; of several"),
        ({"class_names": ("a", "b")}, "need their class"),
        ({"class_names": ("a",), "mask_values": ("1",)}, "need their class"),
        ({"class_names": ("a", "b"), "label_divisor": 1000}, "there are 2 names and 0 values"),
        ({"class_names": ("a",), "ignored": ("void",)}, "--ignored: 'void' is not an integer"),
    ],
)
def test_missing_classes_are_one_error(read, images, drawn, options, message):
    write(images / "masks", {i: numbers(d) for i, d in drawn.items()})
    with pytest.raises(DataError, match=message):
        read("image_masks", source=images, **options)


def test_a_broken_mask_is_a_broken_image(read, rows, images, drawn):
    write(images / "masks", {i: numbers(d) for i, d in drawn.items()})
    path = images / "masks" / shapes_data.file_name(next(iter(drawn)))
    path.write_bytes(path.read_bytes()[:60])
    raw = read("image_masks", source=images, class_names=("shape",))
    good, (broken,) = rows(raw.splits["train"])
    assert len(good) == 6
    assert broken.reason.startswith(f"its mask {path}")


def test_run_lengths_of_scattered_pixels_are_read_back(read, images, drawn):
    """Objects of several parts, at all borders of the mask."""
    mask = np.random.default_rng(5).integers(0, 4, [20, 24]).astype(np.uint8)
    write(images / "masks", dict.fromkeys(drawn, mask))
    raw = read("image_masks", source=images, class_names=("shape",))
    (item, *_) = raw.splits["train"].items
    for number, box in enumerate(item.found, start=1):
        found = instance_files.coco_masks.pixels(box.outline, mask.shape, item.notes)
        np.testing.assert_array_equal(found, mask == number)


def test_values_are_those_of_the_file():
    content = io.BytesIO()
    Image.fromarray(np.array([[0, 26001]], np.uint16)).save(content, "PNG")
    assert mask_files.read_values(content.getvalue()).tolist() == [[0, 26001]]
