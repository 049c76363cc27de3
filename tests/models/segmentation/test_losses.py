"""Losses of pixels against sums in NumPy, with ignored pixels and class weights."""

import numpy as np
import pytest
import tensorflow as tf

from common.constants import IGNORED_CLASS
from models.layers import device
from models.segmentation import segmentation
from tests import numerics

NUM_CLASSES = 4
WEIGHTS = (0.5, 2.0, 0.0, 3.0)
RANDOM = np.random.default_rng(3)
LOGITS = RANDOM.normal(size=[5, 7, 3, NUM_CLASSES]).astype(np.float32)
LABELS = RANDOM.integers(0, NUM_CLASSES, [5, 7, 3]).astype(np.uint8)
LABELS[0] = IGNORED_CLASS  # an image without labeled pixels
LABELS[1, :6] = IGNORED_CLASS
LABELS[2][LABELS[2] == 1] = 3  # an image without a class
PROBABILITIES = np.exp(LOGITS) / np.exp(LOGITS.astype(np.float64)).sum(-1, keepdims=True)
# Softmax and logarithm of 4 classes, and a mean over up to 21 pixels.
ARITHMETIC = {"terms": 21, "depth": 8}


def run(function, *args):
    with tf.compat.v1.Session() as session:
        return session.run(function(tf.constant(LABELS), tf.constant(LOGITS), *args))


def pixels_of(image):
    """Yields (class, probability of it) of the labeled pixels of an image."""
    for row, column in np.argwhere(LABELS[image] != IGNORED_CLASS):
        label = LABELS[image, row, column]
        yield label, PROBABILITIES[image, row, column, label]


@pytest.mark.parametrize("use_tpu", [False, True])
@pytest.mark.parametrize("gamma", [0.0, 2.0, 0.5])
@pytest.mark.parametrize("class_weights", [(), WEIGHTS])
def test_cross_entropy_and_focal_loss_are_means_over_labeled_pixels(gamma, class_weights, use_tpu):
    with device.scope({"use_tpu": use_tpu}):
        values, weights = run(segmentation.cross_entropy, class_weights, gamma)
    table = class_weights or np.ones(NUM_CLASSES)
    for image in range(len(LABELS)):
        found = [(table[c], -((1 - p) ** gamma) * np.log(p)) for c, p in pixels_of(image)]
        weight = sum(part[0] for part in found)
        expected = sum(w * loss for w, loss in found) / weight if weight else 0
        numerics.assert_close(weights[image], weight, **ARITHMETIC)
        numerics.assert_close(values[image], expected, **ARITHMETIC, magnitude=4)


@pytest.mark.parametrize("class_weights", [(), WEIGHTS])
def test_dice_is_a_mean_over_the_classes_of_an_image(class_weights):
    values, weights = run(segmentation.dice, class_weights)
    table = class_weights or np.ones(NUM_CLASSES)
    for image in range(len(LABELS)):
        is_labeled = LABELS[image] != IGNORED_CLASS
        present = [c for c in range(NUM_CLASSES) if (LABELS[image] == c).any()]
        total = 0.0
        for c in present:
            p, t = PROBABILITIES[image, ..., c][is_labeled], LABELS[image][is_labeled] == c
            total += table[c] * (1 - 2 * p[t].sum() / (p.sum() + t.sum()))
        weight = sum(table[c] for c in present)
        numerics.assert_close(weights[image], weight, **ARITHMETIC)
        expected = total / weight if weight else 0
        numerics.assert_close(values[image], expected, **ARITHMETIC, magnitude=1)
    assert weights[0] == 0
    assert weights[2] == pytest.approx(sum(table) - table[1])


@pytest.mark.parametrize(
    "function",
    [
        segmentation.cross_entropy,
        segmentation.dice,
        lambda *args: segmentation.cross_entropy(*args, (), 2.0),
    ],
    ids=["cross_entropy", "dice", "focal"],
)
def test_ignored_pixels_get_no_gradient_and_labeled_ones_do(function, session):
    logits = tf.constant(LOGITS)
    values, weights = function(tf.constant(LABELS), logits)
    (gradient,) = session.run(tf.gradients(tf.reduce_sum(values * weights), logits))
    is_labeled = LABELS != IGNORED_CLASS
    assert not gradient[~is_labeled].any()
    assert np.abs(gradient[is_labeled]).max(-1).min() > 0


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
def test_the_focal_loss_of_a_certain_prediction_has_a_finite_gradient(gamma, session):
    logits = tf.constant([[[[200.0, 0.0]]]])
    values, _ = segmentation.cross_entropy(tf.zeros([1, 1, 1], tf.uint8), logits, (), gamma)
    loss, (gradient,) = session.run((values, tf.gradients(values, logits)))
    assert loss == 0
    assert np.isfinite(gradient).all()


def test_a_label_without_a_class_is_an_error_and_not_a_wrong_loss(session):
    labels = tf.fill([1, 2, 2], tf.constant(NUM_CLASSES, tf.uint8))
    values, _ = segmentation.cross_entropy(labels, tf.zeros([1, 2, 2, NUM_CLASSES]))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"not a class:.*4"):
        session.run(values)


def test_on_a_tpu_it_makes_the_loss_nan(session):
    labels = tf.constant([[[0, NUM_CLASSES]]], tf.uint8)
    with device.scope({"use_tpu": True}):
        values, _ = segmentation.cross_entropy(labels, tf.zeros([1, 1, 2, NUM_CLASSES]))
    assert np.isnan(session.run(values)).all()
