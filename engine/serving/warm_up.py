"""Warm-up requests, which TensorFlow Serving replays before it serves a SavedModel.

`assets.extra/tf_serving_warmup_requests` is a TFRecord file of PredictionLog messages
(tensorflow_serving/apis/prediction_log.proto). The few fields needed are encoded here, because the
package with these protos depends on a second TensorFlow wheel.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from input_fns.core import serving

FILE_NAME = "tf_serving_warmup_requests"


def write(path: str, model_name: str, requests: dict[str, dict[str, np.ndarray]]) -> None:
    """Writes a TFRecord file with a request for each signature, `{signature: {input: array}}`."""
    with tf.io.TFRecordWriter(path) as writer:
        for signature, inputs in requests.items():
            writer.write(_prediction_log(model_name, signature, inputs))


def _prediction_log(model_name, signature, inputs):
    # Field numbers of ModelSpec: name = 1, signature_name = 3.
    model_spec = _field(1, model_name.encode()) + _field(3, signature.encode())
    if signature == serving.CLASSIFY:
        (examples,) = inputs.values()
        # Input: example_list = 1. ExampleList: examples = 1.
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
    """Returns a length-delimited field of a protocol buffer: text, bytes or a message."""
    return bytes([number << 3 | 2]) + _varint(len(payload)) + payload


def _varint(value):
    low, high = value & 127, value >> 7
    return bytes([low | 128]) + _varint(high) if high else bytes([low])
