"""Cross-entropy, against Keras' own."""

import numpy as np
import pytest
import tensorflow as tf

from models.layers import device, losses
from tests import numerics

CLASSES = 11


@pytest.fixture
def keras():
    """Keras' loss of each example, and its gradient, from class probabilities."""

    def compute(probabilities, logits, label_smoothing):
        loss = tf.keras.losses.CategoricalCrossentropy(
            from_logits=True, label_smoothing=label_smoothing, reduction="none"
        )
        value = loss(probabilities, logits)
        return value, tf.gradients(value, logits)[0]

    return compute


def one_hot(labels):
    return np.eye(CLASSES, dtype=np.float32)[labels]


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("scale", [1.0, 300.0], ids=["usual logits", "huge logits"])
@pytest.mark.parametrize("mixed", [False, True], ids=["classes", "class probabilities"])
@pytest.mark.parametrize("use_tpu", [False, True])
def test_values_and_gradients(session, keras, label_smoothing, scale, mixed, use_tpu):
    random = np.random.default_rng(1)
    labels = random.integers(0, CLASSES, [13, 7]).astype(np.int32)
    probabilities = one_hot(labels)
    if mixed:
        labels = probabilities = 0.3 * probabilities + 0.7 * one_hot(
            random.integers(0, CLASSES, [13, 7])
        )
    logits = tf.constant(scale * random.standard_normal([13, 7, CLASSES]), tf.float32)
    with device.scope({"use_tpu": use_tpu}):
        ours = losses.cross_entropy(tf.constant(labels), logits, label_smoothing)
    gradient = tf.gradients(ours, logits)[0]
    assert ours.shape == [13, 7]
    got, expected = session.run([(ours, gradient), keras(probabilities, logits, label_smoothing)])
    # Peak, power, sum, logarithm or quotient, product with the probabilities, difference. Values
    # are sums of logits, gradients are sums of probabilities.
    arithmetic = {"terms": CLASSES, "depth": 6}
    numerics.assert_close(got[0], expected[0], magnitude=np.abs(expected[0]).max(), **arithmetic)
    numerics.assert_close(got[1], expected[1], magnitude=1, **arithmetic)


@pytest.mark.parametrize("use_tpu", [False, True])
def test_gradients_of_class_probabilities_are_those_of_tensorflow(session, use_tpu):
    """Such as the outputs of another network."""
    random = np.random.default_rng(2)
    logits = tf.constant(random.normal(size=[5, CLASSES]), tf.float32)
    targets = tf.nn.softmax(tf.constant(random.normal(size=[5, CLASSES]), tf.float32))
    with device.scope({"use_tpu": use_tpu}):
        ours = losses.cross_entropy(targets, logits, 0.0)
    theirs = tf.nn.softmax_cross_entropy_with_logits(targets, logits)
    found, expected = session.run([tf.gradients(loss, targets)[0] for loss in (ours, theirs)])
    numerics.assert_close(found, expected, terms=CLASSES, depth=6)


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
