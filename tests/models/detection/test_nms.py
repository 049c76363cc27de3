"""Non-maximum suppression against a greedy loop and TensorFlow's op; the choice of detections."""

import numpy as np
import pytest
import tensorflow as tf

from models.detection import nms
from models.model import ModelError
from tests.detection_data import random_boxes


def greedy(boxes, groups, valid, threshold):
    """Non-maximum suppression of one image as a loop."""
    kept = []
    for i, box in enumerate(boxes):

        def suppresses(j, box=box, group=groups[i]):
            height, width = np.minimum(boxes[j][2:], box[2:]) - np.maximum(boxes[j][:2], box[:2])
            common = max(height, 0) * max(width, 0)
            areas = [(b[2] - b[0]) * (b[3] - b[1]) for b in (boxes[j], box)]
            return groups[j] == group and common > threshold * (sum(areas) - common)

        if valid[i] and not any(suppresses(j) for j in kept):
            kept.append(i)
    return np.isin(np.arange(len(boxes)), kept)


def suppress(session, boxes, groups, valid, threshold):
    return session.run(
        nms.suppress(tf.constant(boxes), tf.constant(groups), tf.constant(valid), threshold)
    )


@pytest.mark.parametrize("threshold", [0.1, 0.5])
def test_equals_a_greedy_loop(session, threshold):
    random = np.random.default_rng(0)
    boxes = random_boxes(random, 5, 60)
    groups = random.integers(0, 2, [5, 60]).astype(np.int32)
    valid = random.uniform(size=[5, 60]) < 0.8
    valid[1] = False
    expected = [greedy(*one, threshold) for one in zip(boxes.astype(float), groups, valid)]
    found = suppress(session, boxes, groups, valid, threshold)
    assert 10 < np.sum(expected) < np.sum(valid)
    np.testing.assert_array_equal(found, expected)


def test_a_chain_in_which_each_box_would_suppress_the_next_keeps_every_second(session):
    boxes = np.array([[[0, 3 * i, 10, 3 * i + 10] for i in range(41)]], np.float32)  # IoU 0.54
    same = np.zeros([1, 41], np.int32)
    kept = suppress(session, boxes, same, np.ones([1, 41], bool), 0.5)
    assert kept[0].tolist() == [i % 2 == 0 for i in range(41)]
    others = np.arange(41, dtype=np.int32)[np.newaxis]
    assert suppress(session, boxes, others, np.ones([1, 41], bool), 0.5).all()


def test_equals_the_op_of_tensorflow(session):
    random = np.random.default_rng(2)
    boxes = random_boxes(random, 1, 200, size=30.0)
    kept = suppress(session, boxes, np.zeros([1, 200], np.int32), np.ones([1, 200], bool), 0.3)
    scores = np.linspace(1, 0, 200, dtype=np.float32)
    expected = session.run(tf.image.non_max_suppression(boxes[0], scores, 200, 0.3))
    assert np.flatnonzero(kept[0]).tolist() == expected.tolist()


# Two anchors side by side and one that covers the first but for a row: IoU 0.9.
ANCHORS = np.array([[0, 0, 10, 10], [0, 20, 10, 30], [1, 0, 10, 10]], np.float32)
PARAMS = {**nms.default_params(), "max_detections": 4, "nms_candidates": 6}


def detect(session, scores, anchors=ANCHORS, info=(100, 100, 1), **changes):
    """Detections from `scores` `[n, num_classes]`, with boxes at the anchors."""
    scores = np.array(scores)
    logits = np.log(scores) - np.log1p(-scores)
    found = nms.detect(
        tf.constant(anchors),
        tf.constant(logits[np.newaxis], tf.float32),
        tf.zeros([1, *anchors.shape]),
        tf.constant([info], tf.float32),
        {**PARAMS, **changes},
    )
    return {name: value[0] for name, value in session.run(found).items()}


def test_detections_are_ordered_by_score_and_padded_with_zeros(session):
    found = detect(session, [[0.2, 0.01], [0.01, 0.9], [0.6, 0.01]])
    assert found["num_detections"] == 2
    assert found["classes"].tolist() == [1, 0, 0, 0]
    np.testing.assert_allclose(found["scores"], [0.9, 0.6, 0, 0], rtol=1e-6)
    np.testing.assert_array_equal(found["boxes"], [ANCHORS[1], ANCHORS[2], [0] * 4, [0] * 4])


def test_boxes_of_other_classes_are_suppressed_if_asked(session):
    scores = [[0.2, 0.1], [0.01, 0.9], [0.01, 0.6]]
    assert detect(session, scores)["num_detections"] == 3
    assert detect(session, scores, nms_class_agnostic=True)["num_detections"] == 2


def test_boxes_are_those_of_the_original_image_and_clipped_to_it(session):
    # An image of 40 x 10 pixels at half of its size: 20 x 5, and padding on its right.
    found = detect(session, [[0.9], [0.8], [0.01]], info=(40, 10, 0.5))
    assert found["num_detections"] == 1  # the second is in the padding
    np.testing.assert_array_equal(found["boxes"][0], [0, 0, 20, 10])


def test_at_most_max_detections_and_candidates(session):
    far = np.array([[0, 20 * i, 10, 20 * i + 10] for i in range(9)], np.float32)
    scores = np.linspace(0.1, 0.9, 9)[:, np.newaxis]
    found = detect(session, scores, far, info=(10, 200, 1))
    assert found["num_detections"] == 4
    np.testing.assert_allclose(found["scores"], [0.9, 0.8, 0.7, 0.6], rtol=1e-6)
    found = detect(session, scores, far, info=(10, 200, 1), max_detections=2, nms_candidates=2)
    np.testing.assert_allclose(found["scores"], [0.9, 0.8], rtol=1e-6)


def test_fewer_pairs_than_detections_are_padded(session):
    found = detect(session, [[0.9]], ANCHORS[:1], max_detections=50, nms_candidates=60)
    assert found["boxes"].shape == (50, 4)
    assert found["num_detections"] == 1


def test_the_best_pairs_are_those_of_all_anchors_and_classes(session):
    logits = np.random.default_rng(0).permutation(2 * 50 * 7).reshape(2, 50, 7).astype(np.float32)
    values, anchors, classes = session.run(nms.best_pairs(tf.constant(logits), 40))
    for row, *found in zip(logits, values, anchors, classes):
        order = np.argsort(-row, axis=None)[:40]
        np.testing.assert_array_equal(found[0], row.ravel()[order])
        np.testing.assert_array_equal(found[1:], np.unravel_index(order, row.shape))


def test_invalid_hyperparameters():
    with pytest.raises(ModelError, match="nms_candidates=50 must be at least max_detections=100"):
        nms.check_params({**nms.default_params(), "nms_candidates": 50})
    with pytest.raises(ModelError, match=r"nms_iou=1.5 must be in \[0, 1\]"):
        nms.check_params({**nms.default_params(), "nms_iou": 1.5})
