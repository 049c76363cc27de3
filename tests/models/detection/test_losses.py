"""Focal and Huber losses, by their definitions; which anchors count."""

import numpy as np
import pytest
import tensorflow as tf

from models.detection import assignment, losses
from models.model import ModelError

PARAMS = {**losses.default_params(), **assignment.default_params()}
ANCHORS = np.array([[0, 10 * i, 10, 10 * i + 10] for i in range(4)], np.float32)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.5, 2.0])
def test_focal_loss_by_its_definition(session, gamma):
    logits = np.linspace(-9, 9, 13)
    p = 1 / (1 + np.exp(-logits))
    for is_class, right, alpha in ((True, p, 0.3), (False, 1 - p, 0.7)):
        found = losses.sigmoid_focal(is_class, tf.constant(logits, tf.float32), 0.3, gamma)
        expected = -alpha * (1 - right) ** gamma * np.log(right)
        np.testing.assert_allclose(session.run(found), expected, rtol=2e-5, atol=1e-9)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.5, 2.0])
def test_the_gradient_of_the_focal_loss_is_its_derivative(session, gamma):
    logits = tf.linspace(tf.constant(-9.0, tf.float64), 9.0, 13)
    p = tf.sigmoid(logits)
    for is_class, right, alpha in ((True, p, 0.3), (False, 1 - p, 0.7)):
        definition = -alpha * (1 - right) ** gamma * tf.math.log(right)
        found = losses.sigmoid_focal(is_class, tf.cast(logits, tf.float32), 0.3, gamma)
        found, expected = session.run([tf.gradients(x, logits)[0] for x in (found, definition)])
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-8)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_the_gradient_of_the_focal_loss_is_finite_for_any_logit(session, gamma):
    logits = tf.constant([-1e4, -50.0, 0.0, 50.0, 1e4])
    for is_class in (True, False):
        loss = losses.sigmoid_focal(is_class, logits, 0.25, gamma)
        assert np.isfinite(session.run([loss, *tf.gradients(loss, logits)])).all()


def test_huber_loss_is_quadratic_up_to_delta(session):
    found = session.run(losses.huber(tf.constant([0.0, -1, 2, -5]), 2.0))
    np.testing.assert_allclose(found, [0, 0.5, 2, 2 * 5 - 2])


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
