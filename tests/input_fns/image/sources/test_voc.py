"""Pascal VOC: boxes in XML for detection, palette masks for segmentation."""

import functools
import io
import json
import os
import pathlib
import shutil
import tarfile

import numpy as np
import pytest
from PIL import Image

from input_fns import DataError
from input_fns.image.sources import boxes, voc_xml
from tests import shapes_data
from tests.marks import slow
from tests.shapes_data import stored

SMALL = {"size": (20, 24), "side": (5, 9)}
BCCD = pathlib.Path(__file__).parents[5] / "shared" / "data" / "bccd" / "bccd.tar.xz"
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
def read_boxes(read_detection, shapes):
    """Reads the folder; see `read_detection`."""
    return functools.partial(read_detection, "voc", source=shapes)


def add_object(shapes, box, name="circle", difficult=0):
    """Adds an object to the first image."""
    path = sorted((shapes / "Annotations").iterdir())[0]
    added = OBJECT.format(name=name, difficult=difficult, box=box)
    path.write_text(path.read_text().replace("</annotation>", f"{added}</annotation>"))


def test_corners_become_continuous_and_classes_are_sorted(read_boxes):
    raw, rows, notes = read_boxes()
    assert raw.kind.class_names == shapes_data.CLASS_NAMES
    assert raw.properties["category_ids"] == [1, 2]
    drawn = shapes_data.drawings("train", 6, **SMALL)
    for row in rows:
        drawing = drawn[int(os.path.basename(row.name)[:-4])]
        count = len(drawing.boxes)
        np.testing.assert_array_equal(stored(row, "boxes")[:count], drawing.boxes)
        np.testing.assert_array_equal(stored(row, "classes")[:count], drawing.classes)
    assert not notes.corrected


def test_ids_of_images_are_unique(read_boxes):
    raw, _, _ = read_boxes()
    ids = [int(stored(row, "image_id")) for split in raw.splits.values() for row in split]
    assert sorted(ids) == list(range(1, 10))


def test_detections_are_named_by_the_paths_of_the_images(read_boxes):
    raw, _, _ = read_boxes()
    names = json.loads(raw.files[raw.properties["image_ids"]])
    for row in (row for split in raw.splits.values() for row in split):
        path = names[int(stored(row, "image_id")) - 1]
        assert path == row.name == f"JPEGImages/{os.path.basename(path)}"


def test_continuous_corners_start_at_0(read_boxes):
    _, rows, _ = read_boxes(box_origin=0)
    shifted = {row.name: stored(row, "boxes") for row in rows}
    _, rows, _ = read_boxes()
    for row in rows:
        is_box = stored(row, "classes") >= 0
        difference = (shifted[row.name] - stored(row, "boxes"))[is_box]
        assert (difference == [1, 1, 0, 0]).all()


@pytest.mark.parametrize(
    ("box", "corrected", "left_out"),
    [
        ((10, 9, 4, 3), {boxes.SWAPPED: 1}, {}),
        ((0, 0, 5, 5), {boxes.CLIPPED: 1}, {}),
        ((7, 7, 7, 7), {}, {}),
        ((0, 0, 0, 0), {}, {boxes.OUTSIDE: 1}),
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
    assert sum(stored(row, "is_crowd").sum() for row in rows) == 1


def test_an_object_of_another_class_is_counted(read_boxes, shapes):
    add_object(shapes, (1, 1, 9, 9), name="triangle")
    raw, _, _ = read_boxes()
    assert raw.kind.class_names == ("circle", "square", "triangle")
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


def test_two_images_of_one_name_are_told_apart_by_the_xml(read, read_boxes, rows, shapes):
    image = sorted((shapes / "JPEGImages").iterdir())[0]
    Image.open(image).save(image.with_suffix(".bmp"))
    _, good, _ = read_boxes()
    assert f"JPEGImages/{image.name}" in {row.name for row in good}
    path = shapes / "Annotations" / f"{image.stem}.xml"
    path.write_text(path.read_text().replace(image.name, "other.png"))
    _, (broken,) = rows(read("voc", source=shapes, task="detection").splits["train"])
    assert broken.reason.endswith(f"may be of {image.stem}.bmp or of {image.name}")


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
    assert raw.left_out.counts == {"images without XML": 1}
    assert raw.left_out.names == {"images without XML": ["train/other.jpg"]}


def test_images_that_no_list_has_are_counted_as_such(read, shapes):
    lists = shapes / "ImageSets" / "Main" / "train.txt"
    first, *others = lists.read_text().splitlines()
    lists.write_text("\n".join(others))
    raw = read("voc", source=shapes, task="detection")
    (reason,) = (r for r in raw.left_out.counts if "images" in r)
    assert reason == "images that no list of ImageSets has"
    assert raw.left_out.names[reason] == [f"JPEGImages/{first}.png"]


@pytest.mark.parametrize("line", ["../../etc/passwd", "0000005 -1", "9999999"])
def test_a_listed_name_without_xml_is_broken(read, rows, shapes, line):
    with open(shapes / "ImageSets" / "Main" / "train.txt", "a") as file:
        file.write(line)
    good, (broken,) = rows(read("voc", source=shapes, task="detection").splits["train"])
    assert len(good) == 6
    assert broken.reason.endswith(f"no XML of '{line}', which ImageSets lists")


def test_a_repeated_line_of_a_list_is_counted(read_boxes, shapes):
    path = shapes / "ImageSets" / "Main" / "train.txt"
    path.write_text(path.read_text() + path.read_text().splitlines()[0])
    raw, rows, _ = read_boxes()
    assert len(rows) == 6
    assert raw.left_out.names == {"lines of ImageSets that occur twice": ["train.txt line 7"]}


def test_lists_that_are_in_imagesets_itself(read_boxes, shapes):
    for path in (shapes / "ImageSets" / "Main").iterdir():
        path.rename(shapes / "ImageSets" / path.name)
    (shapes / "ImageSets" / "Main").rmdir()
    raw, rows, _ = read_boxes()
    assert {name: len(split) for name, split in raw.splits.items()} == {"train": 6, "validation": 3}
    assert len(rows) == 6


def test_further_boxes_of_an_object_are_counted():
    text = OBJECT.format(name="a", difficult=0, box=(1, 2, 3, 4))
    box = text[text.index("<bndbox>") : text.index("</object>")]
    text = f"<annotation>{text.replace(box, box + 2 * box)}</annotation>"
    found = voc_xml.parse(text.encode(), "a.xml")
    assert [one.corners for one in found.objects] == [(2, 1, 4, 3)]
    assert found.left_out == {voc_xml.MORE_BOXES: 2}


def test_an_image_in_two_lists_is_refused(read_boxes, shapes):
    lists = shapes / "ImageSets" / "Main"
    (lists / "val.txt").write_text((lists / "train.txt").read_text())
    with pytest.raises(DataError, match=r"Main: '0000005' is in 'train' and in 'validation'"):
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
        (BILLION_LAUGHS, "x.xml, line 1: a DOCTYPE, which VOC does not have"),
        slow(EXTERNAL, "a DOCTYPE, which VOC does not have"),
        (b"<annotation>", "x.xml is not XML: no element found"),
        (b"", "is not XML"),
        slow(b"\x00\x01", "is not XML"),
        (b"<a>" * 60, "nested too deep"),
        (b"<svg></svg>", "the root is <svg> instead of <annotation>"),
        (b"<annotations></annotations>", "CVAT's XML of many images. Export 'Pascal VOC'"),
        (b'<?xml version="1.0" encoding="no-such"?><annotation/>', "is not XML of the encoding no"),
        (b'<?xml version="1.0" encoding="hex"?><annotation/>', "'hex' is not a text encoding"),
        ("<annotation>\xe9</annotation>".encode("latin1"), "It is not UTF-8: use --encoding"),
    ],
)
def test_an_invalid_xml_is_an_error_that_names_the_line(content, message):
    with pytest.raises(DataError, match=message) as found:
        voc_xml.parse(content, "x.xml")
    assert str(found.value).isprintable()


@pytest.mark.parametrize("value", ["", "1_0", "0x10", "five", "\u0665x"])
def test_a_corner_that_is_not_a_number_is_counted(value):
    good = OBJECT.format(name="b", difficult=0, box=(1, 2, 3, 4))
    bad = OBJECT.format(name="a", difficult=0, box=(1, 2, value, 4))
    found = voc_xml.parse(f"<annotation>{bad}{good}</annotation>".encode(), "x.xml")
    assert [one.name for one in found.objects] == ["b"]
    assert found.left_out == {voc_xml.BAD_CORNER: 1}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<object/>", voc_xml.NO_NAME),
        ("<object><name> </name><bndbox/></object>", voc_xml.NO_NAME),
        ("<object><name>a</name><polygon/></object>", voc_xml.NO_BOX),
    ],
)
def test_an_invalid_object_is_counted(text, reason):
    found = voc_xml.parse(f"<annotation>{text}</annotation>".encode(), "x.xml")
    assert not found.objects
    assert found.left_out == {reason: 1}


@pytest.mark.parametrize(
    ("value", "is_difficult"),
    [("", False), ("0", False), ("1", True), ("Unspecified", False), ("true", True)],
)
def test_difficult_as_tools_write_it(value, is_difficult):
    text = OBJECT.format(name="a", difficult=value, box=(1, 2, 3, 4))
    (found,) = voc_xml.parse(f"<annotation>{text}</annotation>".encode(), "x.xml").objects
    assert found.is_difficult == is_difficult


@pytest.mark.parametrize(
    "size",
    ["", "<size/>", "<size><width>-3</width><height>5</height></size>",
     "<size><width>a</width><height>5</height></size>",
     "<size><width>0</width><height>0</height></size>"],
)  # fmt: skip
def test_an_invalid_size_is_unknown(size):
    assert voc_xml.parse(f"<annotation>{size}</annotation>".encode(), "x.xml").size == (0, 0)


@pytest.mark.parametrize(
    ("declared", "actual", "text"),
    [
        ("gb2312", "gb2312", "\u7ec6\u80de"),
        ("gb2312", "gbk", "\u9f98"),  # not in GB2312
        ("GBK", "gbk", "\u7ec6"),
        ("big5", "big5", "\u6587"),
        ("Shift_JIS", "cp932", "\u6587\u2460"),
        ("windows-1251", "cp1251", "\u043a\u043e\u0442"),
        ("utf-16", "utf-16", "\u7ec6"),
        ("latin1", "latin1", "\xe9"),
        ("utf-8", "utf-8-sig", "\xe9"),
        ("UTF8", "utf-8", "\xe9"),
        ("utf-16", "utf-8", "\xe9"),  # .NET declares this, whatever is written
    ],
)
def test_encodings_that_python_knows(declared, actual, text):
    content = OBJECT.format(name=text, difficult=0, box=(1, 2, 3, 4))
    content = f'<?xml version="1.0" encoding="{declared}"?><annotation>{content}</annotation>'
    (found,) = voc_xml.parse(content.encode(actual), "x.xml").objects
    assert found.name == text


def test_the_flag_names_the_encoding_of_xml_that_declares_none(read, shapes):
    path = sorted((shapes / "Annotations").iterdir())[0]
    path.write_bytes(path.read_text().replace("circle", "\u5706").encode("gbk"))
    raw = read("voc", source=shapes, task="detection", encoding="gbk")
    assert "\u5706" in raw.kind.class_names


def test_a_broken_xml_does_not_stop_the_others(read, rows, shapes):
    path = sorted((shapes / "Annotations").iterdir())[2]
    path.write_text("<annotation><object>")
    good, (broken,) = rows(read("voc", source=shapes, task="detection").splits["train"])
    assert len(good) == 5
    assert broken.name.endswith(f"{path.stem}.png")
    assert f"{path} is not XML: no element found" in broken.reason


def test_only_broken_xml_is_an_error_with_the_reason(read, shapes):
    for path in (shapes / "Annotations").iterdir():
        path.write_text("<annotations/>")
    with pytest.raises(
        DataError, match=r"no XML has an object with a class and a box, and an image; .*CVAT's"
    ):
        read("voc", source=shapes, task="detection")


def test_an_image_belongs_to_the_xml_of_its_name(read, rows, shapes):
    first = sorted((shapes / "Annotations").iterdir())[0]
    (shapes / "ImageSets").rename(shapes / "lists")
    copy = first.with_name("0 copy.xml")  # sorted before the XML of the image
    copy.write_text(first.read_text())
    raw = read("voc", source=shapes, task="detection", validation_fraction=0.0)
    good, (broken,) = rows(raw.splits["train"])
    assert len(good) == 9
    assert f"{copy} is of the same image as {first}" in broken.reason
    assert raw.left_out.counts == {
        ".txt files that are not used": len(os.listdir(shapes / "lists" / "Main"))
    }


LAYOUTS = [
    ("annotations/{}", "images/{}"),
    ("Annotations/{}", "JPEGImages/{}"),
    ("{}/Annotations", "{}/JPEGImages"),
    ("{}/xml", "{}"),
    ("Annotations/{}", "JPEGImages"),
    ("Annotations/{}", "Annotations/{}"),
    ("{}", "{}"),
]


@pytest.mark.parametrize(("xml", "images"), LAYOUTS)
@pytest.mark.parametrize(
    "splits", [("train", "val"), ("Training", "VALID"), ("train_set", "set of val")]
)
def test_layouts_with_folders_of_splits(read, shapes, tmp_path, xml, images, splits):
    source = lay_out(shapes, tmp_path / "other", xml, images, splits)
    raw = read("voc", source=source, task="detection")
    sizes = {split: len([row.counts for row in rows]) for split, rows in raw.splits.items()}
    assert sizes == {"train": 6, "validation": 3}
    assert not raw.left_out


def lay_out(shapes, source, xml, images, splits):
    """Moves files into folders of splits, with XML in capitals; returns the folder."""
    for i, path in enumerate(sorted((shapes / "JPEGImages").iterdir())):
        split = splits[i >= 6]
        for folder in (xml, images):
            (source / folder.format(split)).mkdir(parents=True, exist_ok=True)
        path.rename(source / images.format(split) / path.name)
        annotation = shapes / "Annotations" / f"{path.stem}.xml"
        annotation.rename(source / xml.format(split) / f"{path.stem}.XML")
    return source


@pytest.mark.parametrize(
    ("xml", "images", "flags"),
    [
        ("a/{}", "b/{}", {"xml_folder": "a/{split}", "image_folder": "b/{split}"}),
        ("a/{}", "a/{}", {"xml_folder": "a/{split}"}),
        ("a/{}", "images", {"xml_folder": "a/{split}"}),
        ("a/{}", "b", {"xml_folder": "a/{split}", "image_folder": "b"}),
        ("{}/a", "{}/b", {"xml_folder": "{split}/a", "image_folder": "{split}/b"}),
    ],
)
def test_folders_can_be_named(read, shapes, tmp_path, xml, images, flags):
    source = lay_out(shapes, tmp_path / "other", xml, images, ("train", "val"))
    raw = read("voc", source=source, task="detection", **flags)
    assert [len(list(split)) for split in raw.splits.values()] == [6, 3]


@pytest.mark.parametrize("splits", [("train", "val"), ("train_set", "val_set")])
def test_folders_of_splits_that_are_not_understood_are_not_joined(read, shapes, tmp_path, splits):
    source = lay_out(shapes, tmp_path / "other", "a/{}", "b/{}", splits)
    with pytest.raises(DataError, match=r"a/train\w*, which is .* --xml_folder=a/\{split\}"):
        read("voc", source=source, task="detection")


def test_a_folder_with_xml_that_is_no_split_is_refused(read, shapes, tmp_path):
    source = lay_out(shapes, tmp_path / "other", "annotations/{}", "images/{}", ("train", "rest"))
    with pytest.raises(DataError, match="rest is not that of a split, while train is 'train'"):
        read("voc", source=source, task="detection")
    raw = read("voc", source=source, task="detection", skip=("rest",), validation_fraction=0.0)
    assert len(raw.splits["train"]) == 6
    assert raw.left_out.counts == {"named by --skip": 6}


def test_the_error_names_the_folder_of_the_split(read, shapes, tmp_path):
    source = lay_out(shapes, tmp_path / "other", "{}/xml", "{}/images", ("train", "rest"))
    with pytest.raises(DataError, match=r"rest/xml is .*while train is 'train'.*--skip=rest$"):
        read("voc", source=source, task="detection")


def test_hidden_files_are_no_xml(read, shapes):
    (shapes / "Annotations" / "._a.xml").write_bytes(b"\0\5\x16")
    shutil.rmtree(shapes / "ImageSets")
    raw = read("voc", source=shapes, task="detection", validation_fraction=0.0)
    assert len(list(raw.splits["train"])) == 9
    assert raw.left_out.names == {"hidden files and files of the system": ["Annotations/._a.xml"]}


def test_lists_of_any_case_and_names_in_subfolders(read, shapes):
    lists = shapes / "ImageSets" / "Main"
    for kind, extension in (("Annotations", "xml"), ("JPEGImages", "png")):
        (shapes / kind / "sub").mkdir()
        (shapes / kind / f"0000005.{extension}").rename(
            shapes / kind / "sub" / f"0000005.{extension}"
        )
    text = (lists / "train.txt").read_text().replace("0000005", "sub/0000005.png")
    (lists / "train.txt").unlink()
    (lists / "TRAIN.TXT").write_text(text)
    raw = read("voc", source=shapes, task="detection")
    names = [row.name for row in raw.splits["train"]]
    assert len(names) == 6
    assert "JPEGImages/sub/0000005.png" in names


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
    """4,888 boxes, of which two are one pixel."""
    with tarfile.open(BCCD) as tar:
        tar.extractall(tmp_path)
    raw = read("voc", source=tmp_path / "BCCD", task="detection")
    assert raw.kind.class_names == ("Platelets", "RBC", "WBC")
    assert raw.kind.max_boxes == 30
    assert [len(split) for split in raw.splits.values()] == [205, 87, 72]
    items = [item for split in raw.splits.values() for item in split.items]
    assert sum(len(item.found) for item in items) == 4888
    assert not any(item.notes.left_out for item in items)
    assert not any(item.notes.corrected for item in items)
