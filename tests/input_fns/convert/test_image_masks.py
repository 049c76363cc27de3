"""Folders of images and masks; the value of a pixel is its class."""

import io
import os
import shutil
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from input_fns import DataError
from input_fns.convert import boxes, mask_files
from tests import shapes_data
from tests.exif_files import chunk
from tests.marks import slow

SMALL = {"size": (20, 24), "side": (5, 9)}
NAMES = ("background", "circle", "square")


@pytest.fixture
def shapes(tmp_path):
    """A folder with 6 images of train and 3 of val, and their masks."""
    shapes_data.write_masks(tmp_path / "shapes", {"train": 6, "val": 3}, **SMALL)
    return tmp_path / "shapes"


def masks_of(split):
    """The masks of a split by the numbers of their images."""
    return {
        int(os.path.basename(row.name)[:-4]): np.asarray(Image.open(io.BytesIO(row.values["mask"])))
        for row in split
    }


def test_classes_of_the_pixels_are_those_of_the_masks(read, shapes):
    raw = read("image_masks", source=shapes)
    assert raw.annotations.class_names == NAMES
    assert list(raw.splits) == ["train", "validation"]
    drawn = shapes_data.drawings("train", 6, **SMALL)
    found = masks_of(raw.splits["train"])
    assert found.keys() == drawn.keys()
    for number, mask in found.items():
        is_void = number % 20 == 5
        drawing = drawn[number]
        expected = shapes_data.void_borders(drawing) if is_void else drawing.class_mask
        np.testing.assert_array_equal(mask, expected)
    total = sum(row.counts for row in raw.splits["train"])
    assert total.tolist() == [
        sum(int((mask == label).sum()) for mask in found.values()) for label in range(3)
    ]


@pytest.mark.parametrize("ignored", ["circle", "1"])
def test_a_class_can_be_ignored_by_name_or_value(read, shapes, ignored):
    before = masks_of(read("image_masks", source=shapes).splits["train"])
    raw = read("image_masks", source=shapes, ignored=(ignored, "255"))
    assert raw.annotations.class_names == ("background", "square")
    for number, mask in masks_of(raw.splits["train"]).items():
        np.testing.assert_array_equal(mask == 255, np.isin(before[number], (1, 255)))
        np.testing.assert_array_equal(mask == 1, before[number] == 2)


def test_values_of_classes_can_be_named(read, shapes):
    raw = read(
        "image_masks",
        source=shapes,
        class_names=("square", "ground", "circle", "border"),
        mask_values=("2", "0", "1", "255"),
    )
    drawn = shapes_data.drawings("train", 6, **SMALL)
    for number, mask in masks_of(raw.splits["train"]).items():
        np.testing.assert_array_equal(mask == 0, drawn[number].class_mask == 2)
    assert sum(row.counts for row in raw.splits["train"])[3] > 0


def test_a_value_of_no_class_is_broken_with_its_file(read, rows, shapes):
    path = sorted((shapes / "masks" / "train").iterdir())[2]
    mask = np.array(Image.open(path))
    mask[0, :5] = 7
    Image.fromarray(mask).save(path)
    good, (broken,) = rows(read("image_masks", source=shapes).splits["train"])
    assert len(good) == 5
    assert broken.name.endswith(path.name)
    assert str(path) in broken.reason
    assert "1 value(s) of no class: 7 (5 pixels). Name all classes" in broken.reason


def test_a_mask_of_another_size_is_broken(read, rows, shapes):
    path = sorted((shapes / "masks" / "train").iterdir())[0]
    Image.new("L", (10, 20)).save(path)
    _, (broken,) = rows(read("image_masks", source=shapes).splits["train"])
    assert broken.reason.endswith(
        "it has 24 x 20 pixels (width x height), and its annotations are of 10 x 20"
    )


def test_a_mask_of_0_and_255_is_not_taken_for_ignored(read, shapes):
    for path in (shapes / "masks").rglob("*.png"):
        mask = np.array(Image.open(path))
        Image.fromarray(np.where(mask == 1, 255, 0).astype(np.uint8)).save(path)
    options = {"source": shapes, "class_names": ("no", "yes")}
    with pytest.raises(DataError, match=r"0 and 255 only, and 255 is ignored.*--mask_values=0,255"):
        read("image_masks", **options)
    raw = read("image_masks", **options, mask_values=("0", "255"))
    assert {int(mask.max()) for mask in masks_of(raw.splits["train"]).values()} == {0, 1}


def test_masks_without_class_names_are_refused_with_their_values(read, shapes):
    (shapes / "classes.txt").unlink()
    with pytest.raises(
        DataError, match=r"need --class_names or .*; 9 of them have the values 0, 1, 2, 255"
    ):
        read("image_masks", source=shapes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ignored": ("vod",)}, "--ignored: 'vod' is neither a class nor a value"),
        ({"mask_values": ("0", "1")}, "--mask_values has 2 values for 3 class names"),
        ({"mask_values": ("0", "1", "-2")}, "'-2' is not an integer from 0 to 65535"),
        ({"mask_values": ("0", "1", "\u00b2")}, "is not an integer from 0 to 65535"),
        ({"ignored": ("99999",)}, "'99999' is not an integer from 0 to 65535"),
        ({"class_names": ("a",)}, "masks have 2 to 255 classes, and 1 are named"),
        ({"image_folder": "images"}, "need each other"),
        ({"image_folder": "images/{split}", "mask_folder": "masks"}, "and not the other"),
        ({"image_folder": "imgs", "mask_folder": "masks"}, "no folders of images and masks"),
    ],
)
def test_invalid_options(read, shapes, options, message):
    with pytest.raises(DataError, match=message):
        read("image_masks", source=shapes, **options)


def test_images_without_a_mask_and_masks_without_an_image_are_counted(read, shapes):
    first, second, *_ = sorted(os.listdir(shapes / "images" / "train"))
    os.remove(shapes / "images" / "train" / first)
    os.remove(shapes / "masks" / "train" / second)
    raw = read("image_masks", source=shapes)
    assert len(raw.splits["train"]) == 4
    assert raw.left_out.counts == {"images without a mask": 1, "masks without an image": 1}
    assert raw.left_out.names["images without a mask"] == [f"images/train/{second}"]


def test_a_split_without_masks_is_counted(read, shapes):
    shutil.rmtree(shapes / "masks" / "val")
    raw = read("image_masks", source=shapes, validation_fraction=0.0)
    assert list(raw.splits) == ["train"]
    assert raw.left_out.counts == {"images without a mask": 3}


def test_names_that_differ_by_a_suffix(read, shapes):
    """The names of Cityscapes."""
    for kind, folder, suffix in (("images", "left", "_image"), ("masks", "fine", "_ids")):
        for path in (shapes / kind / "train").iterdir():
            town = shapes / folder / "train" / "town"
            town.mkdir(parents=True, exist_ok=True)
            path.rename(town / f"{path.stem}{suffix}.png")
    options = {"image_folder": "left/{split}", "mask_folder": "fine/{split}"}
    with pytest.raises(DataError, match="Use --image_suffix and --mask_suffix"):
        read("image_masks", source=shapes, **options)
    options.update(image_suffix="_image", mask_suffix="_ids")
    raw = read("image_masks", source=shapes, validation_fraction=0.0, **options)
    assert len(raw.splits["train"]) == 6


@pytest.mark.parametrize(("images", "masks"), [("{}", "{}annot"), slow("{}/images", "{}/masks")])
def test_other_layouts(read, shapes, tmp_path, images, masks):
    for split in ("train", "val"):
        for kind, layout in (("images", images), ("masks", masks)):
            shutil.copytree(shapes / kind / split, tmp_path / "other" / layout.format(split))
    raw = read("image_masks", source=tmp_path / "other", class_names=NAMES)
    assert [len(split) for split in raw.splits.values()] == [6, 3]


def test_an_image_in_two_splits_is_refused(read, shapes):
    for kind in ("images", "masks"):
        shutil.rmtree(shapes / kind / "val")
        (shapes / kind / "val").symlink_to("train", target_is_directory=True)
    with pytest.raises(DataError, match=r"is in the split 'validation', and as .* in 'train'"):
        read("image_masks", source=shapes)


def test_a_mask_of_a_photo_with_exif_orientation_turns_with_it(read, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    for name in ("images", "masks"):
        (tmp_path / name).mkdir()
    Image.new("RGB", (12, 20)).save(tmp_path / "images" / "1.jpg", exif=exif)
    mask = np.zeros([20, 12], np.uint8)
    mask[:5, :3] = 1
    Image.fromarray(mask).save(tmp_path / "masks" / "1.png")
    raw = read("image_masks", source=tmp_path, class_names=("no", "yes"), validation_fraction=0.0)
    (row,) = raw.splits["train"]
    assert row.features["image"].shape == (12, 20, 3)
    assert row.features["mask"].shape == (12, 20, 1)
    assert masks_of([row])[1][:3, -5:].all()
    assert row.notes.corrected == {boxes.TURNED: 1}


# Values of mask files.

VALUES = np.array([[0, 1, 2, 3], [3, 2, 1, 0]])


def grey_png(values, bits):
    """A grey PNG of 1 to 16 bits, byte by byte."""
    header = struct.pack(">IIBBBBB", values.shape[1], values.shape[0], bits, 0, 0, 0, 0)
    rows = b""
    for row in values.tolist():
        number = 0
        for value in row:
            number = number << bits | value
        size = -(-bits * len(row) // 8)
        rows += b"\0" + (number << (8 * size - bits * len(row))).to_bytes(size, "big")
    data = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + data


def encoded(image, file_format="PNG", **options):
    file = io.BytesIO()
    image.save(file, file_format, **options)
    return file.getvalue()


@pytest.mark.parametrize("bits", [2, 4, 8, 16])
def test_grey_of_any_depth_has_its_numbers(bits):
    np.testing.assert_array_equal(mask_files.read_values(grey_png(VALUES, bits)), VALUES)


def test_grey_of_1_bit_has_0_and_1():
    found = mask_files.read_values(grey_png(VALUES % 2, 1))
    np.testing.assert_array_equal(found, VALUES % 2)


def test_16_bits_keep_large_numbers():
    """Such as those of instances in Cityscapes, which are not classes."""
    assert mask_files.read_values(grey_png(np.array([[26001, 7]]), 16)).tolist() == [[26001, 7]]


@pytest.mark.parametrize("bits", [2, 8])
def test_a_palette_has_the_numbers_of_its_colors(bits):
    image = Image.fromarray(VALUES.astype(np.uint8), "P")
    image.putpalette([200, 10, 10, 10, 200, 10, 10, 10, 200, 90, 90, 90])
    file = encoded(image, bits=bits, transparency=0)
    np.testing.assert_array_equal(mask_files.read_values(file), VALUES)


def test_colors_that_are_grey_count_as_grey():
    image = Image.fromarray(VALUES.astype(np.uint8)).convert("RGB")
    np.testing.assert_array_equal(mask_files.read_values(encoded(image)), VALUES)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (encoded(Image.new("RGB", (3, 3), "red")), "it has colors instead of class numbers"),
        (encoded(Image.new("L", (3, 3)), "JPEG"), "it is a JPEG, which changes values"),
        (encoded(Image.new("F", (3, 3)), "TIFF"), "its pixels are of the kind F"),
        (b"<html>", "cannot identify image"),
        (grey_png(VALUES, 8)[:50], "truncated"),
    ],
)
def test_a_file_that_is_not_a_mask(data, message):
    with pytest.raises((OSError, ValueError, SyntaxError), match=message):
        mask_files.read_values(data)
