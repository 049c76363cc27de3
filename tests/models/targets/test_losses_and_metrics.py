"""Losses, streaming metrics and predictions of several labels and of numbers, judged by Keras."""

import re

import numpy as np
import pytest
import tensorflow as tf
from sklearn import metrics

from models import targets
from models.model import ModelError
from models.targets import multilabel, regression
from tests import numerics

RANDOM = np.random.default_rng(5)
LOGITS = RANDOM.normal(size=[13, 4]).astype(np.float32)
LABELS = RANDOM.integers(0, 2, [13, 4]).astype(np.float32)
NUMBERS = RANDOM.normal([3, -2], [5, 1], [13, 2]).astype(np.float32)
PARAMS = {**targets.default_params(), "num_classes": 4, "target": "multilabel"}
OF_NUMBERS = {**PARAMS, "target": "regression", "num_classes": 2}
# Exponential, logarithm, sum over the classes.
SIGMOID = {"terms": 4, "depth": 8}


def evaluate(session, module, labels, outputs, params, counted):
    """The streaming metrics of two batches, 8 and 5 examples."""
    fed = {key: tf.compat.v1.placeholder(tf.float32, [None, *value.shape[1:]])
           for key, value in outputs.items()}  # fmt: skip
    truth = tf.compat.v1.placeholder(tf.float32, [None, labels.shape[1]])
    weights = tf.compat.v1.placeholder(tf.float32, [None])
    found = module.metrics(truth, fed, weights, params)
    session.run(tf.compat.v1.local_variables_initializer())
    for rows in (slice(0, 8), slice(8, 13)):
        feed = {tensor: outputs[key][rows] for key, tensor in fed.items()}
        feed.update({truth: labels[rows], weights: counted[rows]})
        session.run([update for _, update in found.values()], feed)
    return session.run({name: value for name, (value, _) in found.items()})


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_sigmoid_cross_entropy_is_that_of_keras(session, smoothing):
    params = {**PARAMS, "label_smoothing": smoothing}
    (name, loss), *_ = targets.losses({}, LABELS, {"logits": tf.constant(LOGITS)}, params).items()
    keras = tf.keras.losses.BinaryCrossentropy(True, smoothing, reduction="none")
    ours, theirs = session.run([loss.values, keras(LABELS, LOGITS)])
    assert name == "sigmoid_cross_entropy"
    numerics.assert_close(ours, theirs, **SIGMOID)


@pytest.mark.parametrize(("alpha", "gamma"), [(0.25, 2.0), (0.6, 0.5)])
def test_the_focal_loss_is_that_of_keras(session, alpha, gamma):
    params = {**PARAMS, "loss": "focal", "focal_alpha": alpha, "focal_gamma": gamma}
    loss = targets.losses({}, LABELS, {"logits": tf.constant(LOGITS)}, params)["focal"]
    keras = tf.keras.losses.BinaryFocalCrossentropy(
        True, alpha, gamma, from_logits=True, reduction="none"
    )
    numerics.assert_close(*session.run([loss.values, keras(LABELS, LOGITS)]), **SIGMOID)


def test_class_weights_weight_the_mean_over_the_labels(session):
    params = {**PARAMS, "class_weights": "[1,5,2,0]"}
    outputs = {"logits": tf.constant(LOGITS)}
    loss = targets.losses({}, LABELS, outputs, params)["sigmoid_cross_entropy"]
    each = tf.nn.sigmoid_cross_entropy_with_logits(LABELS, LOGITS)
    ours, each = session.run([loss.values, each])
    numerics.assert_close(ours, np.average(each, axis=1, weights=[1, 5, 2, 0]), **SIGMOID)
    assert loss.weights is None


def test_f1_and_exact_match_are_those_of_scikit_learn(session):
    counted = (np.arange(13) % 3 > 0).astype(np.float32)
    params = {**PARAMS, "threshold": (0.3, 0.5, 0.6, 0.999)}  # the last class is never predicted
    found = evaluate(session, multilabel, LABELS, {"logits": LOGITS}, params, counted)
    guesses = 1 / (1 + np.exp(-LOGITS)) >= params["threshold"]
    truth, guesses = LABELS[counted > 0] > 0, guesses[counted > 0]
    for mean in ("micro", "macro"):
        expected = metrics.f1_score(truth, guesses, average=mean, zero_division=0)
        assert found[f"{mean}_f1"] == pytest.approx(expected, rel=1e-12)
    assert found["exact_match"] == pytest.approx(metrics.accuracy_score(truth, guesses))


def test_predicted_labels_are_probabilities_from_the_threshold_on(session):
    outputs = {"logits": tf.constant(LOGITS)}
    found = session.run(targets.predictions({}, outputs, {**PARAMS, "threshold": (0.3,)}))
    numerics.assert_close(found["probabilities"], 1 / (1 + np.exp(-LOGITS)), **SIGMOID)
    np.testing.assert_array_equal(found["labels"], found["probabilities"] >= np.float32(0.3))


def outputs_of_numbers(session, logits, **params):
    outputs = regression.outputs({"logits": tf.constant(logits)}, {**OF_NUMBERS, **params})
    session.run(tf.compat.v1.global_variables_initializer())
    return outputs


def test_numbers_have_the_mean_and_the_scale_of_the_training_data(session):
    scaling = {"target_mean": (100.0, -7.0), "target_scale": (50.0, 0.5)}
    outputs = outputs_of_numbers(session, LOGITS[:, :2], **scaling)
    numbers = session.run(targets.predictions({}, outputs, OF_NUMBERS)["numbers"])
    numerics.assert_close(numbers, LOGITS[:, :2] * [50, 0.5] + [100, -7], terms=2)
    assert not tf.compat.v1.trainable_variables()


def names_of_dataset_variables(**params):
    outputs = {"logits": tf.constant(LOGITS)}
    targets.inference(lambda *_: outputs)({}, params, True)
    patterns = targets.dataset_variables(params)
    names = [variable.op.name for variable in tf.compat.v1.global_variables()]
    return [name for name in names if any(re.fullmatch(pattern, name) for pattern in patterns)]


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [
        ({"target_mean": (9.0,) * 4, "target_scale": (7.0,) * 4}, ["target/mean", "target/scale"]),
        ({}, []),
    ],
)
def test_mean_and_scale_are_those_of_the_data_set_if_it_has_them(scaling, expected):
    params = {**PARAMS, "target": "regression", **scaling}
    assert names_of_dataset_variables(**params) == expected


def test_other_targets_have_no_variables_of_the_data_set():
    assert names_of_dataset_variables(**PARAMS) == []


@pytest.mark.parametrize("loss", ["squared_error", "huber"])
def test_losses_of_numbers_are_those_of_keras_in_standard_deviations(session, loss):
    scaling = {"target_mean": (100.0, -7.0), "target_scale": (50.0, 0.5)}
    outputs = outputs_of_numbers(session, LOGITS[:, :2], **scaling)
    params = {**OF_NUMBERS, "loss": loss, "huber_delta": 0.7}
    ours = targets.losses({}, NUMBERS, outputs, params)[loss].values
    keras = {
        "squared_error": tf.keras.losses.MeanSquaredError("none"),
        "huber": tf.keras.losses.Huber(0.7, "none"),
    }[loss]
    scaled = (NUMBERS - [100, -7]) / [50, 0.5]
    ours, theirs = session.run([ours, keras(scaled.astype(np.float32), LOGITS[:, :2])])
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_errors_of_numbers_are_those_of_scikit_learn(session):
    counted = (np.arange(13) % 3 > 0).astype(np.float32)
    outputs = {"numbers": LOGITS[:, :2]}
    found = evaluate(session, regression, NUMBERS, outputs, OF_NUMBERS, counted)
    truth, numbers = NUMBERS[counted > 0], LOGITS[counted > 0, :2]
    expected = {
        "mean_absolute_error": metrics.mean_absolute_error(truth, numbers),
        "root_mean_squared_error": metrics.root_mean_squared_error(truth, numbers),
    }
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"target": "boxes"}, "target=boxes must be one of classification, soft_labels, multila"),
        ({"loss": "huber"}, "loss=huber must be one of default, sigmoid_cross_entropy, focal for"),
        ({"threshold": (0.5, 0.5)}, r"must be one number in \(0, 1\), or 4 of them"),
        ({"threshold": (1.0,)}, "threshold="),
        ({"focal_alpha": 1.0}, "focal_alpha=1.0 must be in"),
        ({"target_mean": (1.0,)}, "must have 4 numbers"),
    ],
)
def test_invalid_hyperparameters_are_refused(params, message):
    with pytest.raises(ModelError, match=message):
        targets.check_params({**PARAMS, **params})


def test_hyperparameters_that_a_loss_does_not_read():
    assert targets.unused_params({**PARAMS, "loss": "focal"}) == {
        "huber_delta": "loss",
        "label_smoothing": "loss",
    }
    unused = targets.unused_params({**OF_NUMBERS, "loss": "huber"})
    assert unused.keys() == {
        *("focal_gamma", "focal_alpha", "threshold", "label_smoothing", "class_weights")
    }
