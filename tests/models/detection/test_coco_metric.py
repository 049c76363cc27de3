"""COCO's metrics of perfect, shifted, duplicated, empty and crowded predictions; files, reports."""

import io
import json
import types

import numpy as np
import pytest
from PIL import Image

from input_fns import kinds
from models.detection import coco_metric, report, retinanet
from models.model import FileMetric, ModelError, Report
from tests.detection_data import (
    BOXES,
    NAMES,
    detections,
    image_of,
    make_metric,
    random_image,
    update,
)

pytest.importorskip("pycocotools")


def test_a_detector_has_them_for_annotated_images():
    shapes = kinds.SyntheticShapes(task="detection", classes=3, image_size=(64, 64))
    pipeline = types.SimpleNamespace(data=kinds.synthetic(shapes))
    (metric,) = retinanet.MODEL.host_metrics({}, pipeline)
    assert isinstance(metric, coco_metric.CocoMetric)


def score(labels, predictions):
    metric = make_metric()
    update(metric, labels, predictions)
    return metric.result()


def test_perfect_detections():
    found = score(image_of(), detections())
    assert found["AP"] == found["AP50"] == found["AP75"] == pytest.approx(1)
    assert found["AP_large"] == -1  # no box has more than 96 * 96 pixels


def test_detections_shifted_by_a_fifth_of_their_side_are_right_at_iou_0_5_only():
    square = [[0, 0, 50, 50]]
    shifted = [[0, 10, 50, 60]]  # IoU 40 / 60
    found = score(image_of(1, square, [1], [0]), detections(shifted, [1], [0.9]))
    assert found["AP50"] == pytest.approx(1)
    assert found["AP75"] == 0
    assert found["AP"] == pytest.approx(0.4)  # of the thresholds 0.5, 0.55, 0.6 and 0.65


def test_a_second_detection_of_a_box_is_wrong():
    twice = [BOXES[0], BOXES[0] + 1, BOXES[2]]
    labels = image_of(1, BOXES[[0, 2]], [0, 0], [0, 0])
    found = score(labels, detections(twice, [0, 0, 0], [0.9, 0.8, 0.7]))
    # Precision 1 up to recall 0.5, then 2 / 3: 51 and 50 of 101 points.
    assert found["AP50"] == pytest.approx((51 + 50 * 2 / 3) / 101)


def test_no_detections():
    assert score(image_of(), detections([], [], []))["AP"] == 0


def test_no_boxes():
    found = score(image_of(1, [], [], []), detections())
    assert set(found.values()) == {-1}


def test_detections_in_a_crowd_are_neither_right_nor_wrong():
    labels = image_of(1, BOXES[:2], [0, 0], [0, 1])
    inside = [BOXES[0], [31, 101, 40, 110], [40, 120, 49, 130]]
    found = score(labels, detections(inside, [0, 0, 0], [0.5, 0.9, 0.8]))
    assert found["AP50"] == pytest.approx(1)


def test_the_first_box_of_a_split_counts():
    # pycocotools takes a match with an annotation of id 0 for none.
    labels = image_of(1, BOXES[:1], [0], [0])
    assert score(labels, detections(BOXES[:1], [0], [0.5]))["AP"] == pytest.approx(1)


@pytest.mark.parametrize("batch_size", [1, 7, 32])
def test_the_batch_size_does_not_matter(batch_size):
    random = np.random.default_rng(0)
    images = [random_image(random, number) for number in range(1, 40)]
    whole, metric = make_metric(), make_metric()
    for labels, predictions in images:
        update(whole, labels, predictions)
    for first in range(0, len(images), batch_size):
        labels, predictions = (
            {name: np.concatenate([one[name] for one in side]) for name in side[0]}
            for side in zip(*images[first : first + batch_size])
        )
        metric.update({}, labels, predictions)
    assert metric.result() == whole.result()


def test_classes_are_listed_in_their_order_whatever_their_categories():
    metric = make_metric(category_ids=[30, 7, 12])
    labels = image_of(1, BOXES, [0, 1, 1], [0, 0, 1])
    update(metric, labels, detections(BOXES[:2], [0, 2], [0.9, 0.8]))
    found = metric.per_class()
    assert {name: (row["AP50"], row["boxes"]) for name, row in found.items()} == {
        "cat": (pytest.approx(1), 1),
        "dog": (0, 1),
        "a class with a long name": (-1, 0),
    }
    assert [one["category_id"] for one in json.loads(metric.files()["detections.json"])] == [30, 12]


def test_detections_json_has_the_official_form():
    metric = make_metric()
    update(metric, image_of(2**40), detections(BOXES[1:2], [1], [0.75]))
    assert isinstance(metric, FileMetric)
    assert json.loads(metric.files()["detections.json"]) == [
        {"image_id": 2**40, "category_id": 2, "bbox": [100, 30, 40, 20], "score": 0.75}
    ]


def test_drawn_images_are_named_by_their_ids(tmp_path, monkeypatch):
    names = []
    monkeypatch.setattr(report.Examples, "add", lambda self, image_id, *_: names.append(image_id))
    (tmp_path / "ids.json").write_text('["images/a.jpg"]')
    metric = make_metric(tmp_path, image_ids="ids.json")
    update(metric, image_of(1), detections(BOXES[:1], [1], [0.9]))
    assert names == ["images/a.jpg"]


def test_ids_that_are_text_are_those_of_the_source(tmp_path):
    (tmp_path / "ids.json").write_text('["frame_a", "7"]')
    metric = make_metric(tmp_path, category_ids=["round", 7, "c"], image_ids="ids.json")
    for number in (2, 1):
        update(metric, image_of(number), detections(BOXES[:2], [1, 0], [0.9, 0.8]))
    found = json.loads(metric.files()["detections.json"])
    assert [(one["image_id"], one["category_id"]) for one in found] == [
        ("7", 7),
        ("7", "round"),
        ("frame_a", 7),
        ("frame_a", "round"),
    ]
    assert metric.result()["AP50"] < 1


def test_images_of_two_splits_may_have_one_id(tmp_path):
    (tmp_path / "ids.json").write_text('["a", "a"]')
    metric = make_metric(tmp_path, image_ids="ids.json")
    update(metric, image_of(2), detections(BOXES[:1], [1], [0.9]))
    assert [one["image_id"] for one in json.loads(metric.files()["detections.json"])] == ["a"]


@pytest.mark.parametrize(
    "content", [None, "{", "7", '"ab"', '{"a": 1}', "[true]", "[[1]]", "[" * 10**5]
)
def test_the_file_of_ids_is_missing_or_invalid(tmp_path, content):
    if content:
        (tmp_path / "ids.json").write_text(content)
    with pytest.raises(ModelError, match=r"ids\.json, which has the ids of the images, cannot be"):
        make_metric(tmp_path, image_ids="ids.json")


def test_pycocotools_is_missing(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pycocotools", None)
    with pytest.raises(ModelError, match=r"average precision needs pycocotools: tools/setup\.sh"):
        make_metric()


class Evaluation:
    """Collects what a report writes."""

    step = 5

    def __init__(self):
        self.files, self.images, self.texts = {}, {}, {}

    def write_file(self, name, content):
        self.files[name] = content

    def write_image(self, tag, png):
        self.images[tag] = png

    def write_text(self, tag, markdown):
        self.texts[tag] = markdown


def test_the_report_shows_curves_and_pictures():
    metric, evaluation = make_metric(), Evaluation()
    random = np.random.default_rng(0)
    encoded = io.BytesIO()
    Image.new("RGB", (150, 150)).save(encoded, "JPEG")
    for number in range(12):
        pixels = np.zeros([150, 150, 1], np.uint8) if number % 2 else encoded.getvalue()
        update(metric, *random_image(random, number), image=pixels)
    assert isinstance(metric, Report)
    classes = metric.write(evaluation)["classes"]
    assert set(classes) == set(NAMES)
    assert set(evaluation.files) == {
        *("precision_recall_5.png", "first_detections_5.png", "worst_detections_5.png"),
        "classes_5.txt",
    }
    assert set(evaluation.images) == {
        *("detection/precision_recall", "detection/first_detections"),
        "detection/worst_detections",
    }
    for png in evaluation.images.values():
        assert Image.open(io.BytesIO(png)).mode == "RGB"
    assert evaluation.texts["detection/classes"].count("\n") == 1 + len(NAMES)
    assert metric.text(evaluation).splitlines()[0].split() == [
        "class",
        "AP",
        "AP50",
        "AP75",
        "boxes",
    ]


def test_without_pictures_only_the_curves_are_drawn():
    metric, evaluation = make_metric(), Evaluation()
    update(metric, image_of(), detections())
    metric.write(evaluation)
    assert set(evaluation.images) == {"detection/precision_recall"}


def one_side(boxes, classes, is_crowd=None):
    arrays = {"boxes": np.array(boxes, np.float32).reshape(-1, 4), "classes": np.array(classes)}
    return {**arrays, "is_crowd": np.array(is_crowd or [0] * len(classes))}


def test_errors_are_missed_boxes_and_wrong_detections():
    truth = one_side(BOXES, [0, 1, 0])
    assert report.num_errors(truth, one_side(BOXES, [0, 1, 0])) == 0
    assert report.num_errors(truth, one_side([], [])) == 3
    assert report.num_errors(truth, one_side(BOXES, [0, 0, 0])) == 2  # of another class
    assert report.num_errors(truth, one_side(BOXES[[0, 0]], [0, 0])) == 3  # a second one
    crowd = one_side(BOXES, [0, 1, 0], [0, 1, 0])
    assert report.num_errors(crowd, one_side([[31, 101, 40, 110]], [1])) == 2
