"""Class weights: their values, and the weight of each example, against scikit-learn and NumPy."""

import numpy as np
import pytest
import tensorflow as tf
from sklearn.utils.class_weight import compute_class_weight

from common.constants import EXAMPLE_WEIGHT
from models.layers import class_weights
from models.model import ModelError
from tests import numerics

WEIGHTS = np.array([0.5, 3, 2, 0])
LABELS = np.array([0, 3, 1, 1, 2])


def params(value="[0.5,3,2,0]", smoothing=0.0):
    return {"class_weights": value, "num_classes": 4, "label_smoothing": smoothing}


def values(text):
    return [float(number) for number in text[1:-1].split(",")]


def test_balanced_weights_are_those_of_scikit_learn():
    labels = np.repeat([0, 1, 3], [50, 7, 1])
    expected = compute_class_weight("balanced", classes=np.unique(labels), y=labels)
    found = class_weights.from_counts("balanced", np.bincount(labels, minlength=5))
    np.testing.assert_allclose(values(found), [*expected[:2], 0, expected[2], 0], rtol=1e-15)


@pytest.mark.parametrize("beta", [0.9, 0.99999])
def test_effective_weights_are_those_of_the_paper(beta):
    counts = [5000, 100, 3]
    # 1 + B + B^2 + ..., the effective number of examples.
    inverse = np.array([1 / np.sum(beta ** np.arange(count)) for count in counts])
    found = class_weights.from_counts(f"effective:{beta}", counts)
    np.testing.assert_allclose(values(found), inverse / inverse.sum() * 3, rtol=1e-9)


def test_effective_weights_are_between_none_and_the_inverse_of_the_count():
    assert values(class_weights.from_counts("effective:0", [7, 1])) == [1, 1]
    ratio = np.divide(*values(class_weights.from_counts("effective:0.9999999999", [7, 1])))
    assert ratio == pytest.approx(1 / 7)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("mixed", [False, True])
def test_an_example_has_the_mean_weight_of_its_probabilities(session, smoothing, mixed):
    probabilities = np.eye(4)[LABELS]
    if mixed:
        probabilities = 0.7 * probabilities + 0.3 * probabilities[::-1]
    labels = tf.constant(probabilities, tf.float32) if mixed else tf.constant(LABELS, tf.int32)
    found = class_weights.of_examples({}, labels, params(smoothing=smoothing))
    expected = ((1 - smoothing) * probabilities + smoothing / 4) @ WEIGHTS
    numerics.assert_close(session.run(found), expected, terms=4, depth=3)


def test_an_evaluation_has_no_weights():
    features = {EXAMPLE_WEIGHT: tf.ones([5])}
    assert class_weights.of_examples(features, tf.constant(LABELS), params()) is None
    assert class_weights.of_examples({}, tf.constant(LABELS), params("none")) is None


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("[1,2,3]", r"class_weights=\[1,2,3\] has 3 weights for 4 classes"),
        ("[1,2,-3,1]", "must not be below 0"),
        ("[0,0,0,0]", "one must be above 0"),
        ("[1,2,a,1]", "is not a list of numbers"),
        ("[1,2,,1]", "is not a list of numbers"),
        ("[1,2,nan,1]", "is not a list of numbers"),
        ("1", "class_weights=1 is unknown. Valid: "),
        ("balance", "class_weights=balance is unknown. Did you mean 'balanced'?"),
        ("effective", r"class_weights=effective needs a number in \[0, 1\)"),
        ("effective:1", r"class_weights=effective:1 needs a number in \[0, 1\)"),
    ],
)
def test_an_invalid_value_is_an_error(value, message):
    with pytest.raises(ModelError, match=message):
        class_weights.check_params(params(value))


def test_weights_of_unknown_counts_are_an_error():
    class_weights.check_params(params("balanced"))
    with pytest.raises(ModelError, match="depends on the examples of each class"):
        class_weights.of_examples({}, tf.constant(LABELS), params("balanced"))
