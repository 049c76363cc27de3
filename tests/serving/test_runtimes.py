"""The outputs of an export match `Estimator.predict` in every runtime."""

import numpy as np
import pytest

from tests import numerics
from tests.marks import slow
from tools import runtimes


def load(name, exported, c_api):
    if runtimes.missing(name):
        pytest.skip(f"needs {runtimes.missing(name)}")
    return c_api(exported) if name == "C API" else runtimes.RUNTIMES[name](exported.path)


@pytest.mark.parametrize(
    "name",
    # Slow ones start TensorFlow again and match the C API.
    [
        slow(name) if name in ("tf.saved_model.load", "saved_model_cli") else name
        for name in (*runtimes.TENSORFLOW_RUNTIMES, "TensorFlow Lite", "ONNX Runtime", "OpenVINO")
    ],
)
def test_outputs_match_predict(name, exported, raw, c_api, assert_predicted):
    answer = load(name, exported, c_api)(raw(exported))
    assert answer.keys() >= exported.predictions.keys()
    assert_predicted(exported, answer)


def test_class_names_match_the_classes(cnn, raw, c_api):
    answer = c_api(cnn)(raw(cnn))
    assert answer["class_names"].tolist() == [b"%d" % i for i in cnn.predictions["classes"]]


def test_top_classes_are_sorted(cnn, raw, c_api, arithmetic):
    answer = c_api(cnn)(raw(cnn))
    probabilities = cnn.predictions["probabilities"]
    np.testing.assert_array_equal(answer["top_classes"][:, 0], cnn.predictions["classes"])
    expected = -np.sort(-probabilities, axis=1)[:, :2]
    numerics.assert_close(answer["top_probabilities"], expected, **arithmetic(cnn))
    assert answer["top_class_names"][0, 0] == b"%d" % cnn.predictions["classes"][0]
