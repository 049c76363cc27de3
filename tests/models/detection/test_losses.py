"""Losses of a detector: which anchors count."""

import numpy as np
import pytest
import tensorflow as tf

from models.detection import assignment, losses
from models.model import ModelError

PARAMS = {**losses.default_params(), **assignment.default_params()}
ANCHORS = np.array([[0, 10 * i, 10, 10 * i + 10] for i in range(4)], np.float32)


def compute(session, boxes, classes, logits, codes=None, is_crowd=None):
    shape = [len(classes), len(ANCHORS), 4]
    terms = losses.detection_losses(
        tf.constant(ANCHORS),
        {
            "boxes": tf.constant(boxes, tf.float32),
            "classes": tf.constant(classes),
            "is_crowd": tf.constant(is_crowd or np.zeros_like(classes)),
        },
        tf.split(tf.constant(logits, tf.float32), [3, 1], axis=1),
        [tf.zeros(shape) if codes is None else codes],
        PARAMS,
    )
    return session.run({name: (term.values, term.weights) for name, term in terms.items()})


def test_an_image_without_boxes_counts_as_one_positive_anchor(session):
    logits = np.zeros([1, 4, 2])
    found = compute(session, np.zeros([1, 3, 4]), [[-1] * 3], logits)
    each = 0.75 * 0.5**1.5 * np.log(2)
    np.testing.assert_allclose(found["class"], ([8 * each], [1]), rtol=1e-6)
    np.testing.assert_array_equal(found["box"], ([0], [0]))


def test_losses_are_divided_by_the_number_of_positive_anchors(session):
    boxes = [[[0, 0, 10, 10], [0, 20, 10, 30], [0, 0, 0, 0]]]
    # Nearly sure and right, but for class 1 of anchor 0.
    logits = np.full([1, 4, 2], -40.0)
    logits[0, 0, 0] = logits[0, 2, 1] = 40
    logits[0, 0, 1] = 0
    found = compute(session, boxes, [[0, 1, -1]], logits)
    np.testing.assert_allclose(found["class"], ([0.75 * 0.5**1.5 * np.log(2) / 2], [2]), rtol=1e-6)


def test_only_positive_anchors_have_a_box_loss(session):
    codes = tf.ones([1, 4, 4])
    found = compute(session, [[[0, 0, 10, 10]]], [[0]], np.zeros([1, 4, 1]), codes)
    np.testing.assert_allclose(found["box"], ([0.1 * (1 - 0.05)], [1]), rtol=1e-6)


def test_ignored_anchors_have_no_loss(session):
    crowd = [[0, 0, 10, 40]]
    found = compute(session, [crowd], [[0]], np.zeros([1, 4, 1]), is_crowd=[[1]])
    np.testing.assert_array_equal(found["class"], ([0], [1]))


def test_gradients_are_finite_for_boxes_without_an_area(session):
    codes = tf.zeros([1, 4, 4])
    labels = {
        "boxes": tf.constant([[[0.0, 0, 0, 0], [5, 5, 5, 5]]]),
        "classes": tf.constant([[-1, 1]]),
        "is_crowd": tf.constant([[0, 0]]),
    }
    logits = tf.zeros([1, 4, 2])
    terms = losses.detection_losses(tf.constant(ANCHORS), labels, [logits], [codes], PARAMS)
    total = tf.add_n([term.values for term in terms.values()])
    assert all(
        np.isfinite(array).all() for array in session.run(tf.gradients(total, [codes, logits]))
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [("focal_alpha", 1.0), ("focal_gamma", -1.0), ("huber_delta", 0.0), ("box_loss_weight", -1.0)],
)
def test_invalid_hyperparameters(name, value):
    with pytest.raises(ModelError, match=f"{name}={value} must be"):
        losses.check_params({**PARAMS, name: value})
