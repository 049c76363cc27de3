"""Assignment of boxes to anchors, against a loop over anchors and by hand."""

import numpy as np
import pytest
import tensorflow as tf

from models.detection import assignment
from models.layers import device

PARAMS = assignment.default_params()
ROW = np.array([[0, 10 * i, 10, 10 * i + 10] for i in range(5)], np.float32)  # side by side


def assign(session, anchors, boxes, classes, is_crowd=None, tpu=False, **changes):
    labels = {
        "boxes": tf.constant(np.array(boxes, np.float32)[np.newaxis]),
        "classes": tf.constant([classes]),
        "is_crowd": tf.constant([is_crowd or [0] * len(classes)]),
    }
    with device.scope({"use_tpu": tpu}):
        targets = assignment.assign(tf.constant(anchors), labels, {**PARAMS, **changes})
    found = session.run(targets)
    return found.classes[0].tolist(), found.boxes[0]


def test_an_anchor_gets_the_class_and_the_box_that_it_covers(session):
    classes, boxes = assign(session, ROW, [[0, 11, 10, 20], [0, 30, 10, 40]], [7, 2])
    assert classes == [-1, 7, -1, 2, -1]
    np.testing.assert_array_equal(boxes[[1, 3]], [[0, 11, 10, 20], [0, 30, 10, 40]])


def test_an_anchor_between_the_thresholds_is_ignored(session):
    anchors = np.array([[0, 0, 10, 10], [0, 0, 4.5, 10], [0, 0, 3, 10]], np.float32)
    classes, _ = assign(session, anchors, [[0, 0, 10, 10]], [3])  # IoU 1, 0.45, 0.3
    assert classes == [3, assignment.IGNORED, assignment.BACKGROUND]


def test_the_first_of_two_boxes_gets_the_anchor_that_is_the_best_of_both(session):
    classes, _ = assign(session, ROW, [[0, 0, 4.5, 10], [0, 0, 10, 10]], [1, 0])
    assert classes == [1, -1, -1, -1, -1]


def test_the_best_anchor_of_a_box_gets_it_however_small_the_overlap(session):
    classes, boxes = assign(session, ROW, [[4, 34, 5, 35]], [1])
    assert classes == [-1, -1, -1, 1, -1]
    np.testing.assert_array_equal(boxes[3], [4, 34, 5, 35])


def test_a_box_outside_of_all_anchors_has_none(session):
    assert assign(session, ROW, [[20, 0, 30, 10]], [1])[0] == [-1] * 5


def test_padding_is_not_assigned(session):
    assert assign(session, ROW, [[0, 0, 10, 10], [0, 0, 0, 0]], [-1, -1])[0] == [-1] * 5


def test_anchors_inside_a_crowd_are_ignored_but_not_those_of_a_box(session):
    crowd, box = [0, 5, 10, 50], [0, 20, 10, 30]
    classes, _ = assign(session, ROW, [crowd, box], [0, 4], [1, 0])
    assert classes == [-2, -2, 4, -2, -2]
    classes, _ = assign(session, ROW, [crowd, box], [0, 4], [1, 0], crowd_overlap=0.6)
    assert classes == [-1, -2, 4, -2, -2]
    classes, _ = assign(session, ROW, [crowd, box], [-1, 4], [1, 0])  # padding is no crowd
    assert classes == [-1, -1, 4, -1, -1]


def reference(anchors, boxes, classes):
    """A loop over anchors and boxes of one image."""

    def iou(a, b):
        height, width = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
        if height <= 0 or width <= 0:
            return 0.0
        areas = [(c[2] - c[0]) * (c[3] - c[1]) for c in (a, b)]
        return height * width / (sum(areas) - height * width)

    table = np.array([[iou(anchor, box) for box in boxes] for anchor in anchors])
    found, matched = [], []
    for row in table:
        best = int(np.argmax(row))
        matched.append(best)
        is_positive = row[best] >= PARAMS["positive_iou"]
        is_ignored = row[best] >= PARAMS["negative_iou"]
        found.append(classes[best] if is_positive else -2 if is_ignored else -1)
    for i in reversed(range(len(boxes))):
        best = int(np.argmax(table[:, i]))
        if table[best, i] > 0:
            found[best], matched[best] = classes[i], i
    return found, matched


@pytest.mark.parametrize("tpu", [False, True])
def test_equals_a_loop_over_random_boxes(session, tpu):
    random = np.random.default_rng(1)
    corners = np.sort(random.uniform(0, 40, [2, 90, 2, 2]), axis=2).reshape(2, 90, 4)
    anchors, boxes = corners[0].astype(np.float32), corners[1, :13].astype(np.float32)
    classes = random.integers(0, 5, 13).tolist()
    expected, matched = reference(anchors.astype(float), boxes.astype(float), classes)
    found, found_boxes = assign(session, anchors, boxes, classes, tpu=tpu)
    assert found == expected
    positive = np.array(found) >= 0
    assert positive.sum() >= 13
    assert assignment.IGNORED in found
    np.testing.assert_array_equal(found_boxes[positive], boxes[matched][positive])


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_tpu_selects_rows_exactly(session, jit_compile):
    random = np.random.default_rng(2)
    rows = (random.normal(size=[2, 7, 5]) * 10.0 ** random.integers(-6, 7, [2, 7, 5])).astype("f4")
    index = random.integers(0, 7, [2, 13])

    @tf.function(jit_compile=jit_compile, autograph=False)
    def select():
        with device.scope({"use_tpu": True}):
            return assignment.select(tf.constant(rows), tf.constant(index))

    expected = np.take_along_axis(rows, index[..., np.newaxis], axis=1)
    np.testing.assert_array_equal(session.run(select()), expected)
