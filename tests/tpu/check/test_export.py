"""The graphs of export_saved_model."""

import tensorflow as tf

from tests.tpu.check.regression import NUM_FEATURES, make_estimator
from tpu.check import check_program
from tpu.findings import ERROR

tf1 = tf.compat.v1


def receive():
    features = {"x": tf1.placeholder(tf.float32, [None, NUM_FEATURES])}
    return tf.estimator.export.ServingInputReceiver(features, features)


def make_model_fn(change=lambda x: x):
    def model_fn(features, labels, mode, params):
        predictions = {"y": change(tf1.layers.dense(features["x"], 3))}
        return tf1.estimator.tpu.TPUEstimatorSpec(mode, predictions=predictions)

    return model_fn


def check(model_fn, receiver_fn=receive):
    return check_program(make_estimator(model_fn), {"export": receiver_fn}, "1x2", False)


def test_export_without_faults():
    report = check(make_model_fn())
    assert (report.findings, report.not_checked) == ((), ())
    assert report.modes["export"].outputs == {"y": ("float32", (3,))}


def test_fault_of_the_graph_for_tpus_is_found():
    def change(x):
        return tf.numpy_function(lambda x: x, [x], tf.float32) + tf.zeros([1, 3])  # HERE

    (finding,) = check(make_model_fn(change)).findings
    assert (finding.level, finding.code, finding.mode) == (ERROR, "py_func", "export")
    assert finding.where.startswith("tests/tpu/check/test_export.py:")


def test_error_of_the_serving_input_receiver_fn_is_found():
    (finding,) = check(make_model_fn(), lambda: 1 // 0).findings
    assert (finding.level, finding.code, finding.mode) == (ERROR, "graph", "export")
