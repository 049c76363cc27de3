"""One export, many runtimes: each answers what `Estimator.predict` says."""

import numpy as np
import pytest

from tools import runtimes
from tools.serving_equality import differences

FLOATS = ("probabilities", "score")


def load(name, exported, c_api):
    if runtimes.missing(name):
        pytest.skip(f"needs {runtimes.missing(name)}")
    return c_api(exported) if name == "C API" else runtimes.RUNTIMES[name](exported.path)


@pytest.mark.parametrize("name", runtimes.OF_TENSORFLOW)
def test_tensorflow_answers_to_the_last_bit(name, exported, raw, c_api):
    answer = load(name, exported, c_api)(raw(exported))
    assert set(differences(exported, answer).values()) == {0.0}


@pytest.mark.parametrize("name", ["TensorFlow Lite", "ONNX Runtime", "OpenVINO"])
def test_others_answer_within_rounding(name, exported, raw, c_api):
    answer = load(name, exported, c_api)(raw(exported))
    for key, difference in differences(exported, answer).items():
        assert difference <= (1e-5 if key in FLOATS else 0), key


def test_class_names_come_with_the_classes(cnn, raw, c_api):
    answer = c_api(cnn)(raw(cnn))
    assert answer["class_names"].tolist() == [b"%d" % i for i in cnn.predictions["classes"]]


def test_the_likeliest_classes_come_first(cnn, raw, c_api):
    answer = c_api(cnn)(raw(cnn))
    probabilities = cnn.predictions["probabilities"]
    np.testing.assert_array_equal(answer["top_classes"][:, 0], cnn.predictions["classes"])
    np.testing.assert_array_equal(
        answer["top_probabilities"], -np.sort(-probabilities, axis=1)[:, :2]
    )
    assert answer["top_class_names"][0, 0] == b"%d" % cnn.predictions["classes"][0]
