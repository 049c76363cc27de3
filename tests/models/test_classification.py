"""Loss, metrics and predictions of classifiers, judged by Keras and scikit-learn."""

import numpy as np
import pytest
import tensorflow as tf
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score, matthews_corrcoef

from models import classification
from tests import numerics

LOGITS = np.random.default_rng(1).normal(size=[13, 4]).astype(np.float32)
LABELS = (np.arange(13) % 4).astype(np.int32)
# Peak, power, sum, logarithm or share, product with the targets, difference.
SOFTMAX = {"terms": 5, "depth": 6}


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_that_of_keras_one_an_example(session, eager, smoothing):
    with session.graph.as_default():
        outputs, params = {"logits": tf.constant(LOGITS)}, {"label_smoothing": smoothing}
        losses = classification.losses({}, tf.constant(LABELS), outputs, params)
        ours = session.run(losses["cross_entropy"].values)
    keras = tf.keras.losses.CategoricalCrossentropy(
        from_logits=True, label_smoothing=smoothing, reduction="none"
    )
    assert ours.shape == (13,)
    numerics.assert_close(ours, keras(tf.one_hot(LABELS, 4), LOGITS).numpy(), **SOFTMAX)


def test_metrics_count_only_weighted_examples_over_all_batches(session):
    labels = tf.compat.v1.placeholder(tf.int32, [None])
    logits = tf.compat.v1.placeholder(tf.float32, [None, 4])
    weights = tf.compat.v1.placeholder(tf.float32, [None])
    metrics = classification.metrics(labels, {"logits": logits}, weights, {})
    session.run(tf.compat.v1.local_variables_initializer())
    counts = (np.arange(13) % 3 > 0).astype(np.float32)
    for rows in (slice(0, 8), slice(8, 13)):
        feed = {labels: LABELS[rows], logits: LOGITS[rows], weights: counts[rows]}
        session.run([update for _, update in metrics.values()], feed)
    values = session.run({name: value for name, (value, _) in metrics.items()})
    truth, guesses = LABELS[counts > 0], LOGITS.argmax(axis=1)[counts > 0]
    assert values["accuracy"] == pytest.approx(accuracy_score(truth, guesses))
    np.testing.assert_array_equal(values["confusion_matrix"], confusion_matrix(truth, guesses))


def test_predictions_are_classes_and_probabilities(session):
    predictions = session.run(classification.predictions({}, {"logits": tf.constant(LOGITS)}, {}))
    np.testing.assert_array_equal(predictions["classes"], LOGITS.argmax(axis=1))
    exponentials = np.exp(LOGITS.astype(np.float64))
    softmax = exponentials / exponentials.sum(axis=1, keepdims=True)
    numerics.assert_close(predictions["probabilities"], softmax, **SOFTMAX)


def test_class_probabilities_as_labels(session):
    """Mixed labels give the mix of the losses, with label smoothing too (Keras' definition)."""
    logits = np.random.default_rng(1).normal(size=[13, 5]).astype(np.float32)
    probabilities = np.random.default_rng(2).dirichlet(np.ones(5), 13).astype(np.float32)
    for smoothing in (0.0, 0.1):
        params = {"label_smoothing": smoothing}
        outputs = {"logits": tf.constant(logits)}
        losses = classification.losses({}, tf.constant(probabilities), outputs, params)[
            "cross_entropy"
        ].values
        wanted = tf.keras.losses.categorical_crossentropy(
            probabilities, logits, from_logits=True, label_smoothing=smoothing
        )
        numerics.assert_close(*session.run((losses, wanted)), **SOFTMAX)


def test_the_largest_share_counts_as_the_label(session):
    probabilities = tf.constant([[0.6, 0.4], [0.1, 0.9], [0.8, 0.2]])
    logits = tf.constant([[2.0, 1.0], [2.0, 1.0], [2.0, 1.0]])
    metrics = classification.metrics(probabilities, {"logits": logits}, tf.ones([3]), {})
    session.run(tf.compat.v1.local_variables_initializer())
    numerics.assert_close(session.run(metrics["accuracy"][1]), 2 / 3)


@pytest.mark.parametrize("num_classes", [2, 3])
def test_f1_and_matthews_correlation_are_those_of_scikit_learn(session, num_classes):
    random = np.random.default_rng(num_classes)
    labels, classes = random.integers(0, num_classes, [2, 13])
    matrix = tf.constant(confusion_matrix(labels, classes))
    average = "binary" if num_classes == 2 else "macro"
    wanted = f1_score(labels, classes, average=average), matthews_corrcoef(labels, classes)
    found = session.run([classification.f1(matrix), classification.matthews_correlation(matrix)])
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_predictions_of_one_class_have_no_correlation(session):
    matrix = tf.constant([[0, 5], [0, 8]])
    found = session.run([classification.f1(matrix), classification.matthews_correlation(matrix)])
    np.testing.assert_allclose(found, [16 / 21, 0])
