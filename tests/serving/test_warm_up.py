"""Warm-up requests for TensorFlow Serving, parsed with its protos."""

import os

import numpy as np
import pytest
import tensorflow as tf

from engine.serving import export, warm_up
from input_fns.core import serving
from tests.marks import slow


def logs(exported):
    protos = pytest.importorskip(
        "tensorflow_serving.apis.prediction_log_pb2",
        reason="needs tensorflow-serving-api: tools/setup.sh tensorflow serving",
    )
    path = os.path.join(exported.path, export.EXTRA, warm_up.FILE_NAME)
    return [
        protos.PredictionLog.FromString(record)
        for record in tf.compat.v1.io.tf_record_iterator(path)
    ]


def get_request(log):
    return getattr(log, log.WhichOneof("log_type")).request


def get_inputs(log):
    """Returns the inputs of a request, `{name: array}`."""
    request = get_request(log)
    if log.HasField("classify_log"):
        examples = request.input.example_list.examples
        return {"inputs": np.array([example.SerializeToString() for example in examples], object)}
    return {name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}


@pytest.mark.slow(cost=0.1)
def test_every_signature_has_a_request(exported):
    names = [get_request(log).model_spec.signature_name for log in logs(exported)]
    expected = {*exported.requests} | (
        {"classify"} if "probabilities" in exported.predictions else set()
    )
    assert len(names) == len(set(names))
    assert set(names) == expected


def test_the_model_name_is_that_of_its_folder(cnn):
    assert {get_request(log).model_spec.name for log in logs(cnn)} == {"export"}


def test_classify_has_a_classify_log(cnn):
    kinds = {
        get_request(log).model_spec.signature_name: log.WhichOneof("log_type") for log in logs(cnn)
    }
    assert kinds.pop(serving.CLASSIFY) == "classify_log"
    assert set(kinds.values()) == {"predict_log"}


@pytest.mark.parametrize("exported", [slow("translator"), "cnn", slow("mobilenet")], indirect=True)
def test_the_requests_can_be_replayed(exported, in_process):
    run = in_process(exported)
    for log in logs(exported):
        answer = run(get_request(log).model_spec.signature_name, get_inputs(log))
        assert {len(values) for values in answer.values()} == {3}


@pytest.mark.parametrize("size", [0, 127, 128, 20_000])
def test_requests_of_any_length(tmp_path, size):
    protos = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    image = np.arange(size, dtype=np.int32)
    warm_up.write(str(tmp_path / "requests"), "m", {"serving_default": {"image": image}})
    (record,) = tf.compat.v1.io.tf_record_iterator(str(tmp_path / "requests"))
    log = protos.PredictionLog.FromString(record)
    np.testing.assert_array_equal(get_inputs(log)["image"], image)
