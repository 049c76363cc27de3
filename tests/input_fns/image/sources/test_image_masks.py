"""Folders of images and masks; the value of a pixel is its class."""

import io
import os
import shutil
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, ImageFilter

from input_fns import DataError
from input_fns.image.sources import boxes, decoded_images, mask_files
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
    assert raw.kind.class_names == NAMES
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
    assert raw.kind.class_names == ("background", "square")
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
    assert "1 value of no class: 7 (5 pixels). Name all classes" in broken.reason


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


# Masks as other tools write them.

TWO = {"class_names": ("background", "road"), "validation_fraction": 0.0}
BLACK_WHITE = {**TWO, "mask_values": ("0", "255")}


def disk(side=4):
    """A disk of 255, bool-like uint8 `[60, 60]`; drawn `side` times as large and averaged."""
    y, x = np.mgrid[: 60 * side, : 60 * side] / side
    drawn = ((y - 30) ** 2 + (x - 28) ** 2 < 18**2).reshape(60, side, 60, side)
    return (255 * drawn.mean(axis=(1, 3))).astype(np.uint8)


@pytest.fixture
def write(tmp_path):
    """Writes images and masks, uint8 arrays: `write({"a": mask}, extension=".png") -> folder`."""

    def to_folder(masks, extension=".png", images="images", mask_folder="masks"):
        for folder in (images, mask_folder):
            (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        for name, mask in masks.items():
            size = mask.shape[1], mask.shape[0]
            Image.new("RGB", size, "gray").save(tmp_path / images / f"{name}.jpg")
            Image.fromarray(mask).save(tmp_path / mask_folder / f"{name}{extension}")
        return tmp_path

    return to_folder


@pytest.mark.parametrize("side", [2, 4, 8])
def test_soft_edges_of_two_classes_get_the_nearer_one(read, write, side):
    soft = disk(side)
    between = int(((soft > 0) & (soft < 255)).sum())
    assert between > 60
    (row,) = read("image_masks", source=write({"a": soft}), **BLACK_WHITE).splits["train"]
    np.testing.assert_array_equal(masks_of_names([row])["a"], soft > 127)
    assert row.notes.corrected == {mask_files.SOFT_EDGES: between}


def masks_of_names(split):
    return {
        os.path.basename(row.name)[:-4]: np.asarray(Image.open(io.BytesIO(row.values["mask"])))
        for row in split
    }


def trimap(width):
    """A disk with a border of 128 that is `width` pixels wide."""
    hard = np.where(disk(1) > 127, 255, 0).astype(np.uint8)
    wide = Image.fromarray(hard).filter(ImageFilter.MaxFilter(2 * width + 1))
    return np.where((np.asarray(wide) > 0) & (hard == 0), 128, hard).astype(np.uint8)


@pytest.mark.parametrize(
    "mask",
    [
        trimap(1),
        trimap(3),
        np.where(np.arange(3600).reshape(60, 60) < 900, 128, disk(4)),  # a third area
        np.random.default_rng(1).integers(0, 256, [60, 60]),  # not a mask
    ],
    ids=["thin border", "border", "area", "photo"],
)
def test_a_third_value_is_no_soft_edge(read, write, rows, mask):
    raw = read("image_masks", source=write({"a": mask.astype(np.uint8)}), **BLACK_WHITE)
    _, (broken,) = rows(raw.splits["train"])
    assert " of no class: " in broken.reason
    assert "too many or too large areas for soft edges" in broken.reason


def test_soft_edges_of_three_classes_are_refused(read, write, rows):
    names = {"class_names": ("a", "b", "c"), "mask_values": ("0", "255", "7")}
    raw = read("image_masks", source=write({"a": disk(4)}), **names, validation_fraction=0.0)
    assert not rows(raw.splits["train"])[0]


def test_soft_edges_around_an_ignored_value_are_refused(read, write, rows):
    mask = np.maximum(disk(4), trimap(3) // 128 * 128)
    raw = read("image_masks", source=write({"a": mask}), **BLACK_WHITE, ignored=("128",))
    _, (broken,) = rows(raw.splits["train"])
    assert " of no class: " in broken.reason


def test_soft_edges_without_values_name_the_flag(read, write):
    with pytest.raises(DataError, match=r"0 and 255 and soft edges .*--mask_values=0,255"):
        read("image_masks", source=write({"a": disk(4)}), **TWO)


def test_masks_that_are_jpeg_are_named(read, write):
    source = write({"0": disk(1), "1": disk(1)}, ".jpg")
    with pytest.raises(DataError, match=r"masks are JPEG \(2 files, the first .*0\.jpg\).* PNG"):
        read("image_masks", source=source, **TWO)


def test_one_mask_that_is_a_jpeg_is_counted(read, write):
    source = write({"0": disk(1) // 255, "1": disk(1) // 255})
    Image.open(source / "masks" / "1.png").save(source / "masks" / "1.jpg")
    (source / "masks" / "1.png").unlink()
    (source / "masks" / "._0.png").write_bytes(b"\0\5")
    raw = read("image_masks", source=source, **TWO)
    assert len(list(raw.splits["train"])) == 1
    assert raw.left_out.counts == {
        "images without a mask": 1,
        "masks that are JPEG, which changes the values": 1,
        "hidden files and files of the system": 1,
    }


ROAD, VOID = (128, 64, 128), (224, 224, 192)


def colored(with_void=False):
    pixels = np.zeros([60, 60, 3], np.uint8)
    pixels[disk(1) > 127] = ROAD
    if with_void:
        pixels[:2] = VOID
    return pixels


@pytest.mark.parametrize("kind", ["RGB", "RGBA", "P"])
def test_colors_can_be_named(read, write, kind):
    source = write({"a": colored(with_void=True), "b": colored() * 0})
    path = source / "masks" / "a.png"
    image = Image.open(path)
    (image.quantize(3) if kind == "P" else image.convert(kind)).save(path)
    flags = {"mask_values": ("#804080", "#000000"), "ignored": ("#E0E0C0",)}
    names = {"class_names": ("road", "other"), "validation_fraction": 0.0}
    raw = read("image_masks", source=source, **names, **flags)
    found = masks_of_names(raw.splits["train"])
    np.testing.assert_array_equal(found["a"][2:] == 0, disk(1)[2:] > 127)
    assert (found["a"][:2] == 255).all()
    assert (found["b"] == 1).all()


TABLES = {
    "class_dict.csv": "name, r, g, b\r\nGround,0,0,0\r\nRoad,128,64,128\r\nVoid,224,224,192\r\n",
    "label_colors.txt": "0 0 0\t\tGround\n128 64 128\tRoad\n224 224 192\tVoid\n",
    "labelmap.txt": (
        "# label:color_rgb:parts:actions\nGround:0,0,0::\nRoad:128,64,128::\nVoid:224,224,192::\n"
    ),
}


@pytest.mark.parametrize("file", TABLES)
def test_a_file_of_colors_names_the_classes(read, write, file):
    source = write({"a": colored(with_void=True)})
    (source / file).write_text(TABLES[file])
    raw = read("image_masks", source=source, ignored=("Void",), validation_fraction=0.0)
    assert raw.kind.class_names == ("Ground", "Road")
    mask = masks_of_names(raw.splits["train"])["a"]
    np.testing.assert_array_equal(mask[2:], disk(1)[2:] > 127)
    assert (mask[:2] == 255).all()
    assert not raw.left_out


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Road:128,64,300::", r"labelmap\.txt, line 2: 'Road:128,64,300::' has no name and color"),
        ("Road", "line 2: 'Road' has no name and color"),
        ("Road:0,0,0::", "two classes have the same color"),
        ("Ground:1,2,3::", "'Ground' occurs more than once"),
    ],
)
def test_an_invalid_file_of_colors(read, write, line, message):
    source = write({"a": colored()})
    (source / "labelmap.txt").write_text(f"Ground:0,0,0::\n{line}\n")
    with pytest.raises(DataError, match=message):
        read("image_masks", source=source)


def test_one_color_on_black_is_the_class_beside_the_background(read, write):
    raw = read("image_masks", source=write({"a": colored(), "b": colored() * 0}), **TWO)
    found = masks_of_names(raw.splits["train"])
    np.testing.assert_array_equal(found["a"], disk(1) > 127)
    assert not found["b"].any()


@pytest.mark.parametrize(
    ("names", "with_void"), [(("road", "sky"), False), (("background", "road"), True)]
)
def test_colors_that_are_not_named_are_listed(read, write, names, with_void):
    with pytest.raises(
        DataError, match=r"#000000 \(\d+\.\d%\), #804080 .*--mask_values=#000000,#80"
    ):
        read("image_masks", source=write({"a": colored(with_void)}), class_names=names)


@pytest.mark.parametrize("values", [("0", "#804080"), ("0", "1")])
def test_numbers_are_no_colors(read, write, values):
    with pytest.raises(DataError, match=r"--mask_values has both|have colors instead of numbers"):
        read("image_masks", source=write({"a": colored()}), **TWO, mask_values=values)


def test_a_palette_with_one_color_for_two_numbers_is_no_mask_of_colors(read, write, rows):
    source = write({"a": colored(), "b": colored()})
    mask = Image.fromarray(disk(1) // 255, "P")
    mask.putpalette([0] * 6)
    mask.save(source / "masks" / "b.png")
    _, (broken,) = rows(read("image_masks", source=source, **TWO).splits["train"])
    assert "its palette has the same color for several numbers" in broken.reason


@pytest.mark.parametrize(
    ("images", "masks"),
    [
        ("Images/Train", "MASKS/training"),
        ("TRAIN/images", "TRAIN/Masks"),
        ("Train", "Trainannot"),
        ("images/train_images", "masks/train_masks"),
    ],
)
def test_folders_of_any_case_and_synonym(read, write, images, masks):
    source = write({"a": disk(1) // 255}, images=images, mask_folder=masks)
    raw = read("image_masks", source=source, **TWO)
    assert [row.name for row in raw.splits["train"]] == [f"{images}/a.jpg"]


def test_a_folder_beside_those_of_splits_is_refused(read, write):
    for split in ("train", "rest"):
        source = write(
            {split: disk(1) // 255}, images=f"images/{split}", mask_folder=f"masks/{split}"
        )
    with pytest.raises(DataError, match="rest is not that of a split, while train is 'train'"):
        read("image_masks", source=source, **TWO)
    raw = read("image_masks", source=source, skip=("rest",), **TWO)
    assert len(raw.splits["train"]) == 1
    assert raw.left_out.counts == {"named by --skip": 2}


def test_two_folders_of_one_split_are_refused(read, write):
    for split in ("train", "Training"):
        source = write(
            {split: disk(1) // 255}, images=f"images/{split}", mask_folder=f"masks/{split}"
        )
    with pytest.raises(
        DataError, match=r"are both of the split 'train'\. Leave one out with --skip"
    ):
        read("image_masks", source=source, **TWO)


def test_splits_deeper_than_the_layout_are_not_joined(read, write):
    source = write({"a": disk(1) // 255}, images="images/city/val", mask_folder="masks/city/val")
    with pytest.raises(DataError, match=r"city/val, which .* --image_folder=city/\{split\}"):
        read("image_masks", source=source, **TWO)


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
        (encoded(Image.new("RGB", (3, 3), "red")), "it has colors instead of class numbers. Name"),
        (encoded(Image.new("L", (3, 3)), "JPEG"), "it is a JPEG, which changes values"),
        (encoded(Image.new("F", (3, 3)), "TIFF"), "its pixels are of the kind F"),
        (b"<html>", "cannot identify image"),
        (grey_png(VALUES, 8)[:50], "truncated"),
    ],
)
def test_a_file_that_is_not_a_mask(data, message):
    with pytest.raises((OSError, ValueError, SyntaxError), match=message):
        mask_files.read_values(data)


def test_palettes_that_differ_are_refused(read, shapes):
    def write(path, first, second, numbers):
        mask = Image.fromarray(np.resize(np.array(numbers, np.uint8), [20, 24]), "P")
        mask.putpalette([*first, *second])
        mask.save(path)

    black, red = (0, 0, 0), (255, 0, 0)
    paths = sorted((shapes / "masks").rglob("*.png"))
    for path in paths:
        write(path, black, red, [0, 0, 1])
    options = {"source": shapes, "class_names": ("background", "circle"), "ignored": ("255",)}
    assert read("image_masks", **options).splits["train"]
    rules = read("image_masks", **options).splits["train"].rules
    write(paths[-1], red, black, [1, 1, 0])  # the same colors
    image = decoded_images.StoredImage(b"", "png", 24, 20)
    with pytest.raises(ValueError, match="the number 0 has the color #ff0000, and #000000 in"):
        mask_files.read_mask(str(paths[-1]), image, rules)
    with pytest.raises(DataError, match=r"the number 0 has the color #ff0000 in .*, and #000000"):
        read("image_masks", **options)
    raw = read("image_masks", **options, mask_values=("#000000", "#ff0000"))
    (counts,) = {tuple(row.counts) for split in raw.splits.values() for row in split}
    assert counts == (320, 160)
    assert read("image_masks", **options, mask_values=("0", "1")).splits["train"]
