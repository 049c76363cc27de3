"""COCO JSON: boxes for detection, polygons and run lengths for segmentation."""

import functools
import io
import json
import os
import pickle
import shutil

import numpy as np
import pytest
from PIL import Image

from input_fns import DataError
from input_fns.image.sources import boxes, coco_json, coco_masks
from input_fns.image.sources.boxes import Notes
from tests import shapes_data
from tests.archive_files import pack_zip
from tests.marks import slow

SMALL = {"size": (20, 24), "side": (5, 9)}


@pytest.fixture
def shapes(tmp_path):
    """A folder with 6 images of train and 3 of val."""
    shapes_data.write_coco(tmp_path / "shapes", {"train": 6, "val": 3}, **SMALL)
    return tmp_path / "shapes"


@pytest.fixture
def change(shapes):
    """Changes the JSON of train: `change(lambda content: ...)`."""
    path = shapes / "annotations" / "instances_train.json"

    def apply(edit):
        content = json.loads(path.read_text())
        edit(content)
        path.write_text(json.dumps(content))

    return apply


@pytest.fixture
def read_boxes(read_detection, shapes):
    """Reads the folder; see `read_detection`."""
    return functools.partial(read_detection, "coco", source=shapes)


def decoded(row):
    """The labels of a row as arrays."""
    return {
        name: np.frombuffer(row.values[name], feature.dtype).reshape(feature.shape)
        for name, feature in row.features.items()
        if name != "image"
    }


def by_id(rows):
    return {int(decoded(row)["image_id"]): decoded(row) for row in rows}


def test_boxes_classes_and_ids_are_those_of_the_file(read_boxes):
    raw, rows, notes = read_boxes()
    assert list(raw.splits) == ["train", "validation"]
    assert raw.kind.class_names == shapes_data.CLASS_NAMES
    assert raw.properties == {"category_ids": [3, 7]}
    found = by_id(rows)
    for image_id, drawing in shapes_data.drawings("train", 6, **SMALL).items():
        count = len(drawing.boxes)
        np.testing.assert_array_equal(found[image_id]["boxes"][:count], drawing.boxes)
        np.testing.assert_array_equal(found[image_id]["classes"][:count], drawing.classes)
        assert (found[image_id]["classes"][count:] == -1).all()
        np.testing.assert_array_equal(
            found[image_id]["areas"][:count], drawing.masks.sum(axis=(1, 2))
        )
    assert not notes.corrected
    assert not notes.left_out


def test_files_of_images_are_kept_byte_for_byte(read_boxes, shapes):
    _, rows, _ = read_boxes()
    for row in rows:
        assert row.values["image"] == (shapes / row.name).read_bytes()


def stored(raw):
    """The rows of each split, as a worker process reads them."""
    splits = pickle.loads(pickle.dumps(raw.splits))
    return {name: [row.values for row in split] for name, split in splits.items()}


def as_published(shapes, folder, names):
    """Copies the folder of shapes, with these folders as zips."""
    shutil.copytree(shapes, folder)
    for name in names:
        files = sorted((folder / name).iterdir())
        contents = {f"{name}/{path.name}": path.read_bytes() for path in files}
        (folder / f"{name}_2017.zip").write_bytes(pack_zip(contents))
        shutil.rmtree(folder / name)
    return folder


@pytest.mark.parametrize("names", [["annotations", "train", "val"], ["train"], ["annotations"]])
def test_archives_as_downloaded(read, shapes, tmp_path, names):
    source = as_published(shapes, tmp_path / "zips", names)
    for task in ("detection", "segmentation"):
        expected = read("coco", source=shapes, task=task)
        raw = read("coco", source=source, task=task)
        assert raw.kind == expected.kind
        assert not raw.left_out
        assert stored(raw) == stored(expected)


def test_one_archive_is_a_source(read, shapes, tmp_path):
    contents = {str(p.relative_to(shapes)): p.read_bytes() for p in shapes.rglob("*.*")}
    (tmp_path / "export.zip").write_bytes(pack_zip(contents))
    raw = read("coco", source=tmp_path / "export.zip", task="detection")
    expected = read("coco", source=shapes, task="detection")
    assert stored(raw) == stored(expected)


def test_an_unpacked_file_hides_that_in_the_archive(read, rows, shapes):
    images = {f"train/{p.name}": b"broken" for p in (shapes / "train").iterdir()}
    (shapes / "train.zip").write_bytes(pack_zip({**images, "train/other.png": b"1"}))
    raw = read("coco", source=shapes, task="detection")
    assert len(rows(raw.splits["train"])[0]) == 6
    assert raw.left_out.names == {"images that the JSON does not name": ["train/other.png"]}


def test_two_archives_with_one_file(read, shapes):
    path = next((shapes / "train").iterdir())
    for name in ("a.zip", "b.zip"):
        (shapes / name).write_bytes(pack_zip({f"train/{path.name}": path.read_bytes()}))
    path.unlink()
    with pytest.raises(DataError, match=r"png is in .*a.zip and in .*b.zip. Leave .*--skip=b.zip"):
        read("coco", source=shapes, task="detection")


def test_an_archive_that_is_broken_can_be_left_out(read, shapes):
    (shapes / "other.zip").write_bytes(b"PK")
    with pytest.raises(
        DataError, match=r"other.zip is truncated.*leave it out with --skip=other.z"
    ):
        read("coco", source=shapes, task="detection")
    assert read("coco", source=shapes, task="detection", skip=("other.zip",)).left_out.counts == {
        "named by --skip": 1
    }


def test_a_damaged_file_in_an_archive_is_skipped(read, rows, shapes, tmp_path):
    source = as_published(shapes, tmp_path / "zips", ["train"])
    archive = source / "train_2017.zip"
    data = bytearray(archive.read_bytes())
    data[200] ^= 1
    archive.write_bytes(data)
    good, broken = rows(read("coco", source=source, task="detection").splits["train"])
    assert (len(good), len(broken)) == (5, 1)


def test_masks_are_the_drawn_shapes(read, shapes):
    raw = read("coco", source=shapes, task="segmentation")
    assert raw.kind.class_names == ("background", "circle", "square")
    drawn = shapes_data.drawings("train", 6, **SMALL)
    for row in raw.splits["train"]:
        expected = drawn[int(os.path.basename(row.name)[:-4])].class_mask
        mask = np.asarray(Image.open(io.BytesIO(row.values["mask"])))
        np.testing.assert_array_equal(mask, expected)
        assert row.counts.tolist() == np.bincount(expected.ravel(), minlength=3).tolist()


def test_classes_can_be_chosen_and_ordered(read_boxes):
    _, rows, _ = read_boxes()
    total = sum(row.counts for row in rows)
    raw, rows, notes = read_boxes(class_names=("square",))
    assert raw.kind.class_names == ("square",)
    assert raw.properties == {"category_ids": [7]}
    assert sum(row.counts for row in rows).tolist() == [total[1]]
    assert notes.left_out == {"of a class that is not in --class_names": total[0]}


def add_box(content, box, **fields):
    image = content["images"][0]
    number = max(each["id"] for each in content["annotations"]) + 1
    fields = {"id": number, "image_id": image["id"], "category_id": 3, "area": 4, **fields}
    content["annotations"].append({**fields, "bbox": box})


@pytest.mark.parametrize(
    ("box", "corrected", "left_out"),
    [
        ([-3, -3, 10, 10], {boxes.CLIPPED: 1}, {}),
        ([10, 10, -5, -5], {boxes.SWAPPED: 1}, {}),
        ([100, 100, 5, 5], {}, {boxes.OUTSIDE: 1}),
        ([3, 3, 0, 5], {}, {boxes.EMPTY: 1}),
        ([float("nan"), 3, 4, 5], {}, {boxes.NOT_FINITE: 1}),
        slow([1e308, 3, 1e308, 5], {}, {boxes.NOT_FINITE: 1}),
        ([], {}, {"without a box": 1}),
    ],
)
def test_an_invalid_box_is_corrected_or_left_out_and_counted(
    read_boxes, change, box, corrected, left_out
):
    change(lambda content: add_box(content, box))
    _, _, notes = read_boxes()
    assert (dict(notes.corrected), dict(notes.left_out)) == (corrected, left_out)


@pytest.mark.parametrize("area", [0, -1, slow(float("nan")), slow(None)])
def test_an_invalid_area_becomes_that_of_the_box(read_boxes, change, area):
    change(lambda content: add_box(content, [2, 3, 5, 4], area=area))
    _, rows, notes = read_boxes()
    assert notes.corrected == {boxes.NO_AREA: 1}
    assert 20.0 in by_id(rows)[5]["areas"]


def test_crowds_are_marked(read_boxes, change):
    change(lambda content: add_box(content, [2, 3, 5, 4], iscrowd=1))
    _, rows, _ = read_boxes()
    assert sum(decoded(row)["is_crowd"].sum() for row in rows) == 1


def test_annotations_of_an_image_that_is_not_in_the_file_are_counted(read_boxes, change):
    change(lambda content: add_box(content, [1, 1, 5, 5], image_id=999))
    raw, _, _ = read_boxes()
    assert raw.left_out.counts == {coco_json.NO_IMAGE: 1}
    (name,) = raw.left_out.names[coco_json.NO_IMAGE]
    assert name.startswith("instances_train.json annotations[")
    assert name.endswith("] (image_id 999)")


def test_an_annotation_that_occurs_twice_is_left_out(read_boxes, change):
    change(lambda content: content["annotations"].append(content["annotations"][0]))
    raw, _, _ = read_boxes()
    assert raw.left_out.counts == {coco_json.REPEATED: 1}


def test_an_annotation_that_occurs_twice_may_have_other_types_of_numbers(read, shapes, change):
    def edit(content):
        box = {"image_id": 5, "category_id": 3, "bbox": [1, 1, 5, 5], "area": 25, "id": 999}
        content["annotations"] += [
            {**box, "segmentation": [[1, 1, 6, 1, 6, last]]} for last in (6, 6.0, 7)
        ]

    change(edit)
    raw = read("coco", source=shapes, task="segmentation")
    assert raw.left_out.counts == {coco_json.REPEATED: 1}


def test_another_annotation_with_the_same_id_is_kept_and_counted(read_boxes, change):
    change(lambda content: add_box(content, [1, 1, 5, 5], id=1))
    _, _, notes = read_boxes()
    assert notes.corrected == {"with the id of another one": 1}


def test_an_image_that_is_missing_or_not_a_picture_is_broken(read, shapes, rows):
    names = sorted(os.listdir(shapes / "train"))
    os.remove(shapes / "train" / names[1])
    (shapes / "train" / names[2]).write_bytes(b"<html>")
    good, broken = rows(read("coco", source=shapes, task="detection").splits["train"])
    assert len(good) == 4
    reasons = {os.path.basename(row.name): row.reason for row in broken}
    assert reasons[names[1]] == f"no such file in {shapes / 'train'}"
    assert reasons[names[2]] == "it is not an image"


def test_an_image_of_another_size_than_its_boxes_is_broken(read, shapes, change, rows):
    change(lambda content: content["images"][0].update(width=48, height=40))
    good, broken = rows(read("coco", source=shapes, task="detection").splits["train"])
    (one,) = broken
    assert one.reason == (
        "it has 24 x 20 pixels (width x height), and its annotations are of 48 x 40"
    )
    assert len(good) == 5


def test_an_image_without_a_size_has_that_of_its_file(read_boxes, change):
    change(lambda content: (content["images"][0].pop("width"), add_box(content, [9, 9, 99, 5])))
    _, rows, notes = read_boxes()
    assert notes.corrected == {"of an image whose annotations have no size": 1, boxes.CLIPPED: 1}
    assert by_id(rows)[5]["boxes"][:, 3].max() == 24


@pytest.mark.parametrize("upright", [True, False])
def test_boxes_follow_the_exif_orientation_of_a_photo(read, rows, tmp_path, upright):
    """The size in the JSON tells whether boxes were drawn on the turned photo."""
    exif = Image.Exif()
    exif[0x0112] = 6
    (tmp_path / "images").mkdir()
    Image.new("RGB", (12, 20)).save(tmp_path / "images" / "a.jpg", exif=exif)
    height, width = (12, 20) if upright else (20, 12)
    box = [13, 2, 5, 3] if upright else [2, 2, 3, 5]
    content = {
        "images": [{"id": 1, "file_name": "a.jpg", "height": height, "width": width}],
        "annotations": [{"image_id": 1, "category_id": 1, "bbox": box, "area": 15}],
        "categories": [{"id": 1, "name": "x"}],
    }
    (tmp_path / "boxes.json").write_text(json.dumps(content))
    raw = read("coco", source=tmp_path, task="detection", validation_fraction=0.0)
    ((row,), _) = rows(raw.splits["train"])
    assert row.features["image"].shape == (12, 20, 3)
    assert decoded(row)["boxes"][0].tolist() == [2, 13, 5, 18]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda c: c["images"].append({**c["images"][0], "file_name": "x"}), "the id 5 is repeat"),
        (lambda c: c["images"].append({**c["images"][0], "id": "5"}), "the id 5 is repeated"),
        (lambda c: c["images"].append({**c["images"][0], "id": 1}), "file_name '0000005.png' is r"),
        (lambda c: c["categories"].append({"id": 3, "name": "x"}), "the id 3 is repeated"),
        (
            lambda c: c["categories"][0].update(name=""),
            r"categories\[0\].name: '' is not a class na",
        ),
        (lambda c: c["categories"][0].update(name=None), r"None is not a class name"),
        (lambda c: c["categories"][0].pop("id"), r"categories\[0\].id is 'None', and must be"),
        (
            lambda c: (
                c["categories"].append({"id": 9, "name": "square "}),
                add_box(c, [1, 1, 5, 5], category_id=9),
            ),
            "7 and 9 both have the name 'square'",
        ),
        (
            lambda c: c["images"][1].update(file_name="../up/0000005.png"),
            "are both of .*train/0000",
        ),
        (
            lambda c: [image.pop("file_name") for image in c["images"]],
            "no valid image; left out: 6 images of the JSON without a valid file_name, for example",
        ),
        (lambda c: c.update(categories=[]), "it has 6 images and 0 categories"),
        (
            lambda c: c.pop("annotations"),
            "annotations is missing. The JSON of COCO's instances has",
        ),
        (lambda c: c.update(annotations=[]), "no image of the split 'train' .* a valid box"),
        (
            lambda c: [a.update(category_id=0) for a in c["annotations"]],
            "a valid box; left out: 11 annotations of a category that is not in the JSON",
        ),
        (
            lambda c: [a.update(bbox=[0.1, 0.2, 0.05, 0.05]) for a in c["annotations"]],
            "11 of zero width or height. Coordinates must be pixels, not fractions of the image",
        ),
    ],
)
def test_an_invalid_file_is_an_error_that_names_the_field(read_boxes, change, edit, message):
    change(edit)
    with pytest.raises(DataError, match=message) as found:
        read_boxes()
    assert "shapes" in str(found.value)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[" * 10_000, "nested too deep"),
        (b"<html>", "it is not JSON"),
        (b"\xff\xfa", "no UTF-8"),
        (b'{"images": [], "images": []}', 'the key "images" is repeated'),
        (b'[{"image_id": 1, "bbox": [1, 2, 3, 4]}]', "not the JSON of COCO, an object with images"),
        (b'{"images": ' + b"9" * 5000 + b"}", "is too large"),
    ],
)
def test_a_file_that_is_not_json(read_boxes, shapes, content, message):
    (shapes / "annotations" / "instances_train.json").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_boxes()


def test_a_byte_order_mark_windows_line_ends_and_backslashes(read_boxes, shapes):
    path = shapes / "annotations" / "instances_train.json"
    content = json.loads(path.read_text())
    for image in content["images"]:
        image["file_name"] = f"sub\\{image['file_name']}"
    text = json.dumps(content, indent=1).replace("\n", "\r\n")
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    (shapes / "train").rename(shapes / "moved")
    (shapes / "train").mkdir()
    (shapes / "moved").rename(shapes / "train" / "sub")
    _, rows, _ = read_boxes()
    assert len(rows) == 6


def test_too_many_boxes_in_an_image_ask_for_a_limit(read_boxes, change):
    change(lambda c: [add_box(c, [1, 1, 4, 4 + i / 1000]) for i in range(1100)])
    with pytest.raises(DataError, match=r"has 110\d boxes, .* Set --max_boxes to keep the largest"):
        read_boxes()
    raw, rows, notes = read_boxes(max_boxes=7)
    assert raw.kind.max_boxes == 7
    assert all(decoded(row)["boxes"].shape == (7, 4) for row in rows)
    assert notes.left_out["above max_boxes"] >= 1093


def test_splits_with_other_categories_are_refused(read_boxes, change):
    change(lambda c: c["categories"][0].update(name="ring"))
    with pytest.raises(DataError, match=r"instances_val\.json: category 3 is 'circle', and 'ring'"):
        read_boxes()


def test_an_image_in_two_splits_is_refused(read_boxes, shapes):
    path = shapes / "annotations" / "instances_val.json"
    path.write_text((shapes / "annotations" / "instances_train.json").read_text())
    name = sorted(os.listdir(shapes / "train"))[0]
    for other in os.listdir(shapes / "train"):
        os.link(shapes / "train" / other, shapes / "val" / other)
    with pytest.raises(DataError, match=f"{name} is in the split 'validation', and as .*train"):
        read_boxes()


def test_the_layout_of_roboflow(read, tmp_path):
    for split, name in (("train", "train"), ("val", "valid")):
        shapes_data.write_coco(tmp_path / "coco", {split: 3}, **SMALL)
        (tmp_path / "coco" / split).rename(tmp_path / name)
        (tmp_path / "coco" / "annotations" / f"instances_{split}.json").rename(
            tmp_path / name / "_annotations.coco.json"
        )
    raw = read("coco", source=tmp_path, task="detection")
    assert {name: len(list(split)) for name, split in raw.splits.items()} == {
        "train": 3,
        "validation": 3,
    }


def test_files_and_folders_can_be_named(read, shapes):
    annotations = shapes / "annotations"
    (annotations / "instances_train.json").rename(annotations / "a.json")
    (annotations / "instances_val.json").rename(annotations / "b.json")
    (shapes / "train").rename(shapes / "pictures_train")
    (shapes / "val").rename(shapes / "pictures_validation")
    raw = read(
        "coco",
        source=shapes,
        task="detection",
        annotations=(f"train={annotations}/a.json", f"val={annotations}/b.json"),
        image_folder="pictures_{split}",
    )
    assert [len(split) for split in raw.splits.values()] == [6, 3]
    with pytest.raises(DataError, match=r"a\.json: the name has no split, such as train"):
        read("coco", source=shapes, task="detection")


def test_a_folder_of_another_name_is_found_by_its_images(read, shapes):
    (shapes / "train").rename(shapes / "elsewhere")
    raw = read("coco", source=shapes, task="detection")
    assert len(list(raw.splits["train"])) == 6


@pytest.mark.parametrize("options", [{}, {"image_folder": "elsewhere"}])
def test_images_are_not_those_of_another_split(read, shapes, options):
    """The images of val have the names of those of train, and those of train are missing."""
    names = sorted(os.listdir(shapes / "train"))
    shutil.rmtree(shapes / "train")
    for old, new in zip(sorted(os.listdir(shapes / "val")), names):
        (shapes / "val" / old).rename(shapes / "val" / new)
    (shapes / "annotations" / "instances_val.json").rename(shapes / "val.json")
    with pytest.raises(DataError, match=r"are in none of .* Name the folder with --image_folder"):
        read("coco", source=shapes, task="detection", **options)


# Records as other tools write them.


def rows_of(raw):
    """The labels of all rows of train by the name of the image."""
    return {os.path.basename(row.name): decoded(row) for row in raw.splits["train"]}


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda c: c["annotations"].append(None), "annotations that are not an object"),
        (lambda c: add_box(c, [1, 1, 5, 5], category_id=99), coco_json.NO_CATEGORY),
        (lambda c: add_box(c, [1, 1, 5, 5], category_id=None), coco_json.NO_CATEGORY),
        (lambda c: add_box(c, [1, 1, 5, 5], image_id=None), coco_json.NO_IMAGE),
        (lambda c: add_box(c, [1, 1, 5, 5], image_id=True), coco_json.NO_IMAGE),
        (lambda c: add_box(c, [1, 1, 5, 5], image_id=5.5), coco_json.NO_IMAGE),
        (lambda c: add_box(c, [1, 1, 5, 5], iscrowd=7), "annotations whose iscrowd is not 0 or 1"),
        (lambda c: c["images"].append(7), "images that are not an object"),
        (lambda c: c["images"].append({"id": 1}), "images of the JSON without a valid file_name"),
        (lambda c: c["images"].append({"file_name": "a"}), "images of the JSON without a valid id"),
        (lambda c: c["images"].append(c["images"][0]), coco_json.REPEATED_IMAGE),
    ],
)
def test_a_single_invalid_record_is_left_out_and_counted(read_boxes, change, edit, reason):
    before = sum(row.counts.sum() for row in read_boxes()[1])
    change(edit)
    raw, rows, notes = read_boxes()
    assert raw.left_out.counts == {reason: 1}
    assert raw.left_out.names[reason][0].startswith("instances_train.json ")
    assert sum(row.counts.sum() for row in rows) == before
    assert not notes.left_out


@pytest.mark.parametrize(
    "box", [[1, 2], [1, 2, "x", 4], "1,2,3,4", [1, 2, None, 4], [[1], 2, 3, 4]]
)
def test_a_box_that_is_not_four_numbers_is_counted(read_boxes, change, box):
    change(lambda content: add_box(content, box))
    _, _, notes = read_boxes()
    assert notes.left_out == {"with a bbox that is not four numbers": 1}


@pytest.mark.parametrize("is_crowd", [1, True, "1", 1.0, "true"])
def test_crowds_as_tools_write_them(read_boxes, change, is_crowd):
    change(lambda content: add_box(content, ["2", "3", "5.0", 4], iscrowd=is_crowd, area="20"))
    _, rows, notes = read_boxes()
    found = by_id(rows)[5]
    (place,) = np.flatnonzero(found["is_crowd"])
    assert found["boxes"][place].tolist() == [3, 2, 7, 7]
    assert found["areas"][place] == 20
    assert not notes.corrected


@pytest.mark.parametrize("convert_id", [str, float])
def test_ids_match_whatever_their_type(read_boxes, change, convert_id):
    expected = by_id(read_boxes()[1])

    def edit(content):
        for annotation in content["annotations"]:
            annotation["image_id"] = convert_id(annotation["image_id"])
            annotation["category_id"] = convert_id(annotation["category_id"])
        for image in content["images"]:
            image.update(width=float(image["width"]), height=str(image["height"]))

    change(edit)
    raw, rows, notes = read_boxes()
    found = by_id(rows)
    assert found.keys() == expected.keys()
    for number, labels in found.items():
        np.testing.assert_array_equal(labels["boxes"], expected[number]["boxes"])
    assert raw.properties == {"category_ids": [3, 7]}
    assert not notes.corrected
    assert not raw.left_out


def test_ids_that_are_text_are_kept_for_detections(read, shapes, change):
    """Numbers 1, 2, ... are stored, and a file has the ids of the JSON."""

    def edit(content):
        for record, field in [(i, "id") for i in content["images"]] + [
            (a, "image_id") for a in content["annotations"]
        ]:
            record[field] = f"frame_{record[field]:06d}"
        for record, field in [(c, "id") for c in content["categories"]] + [
            (a, "category_id") for a in content["annotations"]
        ]:
            record[field] = {3: "round", 7: "corners"}[record[field]]

    expected = rows_of(read("coco", source=shapes, task="detection"))
    change(edit)
    val = shapes / "annotations" / "instances_val.json"
    val.unlink()
    raw = read("coco", source=shapes, task="detection", validation_fraction=0.0)
    ids = json.loads(raw.files[raw.properties["image_ids"]])
    assert raw.properties["category_ids"] == ["corners", "round"]
    found = rows_of(raw)
    assert len(found) == 6
    for name, labels in found.items():
        assert ids[labels["image_id"] - 1] == f"frame_{name[:-4].zfill(6)[-6:]}"
        np.testing.assert_array_equal(labels["boxes"], expected[name]["boxes"])


@pytest.mark.parametrize(
    "name",
    [
        "..\\..\\label-studio\\media\\upload\\4\\{}",
        "../../media/{}",
        "C:\\photos\\{}",
        "/data/upload/1/{}",
        "https://host/data/upload/1/{}",
        "/data/local-files/?d=upload/{}",
    ],
)
def test_paths_on_another_machine_are_found_by_their_ends(read, shapes, change, name):
    (shapes / "train").rename(shapes / "images")
    shutil.rmtree(shapes / "val")
    (shapes / "annotations" / "instances_val.json").unlink()
    expected = rows_of(read("coco", source=shapes, task="detection", validation_fraction=0.0))
    change(
        lambda c: [i.update(file_name=name.format(i["file_name"])) for i in c["images"]],
    )
    for options in ({}, {"image_folder": "images"}):
        raw = read("coco", source=shapes, task="detection", validation_fraction=0.0, **options)
        found = rows_of(raw)
        assert found.keys() == expected.keys()
        assert all((found[k]["boxes"] == expected[k]["boxes"]).all() for k in found)


@pytest.mark.parametrize("name", ["/etc/passwd", "../../../../etc/passwd", "https://host/none.jpg"])
def test_a_path_that_leads_out_of_the_folder_is_not_opened(read, rows, shapes, change, name):
    change(lambda c: c["images"][0].update(file_name=name))
    good, (broken,) = rows(read("coco", source=shapes, task="detection").splits["train"])
    assert len(good) == 5
    assert (broken.name, broken.reason) == (name, f"no such file in {shapes / 'train'}")


def test_images_that_the_json_does_not_name_are_counted(read, shapes, change):
    change(lambda c: c["images"].pop())
    raw = read("coco", source=shapes, task="detection")
    assert raw.left_out.counts["images that the JSON does not name"] == 1
    assert raw.left_out.names["images that the JSON does not name"][0].startswith("train/")


def test_a_category_without_objects_that_repeats_a_name_is_left_out(read_boxes, change):
    """Roboflow adds the name of the project as category 0."""
    expected = by_id(read_boxes()[1])
    change(lambda c: c["categories"].insert(0, {"id": 0, "name": "square"}))
    raw, rows, _ = read_boxes()
    assert raw.kind.class_names == ("circle", "square")
    assert raw.properties == {"category_ids": [3, 7]}
    assert list(raw.left_out.names.values()) == [["0 (square)"]]
    for number, labels in by_id(rows).items():
        np.testing.assert_array_equal(labels["classes"], expected[number]["classes"])


def test_the_layout_of_cvat(read, tmp_path):
    shapes_data.write_coco(tmp_path, {"train": 3}, **SMALL)
    (tmp_path / "images").mkdir()
    (tmp_path / "train").rename(tmp_path / "images" / "default")
    path = tmp_path / "annotations" / "instances_train.json"
    path.rename(path.with_name("instances_default.json"))
    raw = read("coco", source=tmp_path, task="detection", validation_fraction=0.0)
    assert len(list(raw.splits["train"])) == 3


def test_json_of_a_folder_without_a_split_shows_what_is_understood(read, shapes):
    (shapes / "annotations" / "instances_extra.json").write_text("{}")
    (shapes / "annotations" / "._instances_a.json").write_bytes(b"\0")
    message = r"instances_extra\.json: .* while instances_train\.json is 'train', .*--annotations="
    with pytest.raises(DataError, match=message):
        read("coco", source=shapes, task="detection")
    raw = read("coco", source=shapes, task="detection", skip=("*extra*",))
    assert raw.left_out.counts == {
        "named by --skip": 1,
        "hidden files and files of the system": 1,
    }


def test_json_of_labelme_is_named(read, shapes):
    for number in range(3):
        (shapes / "annotations" / f"{number}.json").write_text("{}")
    for split in ("train", "val"):
        (shapes / "annotations" / f"instances_{split}.json").unlink()
    with pytest.raises(DataError, match=r"one image each \(LabelMe\) must be joined"):
        read("coco", source=shapes, task="detection")


# Masks.


def drawn(*objects, size=(9, 12)):
    notes = Notes()
    found = [
        coco_masks.Object(label, crowd, coco_masks.pack(shape)) for label, crowd, shape in objects
    ]
    return coco_masks.draw(coco_masks.Objects(size, found, Notes()), size, notes), notes


def rectangle(x0, y0, x1, y1):
    return [[x0, y0, x1, y0, x1, y1, x0, y1]]


def test_smaller_objects_are_drawn_over_larger_ones():
    big, small = (1, False, rectangle(0, 0, 10, 8)), (2, False, rectangle(2, 2, 4, 4))
    for objects in ((big, small), (small, big)):
        mask, _ = drawn(*objects)
        assert (mask[2:4, 2:4] == 2).all()
        assert (mask == 1).sum() == 80 - 4


def test_pixels_of_a_crowd_are_ignored_unless_an_object_is_there():
    mask, _ = drawn((1, False, rectangle(0, 0, 2, 2)), (2, True, rectangle(1, 0, 5, 2)))
    assert mask[0, :6].tolist() == [1, 1, 255, 255, 255, 0]


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ([], coco_masks.NO_MASK),
        (None, coco_masks.NO_MASK),
        ([[1, 2, 3, 4]], coco_masks.NO_MASK),
        ([1, 2, 3, 4], coco_masks.NO_MASK),
        ([[1, 2], [3, 4]], coco_masks.NO_MASK),
        ({}, coco_masks.NO_MASK),
        ([[2, 2, 5, 2, 8, 2]], coco_masks.NO_PIXEL),
        ([[0.2, 0.1, 0.7, 0.1, 0.7, 1.0]], coco_masks.FRACTIONS),
        ([[100, 100, 110, 100, 110, 110]], coco_masks.NO_PIXEL),
        ([["a"] * 6], coco_masks.NO_MASK),
        ([[0, 0, 5, 0, 5, float("nan")]], boxes.NOT_FINITE),
    ],
)
def test_an_object_without_a_polygon_is_left_out(shape, reason):
    mask, notes = drawn((1, False, shape))
    assert not mask.any()
    assert notes.left_out == {reason: 1}


@pytest.mark.parametrize(
    "shape",
    [
        [2, 1, 7, 1, 7, 5, 2, 5],
        [[2, 1], [7, 1], [7, 5], [2, 5]],
        [[[2, 1], [7, 1], [7, 5], [2, 5]]],
        [["2", "1", "7.0", "1", 7, 5, 2, 5]],
        {"size": [9.0, 12.0], "counts": [19.0, 4, 5, 4, 5, 4, 5, 4, 5, 4, 49]},
    ],
)
def test_one_polygon_points_and_text_are_unambiguous(shape):
    mask, notes = drawn((1, False, shape))
    expected, _ = drawn((1, False, rectangle(2, 1, 7, 5)))
    np.testing.assert_array_equal(mask, expected)
    assert mask.sum() == 20
    assert notes == Notes()


def test_a_part_of_an_object_that_is_not_a_polygon_is_counted():
    mask, notes = drawn((1, False, [*rectangle(2, 1, 7, 5), [1, 2, 3, 4]]))
    assert mask.sum() == 20
    assert notes.corrected == {coco_masks.BAD_PART: 1}


def test_overlapping_parts_of_an_object_are_joined():
    mask, _ = drawn((1, False, [*rectangle(0, 0, 4, 4), *rectangle(2, 0, 6, 4)]))
    assert mask.sum() == 24


def test_an_object_of_many_polygons_is_drawn_without_a_plane_for_each(monkeypatch):
    coco_mask = pytest.importorskip("pycocotools.mask")
    merge, numbers = coco_mask.merge, []
    monkeypatch.setattr(coco_mask, "decode", None)  # to planes of the size of the image
    monkeypatch.setattr(
        coco_mask, "merge", lambda found: numbers.append(len(found)) or merge(found)
    )
    squares = [rectangle(x, y, x + 3, y + 3)[0] for x in range(60) for y in range(50)]
    mask, _ = drawn((1, False, squares), size=(3000, 4000))
    assert mask.sum() == 62 * 52
    assert max(numbers) <= 16  # each is joined with the sum of those before: quadratic time
    assert sum(numbers) < 1.1 * len(squares)


def test_a_polygon_that_winds_without_end_is_left_out():
    """Pycocotools would need gigabytes for the points along its sides."""
    polygon = [0, 0, 12, 9, 0, 9, 12, 0] * 50_000
    mask, notes = drawn((1, False, [polygon]))
    assert not mask.any()
    assert notes.left_out == {coco_masks.TOO_LONG: 1}


def test_the_size_is_checked_before_anything_is_drawn(read, rows, shapes, change, monkeypatch):
    def edit(content):
        content["images"][0].update(width=12000, height=12000)
        for annotation in content["annotations"]:
            annotation["segmentation"] = {"size": [12000, 12000], "counts": [0, 144000000]}

    change(edit)
    sizes = []
    draw = coco_masks.draw
    monkeypatch.setattr(
        coco_masks,
        "draw",
        lambda objects, size, notes: sizes.append(size) or draw(objects, size, notes),
    )
    _, broken = rows(read("coco", source=shapes, task="segmentation").splits["train"])
    assert (12000, 12000) not in sizes
    assert any("its annotations are of 12000 x 12000" in row.reason for row in broken)


@pytest.mark.parametrize(
    "polygon",
    [
        [-12, 0, 6, 5, -12, 9],  # a point beside the image: sides are not straightened
        [6, -6, 17, 4, 6, 15, -5, 4],
        [1, 1, 20, 7, 1, 15],
        [5, 3, 40, 3, 40, 5, 5, 5],
    ],
)
def test_polygons_that_leave_the_image_are_those_of_pycocotools(polygon):
    coco_mask = pytest.importorskip("pycocotools.mask")
    mask, notes = drawn((1, False, [polygon]))
    (encoded,) = coco_mask.frPyObjects([list(map(float, polygon))], 9, 12)
    np.testing.assert_array_equal(mask, coco_mask.decode(encoded))
    assert mask.any()
    assert notes.corrected == {boxes.CLIPPED: 1}


def test_a_polygon_that_reaches_far_out_keeps_its_slopes():
    far = 1e9
    mask, _ = drawn((1, False, [[0, 0, far, far, 0, far]]))  # below the diagonal
    expected = np.tril(np.ones([9, 12]))
    assert (mask != expected).sum() <= 9  # pycocotools rounds the pixels of the diagonal
    mask, notes = drawn((1, False, [[far, far, 2 * far, far, far, 2 * far]]))
    assert not mask.any()
    assert notes.left_out == {coco_masks.NO_PIXEL: 1}


def test_a_polygon_far_outside_of_the_image_is_clipped():
    """Pycocotools would walk along each of its 10^9 pixels."""
    mask, notes = drawn((1, False, rectangle(-1e9, -1e9, 1e9, 4)))
    assert mask.sum() == 4 * 12
    assert notes.corrected == {boxes.CLIPPED: 1}


@pytest.mark.parametrize(
    "rle",
    [
        {"size": [9, 12], "counts": [1, 2]},
        {"size": [9, 12], "counts": [-1, 109]},
        {"size": [9, 12], "counts": [10**400, 1]},
        {"size": [9, 12], "counts": [-(10**400), 1]},
        {"size": [12, 9], "counts": [108]},
        {"size": [9, 12], "counts": "\x00"},
        {"size": [9, 12], "counts": "o" * 40},
        {"size": [9, 12], "counts": "P"},
        {"size": [9, 12], "counts": "PPPPPPPPP0"},
        {"size": [9, 12], "counts": ""},
        {"size": [9, 12], "counts": "5\ud800"},
        {"size": [9, 12], "counts": None},
        {"size": [9, 12], "counts": [True, 107]},
        {"size": [9, 12], "counts": [[108]]},
        {"size": [9, 12], "counts": [float("inf")]},
        {"counts": [108]},
        {"size": [9, 12], "counts": [8.5, 99.5]},
        {"size": [9, 12], "counts": [float("nan"), 108]},
    ],
)
def test_invalid_run_lengths_are_refused(rle):
    with pytest.raises(ValueError, match="run lengths"):
        drawn((1, False, rle))


@pytest.mark.parametrize("seed", range(3))
def test_run_lengths_are_decoded_as_pycocotools_does(seed):
    coco_mask = pytest.importorskip("pycocotools.mask")
    random = np.random.default_rng(seed)
    mask = np.repeat(np.repeat(random.integers(0, 2, [40, 3]), 50, axis=1), 4, axis=0) > 0
    mask[random.integers(0, 160, 99), random.integers(0, 150, 99)] ^= True
    rle = coco_mask.encode(np.asfortranarray(mask.astype(np.uint8)))
    text = {"size": list(rle["size"]), "counts": rle["counts"].decode()}
    for shape in (text, shapes_data.run_lengths(mask)):
        np.testing.assert_array_equal(drawn((1, False, shape), size=mask.shape)[0], mask)
