"""YOLO: boxes and polygons in text files, in the layouts of several programs."""

import functools
import pathlib
import shutil

import numpy as np
import pytest
from PIL import Image

from common.instance_masks import from_rle
from input_fns import DataError
from input_fns.image.annotated_kind import unpack_outlines
from input_fns.image.sources import boxes
from tests import shapes_data
from tests.shapes_data import stored

SMALL = {"size": (20, 24), "side": (5, 9)}
NAMES = "circle\nsquare\n"


@pytest.fixture
def shapes(tmp_path):
    """A folder with 6 images of train and 3 of val."""
    shapes_data.write_yolo(tmp_path / "shapes", {"train": 6, "val": 3}, **SMALL)
    return tmp_path / "shapes"


@pytest.fixture
def read_yolo(read_detection, shapes):
    """Reads the folder; see `read_detection`."""
    return functools.partial(read_detection, "yolo", source=shapes)


def first_text(shapes):
    return sorted((shapes / "labels" / "train").iterdir())[0]


def first_box(rows):
    """Returns the first box of the image of `first_text`; rows are shuffled."""
    return stored(min(rows, key=lambda row: row.name), "boxes")[0]


def images_of(raw):
    """Returns `{split: names of the images}`."""
    return {
        split: {pathlib.Path(path).name for path in found.paths}
        for split, found in raw.splits.items()
    }


def test_boxes_are_those_of_coco(read_yolo, read_detection, tmp_path):
    raw, rows, notes = read_yolo()
    assert raw.kind.class_names == shapes_data.CLASS_NAMES
    assert raw.properties["category_ids"] == [0, 1]
    assert not notes.corrected
    assert not notes.left_out
    shapes_data.write_coco(tmp_path / "coco", {"train": 6, "val": 3}, **SMALL)
    _, expected, _ = read_detection("coco", source=tmp_path / "coco")
    for row, other in zip(rows, expected):
        for name in ("boxes", "classes", "is_crowd"):
            np.testing.assert_allclose(stored(row, name), stored(other, name), atol=1e-4)


@pytest.mark.parametrize("task", ["instance_segmentation", "segmentation"])
def test_polygons_are_those_of_coco(read, tmp_path, task):
    pytest.importorskip("pycocotools")
    for kind in ("yolo", "coco"):
        more = {"polygons": True} if kind == "yolo" else {}
        getattr(shapes_data, f"write_{kind}")(tmp_path / kind, {"train": 6}, **more, **SMALL)
    found, expected = (
        read(kind, source=tmp_path / kind, task=task, class_names=("square",))
        for kind in ("yolo", "coco")
    )
    assert found.kind.class_names == expected.kind.class_names
    name = "mask" if task == "segmentation" else "outlines"
    for row, other in zip(found.splits["train"], expected.splits["train"]):
        assert row.values[name] == other.values[name]


def test_the_area_of_a_polygon_is_that_of_its_mask(read, tmp_path):
    pytest.importorskip("pycocotools")
    shapes_data.write_yolo(tmp_path / "yolo", {"train": 6}, polygons=True, **SMALL)
    raw = read("yolo", source=tmp_path / "yolo", task="instance_segmentation")
    for row in raw.splits["train"]:
        masks = unpack_outlines(row.values["outlines"])
        areas = stored(row, "areas")[: len(masks)]
        assert areas.tolist() == [from_rle(mask).sum() for mask in masks]


def roboflow(shapes):
    for split, theirs in (("train", "train"), ("val", "valid")):
        for part in ("images", "labels"):
            (shapes / theirs).mkdir(exist_ok=True)
            shutil.move(shapes / part / split, shapes / theirs / part)
    (shapes / "data.yaml").write_text(
        "train: ../train/images\nval: ../valid/images\ntest: ../test/images\nnc: 2\n"
        "names: ['circle', 'square']\nroboflow:\n  version: 1\n"
    )
    (shapes / "README.roboflow.txt").write_text("Exported\n")


def cvat(shapes):
    (shapes / "data.yaml").unlink()
    (shapes / "obj.names").write_text(NAMES)
    (shapes / "obj.data").write_text("classes = 2\nnames = data/obj.names\n")
    for split, theirs in (("train", "train"), ("val", "valid")):
        names = sorted(path.name for path in (shapes / "images" / split).iterdir())
        (shapes / "obj_data").mkdir(exist_ok=True)
        for part in ("images", "labels"):
            for path in (shapes / part / split).iterdir():
                shutil.move(path, shapes / "obj_data")
        lines = (f"data/obj_data/{name}\n" for name in names)
        (shapes / f"{theirs}.txt").write_text("".join(lines))
    for part in ("images", "labels"):
        shutil.rmtree(shapes / part)


def folders_of_cvat(shapes):
    (shapes / "data.yaml").unlink()
    (shapes / "obj.names").write_text(NAMES)
    for split, theirs in (("train", "Train"), ("val", "Validation")):
        shutil.move(shapes / "images" / split, shapes / f"obj_{theirs}_data")
        for path in (shapes / "labels" / split).iterdir():
            shutil.move(path, shapes / f"obj_{theirs}_data")
    for part in ("images", "labels"):
        shutil.rmtree(shapes / part)


def names_by_number(shapes):
    (shapes / "data.yaml").write_text(
        "path: ../datasets/shapes\ntrain: images/train\nval: [images/val]\n"
        "names:\n  0: circle\n  1: square\n"
    )


def visdrone(shapes):
    for split in ("train", "val"):
        for part in ("images", "labels"):
            (shapes / f"DET-{split}").mkdir(exist_ok=True)
            shutil.move(shapes / part / split, shapes / f"DET-{split}" / part)
    (shapes / "data.yaml").unlink()
    (shapes / "classes.txt").write_text(NAMES)


def one_folder_deeper(layout):
    def edit(shapes):
        layout(shapes)
        shapes.rename(shapes.parent / "data")
        shapes.mkdir()
        (shapes.parent / "data").rename(shapes / "data")

    return edit


def folders_without_a_split_in_their_name(shapes):
    for part in ("images", "labels"):
        for split in ("train", "val"):
            (shapes / part / split).rename(shapes / part / f"{len(split)}")
    (shapes / "data.yaml").write_text("train: images/5\nval: images/3\nnames: [circle, square]\n")


@pytest.mark.parametrize(
    "layout",
    [
        roboflow,
        cvat,
        folders_of_cvat,
        names_by_number,
        visdrone,
        one_folder_deeper(cvat),
        one_folder_deeper(folders_without_a_split_in_their_name),
    ],
)
def test_layouts_of_programs(read_yolo, shapes, layout):
    expected = images_of(read_yolo()[0])
    layout(shapes)
    raw, _, notes = read_yolo()
    assert raw.kind.class_names == shapes_data.CLASS_NAMES
    assert images_of(raw) == expected
    assert not notes.corrected
    assert not notes.left_out


def test_letter_case_of_texts_does_not_matter(read_yolo, shapes):
    expected = images_of(read_yolo()[0])
    path = first_text(shapes)
    path.rename(path.with_suffix(".TXT"))
    (shapes / "labels").rename(shapes / "LABELS")
    raw, _, notes = read_yolo()
    assert images_of(raw) == expected
    assert not notes.corrected


def test_a_text_is_not_of_two_images_that_differ_in_letter_case(read_yolo, shapes):
    path = sorted((shapes / "images" / "train").iterdir())[0]
    shutil.copy(path, path.with_name("B.png"))
    shutil.copy(path, path.with_name("b.png"))
    shutil.copy(first_text(shapes), shapes / "labels" / "train" / "b.txt")
    _, _, notes = read_yolo()
    assert notes.corrected == {"images without a text file, as images without objects": 1}


def test_one_folder_of_images_and_texts(read_yolo, shapes, tmp_path):
    flat = tmp_path / "flat"
    flat.mkdir()
    for part in ("images", "labels"):
        for path in (shapes / part / "train").iterdir():
            shutil.copy(path, flat)
    (flat / "classes.txt").write_text(NAMES)
    raw, rows, _ = read_yolo(source=flat, validation_fraction=0.0)
    assert list(raw.splits) == ["train"]
    assert len(rows) == 6
    assert raw.left_out.counts == {}


def test_boxes_refer_to_the_upright_image(read_yolo, shapes):
    path = sorted((shapes / "images" / "train").iterdir())[0]
    pixels = Image.fromarray(np.zeros([20, 30, 3], np.uint8))  # stored lying, 30 x 20 upright
    exif = Image.Exif()
    exif[0x0112] = 6
    pixels.save(path.with_suffix(".jpg"), exif=exif)
    path.unlink()
    first_text(shapes).write_text("1 0.5 0.25 0.5 0.1\n")
    np.testing.assert_allclose(first_box(read_yolo()[1]), [6, 5, 9, 15], rtol=1e-5)


def test_an_image_without_a_text_file_has_no_objects_and_is_counted(read_yolo, shapes):
    first_text(shapes).unlink()
    _, rows, notes = read_yolo()
    assert len(rows) == 6
    assert notes.corrected == {"images without a text file, as images without objects": 1}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1 0.5 0.5", "lines that are neither a box nor a polygon"),
        ("1 0.5 0.5 0.2 0.2 0.9", "lines that are neither a box nor a polygon"),
        ("cat 0.5 0.5 0.2 0.2", "lines that are neither a box nor a polygon"),
        ("1 12 9 7 5", "with numbers above 2: pixels, not fractions of the image"),
        ("1 nan 0.5 0.2 0.2", boxes.NOT_FINITE),
        ("1 0.1 0.5 nan 0.2 0.2 0.2", boxes.NOT_FINITE),
        ("1 0.5 0.5 0 0.2", boxes.EMPTY),
    ],
)
def test_invalid_lines_are_left_out_and_counted(read_yolo, shapes, line, reason):
    path = first_text(shapes)
    path.write_text(path.read_text() + line + "\n")
    assert read_yolo()[2].left_out == {reason: 1}


def test_a_line_that_occurs_twice_is_left_out(read_yolo, shapes):
    path = first_text(shapes)
    path.write_text(path.read_text() + path.read_text().splitlines()[0] + "\n")
    assert read_yolo()[2].left_out == {"lines that occur twice": 1}


def test_keypoints_after_a_box_are_not_a_polygon(read_yolo, shapes):
    path = shapes / "data.yaml"
    path.write_text(path.read_text() + "kpt_shape: [2, 2]\n")
    first_text(shapes).write_text("1 0.5 0.5 0.5 0.4 0.1 0.1 0.9 0.9\n")
    np.testing.assert_allclose(first_box(read_yolo()[1]), [6, 6, 14, 18], rtol=1e-5)


def test_files_of_no_image_are_counted_by_name(read_yolo, shapes):
    (shapes / "labels" / "train" / "gone.txt").write_text("0 0.5 0.5 0.1 0.1\n")
    raw, _, _ = read_yolo()
    assert raw.left_out.counts == {"text files without an image": 1}


def test_class_names_choose_classes(read_yolo):
    raw, rows, notes = read_yolo(class_names=("square",))
    assert raw.properties["category_ids"] == [1]
    drawn = shapes_data.drawings("train", 6, **SMALL).values()
    assert sum((stored(row, "classes") == 0).sum() for row in rows) == sum(
        (drawing.classes == 1).sum() for drawing in drawn
    )
    assert list(notes.left_out) == ["of a class that is not in --class_names"]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda f: (f / "data.yaml").unlink(), r"no names of the classes 0 to 1: .* Set --class"),
        (lambda f: (f / "data.yaml").write_text("names: [a]\n"), r"class 1, but .* classes 0 to 0"),
        (lambda f: (f / "data.yaml").write_text("names: [a\n"), "data.yaml is not YAML"),
        (lambda f: (f / "data.yaml").write_text("names: [a, a]\n"), "class 1 has the name of 0"),
        (lambda f: (f / "data.yaml").write_text("names: [on, off]\n"), "Put them into quotes"),
        (lambda f: (f / "data.yaml").write_text("nc: 3\nnames: [a, b]\n"), "nc is 3, but names"),
        (lambda f: shutil.copy(f / "data.yaml", f / "b.yml"), "both have 'names'"),
        (lambda f: shutil.rmtree(f / "labels"), "no text file of YOLO for any of its 9 images"),
        (
            lambda f: (f / "data.yaml").write_text("val: images/val\nnames: [a, b]\n"),
            "train=None is not in",
        ),
        (
            lambda f: (f / "data.yaml").write_text("train: 5\nnames: [a, b]\n"),
            "train is not a path or a list of paths",
        ),
        (
            lambda f: (
                shutil.rmtree(f / "images" / "val"),
                (f / "data.yaml").write_text("train: a\nval: b\nnames: [a, b]\n"),
            ),
            "its folders and lists of train, validation are not in .*, such as a. Correct",
        ),
    ],
)
def test_invalid_folders_are_one_error(read_yolo, shapes, edit, message):
    edit(shapes)
    with pytest.raises(DataError, match=message) as found:
        read_yolo()
    assert "\n" not in str(found.value)


def test_an_archive_is_to_be_unpacked(read_yolo, tmp_path):
    (tmp_path / "a.zip").write_bytes(b"PK")
    with pytest.raises(DataError, match="is not a folder"):
        read_yolo(source=tmp_path / "a.zip")
