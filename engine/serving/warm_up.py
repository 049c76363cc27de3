"""Requests that TensorFlow Serving replays before a SavedModel takes real ones.

`assets.extra/tf_serving_warmup_requests` is a TFRecord file of PredictionLog messages
(tensorflow_serving/apis/prediction_log.proto). Of those messages few fields are needed, and they
are written here: the package of the protos would bring a tensorflow wheel of its own.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from input_fns import serving

FILE_NAME = "tf_serving_warmup_requests"


def write(path: str, model_name: str, requests: dict[str, dict[str, np.ndarray]]) -> None:
    """Writes a request for each signature, `{signature: {input: array}}`."""
    with tf.io.TFRecordWriter(path) as writer:
        for signature, inputs in requests.items():
            writer.write(_prediction_log(model_name, signature, inputs))


def _prediction_log(model_name, signature, inputs):
    # ModelSpec: name = 1, signature_name = 3.
    model_spec = _field(1, model_name.encode()) + _field(3, signature.encode())
    if signature == serving.CLASSIFY:
        (examples,) = inputs.values()
        # Input: example_list = 1, of ExampleList: examples = 1.
        example_list = b"".join(_field(1, example) for example in examples)
        # ClassificationRequest: model_spec = 1, input = 2. PredictionLog: classify_log = 2.
        request = _field(1, model_spec) + _field(2, _field(1, example_list))
        return _field(2, _field(1, request))
    # PredictRequest: model_spec = 1, inputs = 2, a map. PredictionLog: predict_log = 6.
    request = _field(1, model_spec)
    for name, array in inputs.items():
        tensor = tf.make_tensor_proto(array).SerializeToString()
        request += _field(2, _field(1, name.encode()) + _field(2, tensor))
    return _field(6, _field(1, request))


def _field(number, payload):
    """Returns a field of a protocol buffer that has a length: text, bytes, a message."""
    return bytes([number << 3 | 2]) + _varint(len(payload)) + payload


def _varint(value):
    low, high = value & 127, value >> 7
    return bytes([low | 128]) + _varint(high) if high else bytes([low])
