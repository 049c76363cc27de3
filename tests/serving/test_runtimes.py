"""The outputs of an export match `Estimator.predict` in every runtime."""

import numpy as np
import pytest

from input_fns.core import serving
from tests import numerics
from tests.keras_applications import APPLICATIONS
from tests.marks import slow
from tools import runtimes


def load(name, exported, c_api):
    if runtimes.missing(name):
        pytest.skip(f"needs {runtimes.missing(name)}")
    return c_api(exported) if name == "C API" else runtimes.RUNTIMES[name](exported.path)


# TensorFlow Lite runs the CNN in test_recipes.py. ONNX Runtime converts in another process. Others
# of TensorFlow start it again and match the C API, whose answers test_signatures.py compares.
QUICK = {("Triton", "cnn"), ("OpenVINO", "cnn")}
MODELS = ("cnn", "translator", "mobilenet", "keras_swish", "several_labels", "numbers")
MODELS += ("sngan", "dcgan", *APPLICATIONS)
NAMES = (*runtimes.TENSORFLOW_RUNTIMES, "TensorFlow Lite", "ONNX Runtime", "OpenVINO")
UNSUPPORTED = {("ONNX Runtime", "ConvNeXtTiny")}  # tf2onnx has no grouped convolutions of Keras
CASES = [(n, model) for n in NAMES for model in MODELS if (n, model) not in UNSUPPORTED]


@pytest.mark.parametrize(
    ("name", "exported"),
    [case if case in QUICK else slow(*case) for case in CASES],
    indirect=["exported"],
)
def test_outputs_match_predict(name, exported, raw, c_api, assert_predicted):
    answer = load(name, exported, c_api)(raw(exported))
    assert answer.keys() >= exported.predictions.keys()
    assert_predicted(exported, answer)


@pytest.fixture(scope="module")
def answer(cnn, raw, in_process):
    """The outputs of `cnn`."""
    return in_process(cnn)(serving.RAW, raw(cnn))


def test_class_names_match_the_classes(cnn, answer):
    assert answer["class_names"].tolist() == [b"%d" % i for i in cnn.predictions["classes"]]


def test_top_classes_are_sorted(cnn, answer, arithmetic):
    probabilities = cnn.predictions["probabilities"]
    np.testing.assert_array_equal(answer["top_classes"][:, 0], cnn.predictions["classes"])
    expected = -np.sort(-probabilities, axis=1)[:, :2]
    numerics.assert_close(answer["top_probabilities"], expected, **arithmetic(cnn))
    assert answer["top_class_names"][0, 0] == b"%d" % cnn.predictions["classes"][0]
