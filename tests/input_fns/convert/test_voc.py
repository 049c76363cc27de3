"""Pascal VOC: boxes in XML for detection, palette masks for segmentation."""

import io
import os
import pathlib
import tarfile

import numpy as np
import pytest
from PIL import Image

from input_fns import DataError
from input_fns.convert import boxes, voc_xml
from input_fns.convert.boxes import Notes
from tests import shapes_data
from tests.marks import slow

SMALL = {"size": (20, 24), "side": (5, 9)}
BCCD = pathlib.Path(__file__).parents[4] / "shared" / "data" / "bccd" / "bccd.tar.xz"
OBJECT = (
    "<object><name>{name}</name><difficult>{difficult}</difficult><bndbox><xmin>{box[0]}</xmin>"
    "<ymin>{box[1]}</ymin><xmax>{box[2]}</xmax><ymax>{box[3]}</ymax></bndbox></object>"
)


@pytest.fixture
def shapes(tmp_path):
    """A folder with 6 images of train and 3 of val."""
    shapes_data.write_voc(tmp_path / "shapes", {"train": 6, "val": 3}, **SMALL)
    return tmp_path / "shapes"


@pytest.fixture
def read_boxes(read, shapes):
    """Reads the folder for detection: rows of train, and what was corrected and left out."""

    def read_split(**options):
        raw = read("voc", **{"source": shapes, "task": "detection", **options})
        rows = list(raw.splits["train"])
        notes = Notes()
        for row in rows:
            notes.corrected.update(row.notes.corrected)
            notes.left_out.update(row.notes.left_out)
        return raw, rows, notes

    return read_split


def labels(row, name):
    return np.frombuffer(row.values[name], row.features[name].dtype).reshape(
        row.features[name].shape
    )


def add_object(shapes, box, name="circle", difficult=0):
    """Adds an object to the first image."""
    path = sorted((shapes / "Annotations").iterdir())[0]
    added = OBJECT.format(name=name, difficult=difficult, box=box)
    path.write_text(path.read_text().replace("</annotation>", f"{added}</annotation>"))


def test_corners_become_continuous_and_classes_are_sorted(read_boxes):
    raw, rows, notes = read_boxes()
    assert raw.annotations.class_names == shapes_data.CLASS_NAMES
    assert raw.properties == {"category_ids": [1, 2]}
    drawn = shapes_data.drawings("train", 6, **SMALL)
    for row in rows:
        drawing = drawn[int(os.path.basename(row.name)[:-4])]
        count = len(drawing.boxes)
        np.testing.assert_array_equal(labels(row, "boxes")[:count], drawing.boxes)
        np.testing.assert_array_equal(labels(row, "classes")[:count], drawing.classes)
    assert not notes.corrected


def test_ids_of_images_are_unique(read_boxes):
    raw, _, _ = read_boxes()
    ids = [int(labels(row, "image_id")) for split in raw.splits.values() for row in split]
    assert sorted(ids) == list(range(1, 10))


def test_continuous_corners_start_at_0(read_boxes):
    _, rows, _ = read_boxes(box_origin=0)
    shifted = {row.name: labels(row, "boxes") for row in rows}
    _, rows, _ = read_boxes()
    for row in rows:
        is_box = labels(row, "classes") >= 0
        difference = (shifted[row.name] - labels(row, "boxes"))[is_box]
        assert (difference == [1, 1, 0, 0]).all()


@pytest.mark.parametrize(
    ("box", "corrected", "left_out"),
    [
        ((10, 9, 4, 3), {boxes.SWAPPED: 1}, {}),
        ((0, 0, 5, 5), {boxes.CLIPPED: 1}, {}),
        ((7, 7, 7, 7), {}, {boxes.EMPTY: 1}),
        ((70, 70, 80, 80), {}, {boxes.OUTSIDE: 1}),
        (("nan", 1, 5, 5), {}, {boxes.NOT_FINITE: 1}),
        slow((4.5, 3.25, 9.75, 8), {}, {}),
    ],
)
def test_an_invalid_box_is_corrected_or_left_out_and_counted(
    read_boxes, shapes, box, corrected, left_out
):
    add_object(shapes, box)
    _, _, notes = read_boxes()
    assert (dict(notes.corrected), dict(notes.left_out)) == (corrected, left_out)


def test_difficult_objects_are_not_trained_on(read_boxes, shapes):
    add_object(shapes, (1, 1, 9, 9), difficult=1)
    _, rows, _ = read_boxes()
    assert sum(labels(row, "is_crowd").sum() for row in rows) == 1


def test_an_object_of_another_class_is_counted(read_boxes, shapes):
    add_object(shapes, (1, 1, 9, 9), name="triangle")
    raw, _, _ = read_boxes()
    assert raw.annotations.class_names == ("circle", "square", "triangle")
    _, _, notes = read_boxes(class_names=("square", "circle"))
    assert notes.left_out == {"of a class that is not in --class_names": 1}
    with pytest.raises(DataError, match="no object of the class squares; its classes are: circle"):
        read_boxes(class_names=("squares",))


def test_a_size_of_0_is_that_of_the_file(read_boxes, shapes):
    path = sorted((shapes / "Annotations").iterdir())[0]
    text = path.read_text().replace("<width>24</width><height>20</height>", "")
    path.write_text(text)
    _, _, notes = read_boxes()
    assert notes.corrected == {"of an image whose annotations have no size": 1}


def test_an_image_of_another_size_than_its_boxes_is_broken(read, rows, shapes):
    path = sorted((shapes / "Annotations").iterdir())[0]
    path.write_text(path.read_text().replace("<width>24<", "<width>240<"))
    good, broken = rows(read("voc", source=shapes, task="detection").splits["train"])
    assert len(good) == 5
    assert "its annotations are of 240 x 20" in broken[0].reason


def test_xml_beside_the_images_in_folders_of_splits(read, shapes, tmp_path):
    for split in ("train", "valid"):
        (tmp_path / "flat" / split).mkdir(parents=True)
    for i, path in enumerate(sorted((shapes / "Annotations").iterdir())):
        folder = tmp_path / "flat" / ("train" if i < 6 else "valid")
        path.rename(folder / path.name)
        image = shapes / "JPEGImages" / f"{path.stem}.png"
        image.rename(folder / image.name)
    Image.new("RGB", (3, 3)).save(tmp_path / "flat" / "train" / "other.jpg")
    raw = read("voc", source=tmp_path / "flat", task="detection")
    assert [len(list(split)) for split in raw.splits.values()] == [6, 3]
    assert raw.annotations.splits["train"].left_out == {"images without XML": 1}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("../../etc/passwd", r"train\.txt, line 7: '\.\./\.\./etc/passwd' is not a file name"),
        ("0000005 -1", "is not a file name"),
        ("0000005", "'0000005' is repeated"),
        ("9999999", r"9999999\.xml is not there"),
    ],
)
def test_an_invalid_list_of_a_split(read_boxes, shapes, line, message):
    with open(shapes / "ImageSets" / "Main" / "train.txt", "a") as file:
        file.write(line)
    with pytest.raises(DataError, match=message):
        read_boxes()


def test_a_byte_order_mark_and_windows_line_ends(read_boxes, shapes):
    for path in [*(shapes / "Annotations").iterdir(), shapes / "ImageSets" / "Main" / "train.txt"]:
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    _, rows, _ = read_boxes()
    assert len(rows) == 6


BILLION_LAUGHS = b'<!DOCTYPE a [<!ENTITY b "ha"><!ENTITY c "&b;&b;">]><annotation>&c;</annotation>'
EXTERNAL = b'<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><annotation>&b;</annotation>'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (BILLION_LAUGHS, "x.xml, line 1: a DOCTYPE, which VOC has not"),
        slow(EXTERNAL, "a DOCTYPE, which VOC has not"),
        (b"<annotation>", "x.xml is not XML: no element found"),
        (b"", "is not XML"),
        slow(b"\x00\x01", "is not XML"),
        (b"<a>" * 60, "nested too deep"),
        (b"<svg></svg>", "the root is <svg> instead of <annotation>"),
        (b"<annotation>\n<object/></annotation>", "line 2: an object without a <name>"),
        (b"<annotation><object><name>a</name></object></annotation>", "without a <bndbox>"),
        (b"<annotation><size><width>-3</width></size></annotation>", "<width> is '-3'"),
        (b'<?xml version="1.0" encoding="no-such"?><annotation/>', "is not XML"),
    ],
)
def test_an_invalid_xml_is_an_error_that_names_the_line(content, message):
    with pytest.raises(DataError, match=message) as found:
        voc_xml.parse(content, "x.xml")
    assert str(found.value).isprintable()


@pytest.mark.parametrize("value", ["", "1_0", "0x10", "five", "\u0665x"])
def test_a_corner_that_is_not_a_number(value):
    text = f"<annotation>{OBJECT.format(name='a', difficult=0, box=(1, 2, value, 4))}</annotation>"
    with pytest.raises(DataError, match=r"<xmax> is .*, and must be a number"):
        voc_xml.parse(text.encode(), "x.xml")


def test_parts_of_an_object_are_ignored():
    part = OBJECT.format(name="head", difficult=0, box=(1, 1, 2, 2)).replace("object", "part")
    whole = OBJECT.format(name="person", difficult=0, box=(1, 2, 3, 4))
    text = f"<annotation>{whole.replace('</object>', part + '</object>')}</annotation>"
    (found,) = voc_xml.parse(text.encode(), "x.xml").objects
    assert (found.name, found.corners) == ("person", (2.0, 1.0, 4.0, 3.0))


def test_masks_of_the_palette(read, shapes):
    (shapes / "SegmentationClass").mkdir()
    drawn = shapes_data.drawings("train", 6, **SMALL)
    stems = []
    for image_id, drawing in drawn.items():
        mask = Image.fromarray(shapes_data.void_borders(drawing), "P")
        mask.putpalette(np.random.default_rng(1).integers(0, 256, 768, np.uint8).tobytes())
        stems.append(shapes_data.file_name(image_id)[:-4])
        mask.save(shapes / "SegmentationClass" / f"{stems[-1]}.png")
    (shapes / "ImageSets" / "Segmentation").mkdir()
    (shapes / "ImageSets" / "Segmentation" / "train.txt").write_text("\n".join(stems[:4]))
    (shapes / "ImageSets" / "Segmentation" / "val.txt").write_text("\n".join(stems[4:]))
    names = ("background", "circle", "square")
    raw = read("voc", source=shapes, task="segmentation", class_names=names)
    assert [len(split) for split in raw.splits.values()] == [4, 2]
    for row in raw.splits["train"]:
        mask = np.asarray(Image.open(io.BytesIO(row.values["mask"])))
        drawing = drawn[int(os.path.basename(row.name)[:-4])]
        np.testing.assert_array_equal(mask, shapes_data.void_borders(drawing))


@pytest.mark.skipif(not BCCD.exists(), reason="BCCD is not here")
def test_the_real_cells(read, tmp_path):
    """4,888 boxes, of which two are points."""
    with tarfile.open(BCCD) as tar:
        tar.extractall(tmp_path)
    raw = read("voc", source=tmp_path / "BCCD", task="detection")
    assert raw.annotations.class_names == ("Platelets", "RBC", "WBC")
    assert raw.annotations.max_boxes == 30
    assert [len(split) for split in raw.splits.values()] == [205, 87, 72]
    items = [item for split in raw.splits.values() for item in split.items]
    assert sum(len(item.found) for item in items) == 4886
    assert sum((item.notes.left_out for item in items), Notes().left_out) == {boxes.EMPTY: 2}
    assert not any(item.notes.corrected for item in items)
