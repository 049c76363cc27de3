"""Each mode of a program: what stops it, what does not, and what it returns."""

import pytest
import tensorflow as tf

from tests.marks import slow
from tests.tpu.check.regression import (
    InputConfig,
    check,
    codes,
    make_estimator,
    make_model_fn,
    rows,
    squares,
)
from tpu.check import check_program, format_text, lint, sizes
from tpu.findings import ERROR
from tpu.graph import hlo
from tpu.interruption import StopProgram

tf1 = tf.compat.v1


def mean_absolute_error(labels, predictions):
    with tf1.variable_scope("metrics", use_resource=False):
        return {"mae": tf1.metrics.mean_absolute_error(labels, predictions)}


def count_steps(step):
    with tf1.variable_scope("seen", use_resource=False):
        seen = tf1.get_variable("count", [], tf.int64, tf1.zeros_initializer(), trainable=False)
    return tf1.assign_add(seen, step[0])


def test_reference_variables_of_metrics():
    model_fn = make_model_fn(eval_metrics=lambda x, y: (mean_absolute_error, [y, x[:, :1]]))
    report = check(model_fn, mode="eval")
    assert report.findings == ()
    assert report.modes["eval"].sizes.parameters == 6
    assert report.modes["eval"].outputs == ("mae",)


def test_reference_variables_of_host_call():
    def host_call(features, labels):
        return count_steps, [tf.reshape(tf1.train.get_global_step(), [1])]

    report = check(make_model_fn(host_call=host_call))
    assert report.findings == ()
    assert report.modes["train"].sizes.parameters == 6


def test_reference_variables_that_are_trainable():
    """As a variable of the host that is not in any collection of the TPU's program."""

    def host_call(features, labels):
        def write(x):
            with tf1.variable_scope("host", use_resource=False):
                return tf1.get_variable("scale", initializer=1.0) * x

        return write, [features]

    assert check(make_model_fn(host_call=host_call)).findings == ()


@pytest.mark.parametrize(
    ("owner", "name", "stage"),
    [(lint, "apply_rules", "lint"), (sizes, "measure", "sizes")],
)
def test_a_stage_that_fails_is_one_line(monkeypatch, owner, name, stage):
    def fail(*arguments):
        raise AttributeError("no such attribute\nof this object")

    monkeypatch.setattr(owner, name, fail)
    report = check(make_model_fn())
    assert report.findings == ()
    reason = f"train, {stage}: AttributeError: no such attribute of this object"
    assert report.not_checked == (reason, "TPU compiler: skipped")
    assert (report.modes["train"].sizes is None) == (stage == "sizes")


def test_exit_of_the_program_is_a_finding():
    def model_fn(features, labels, mode, params):
        raise SystemExit("no checkpoint")

    assert codes(check(model_fn)) == [(ERROR, "graph")]


def test_predictions_are_described():
    def model_fn(features, labels, mode, params):
        predictions = {"mean": tf.reduce_mean(features, 1), "x": tf.cast(features, tf.int32)}
        return tf1.estimator.tpu.TPUEstimatorSpec(mode, predictions=predictions)

    report = check(model_fn, lambda params: rows(params).map(lambda x, y: x), "predict")
    outputs = {"mean": ("float32", ()), "x": ("int32", (5,))}
    assert report.modes["predict"].outputs == outputs


@pytest.mark.parametrize(
    ("mode", "config", "reason"),
    [
        ("eval", {"eval_on_tpu": False}, "eval: it runs on a CPU (eval_on_tpu=False)"),
        ("train", {"use_tpu": False}, "train: it runs on a CPU (use_tpu=False)"),
    ],
)
def test_modes_on_a_cpu_are_not_checked(mode, config, reason):
    report = check(make_model_fn(), mode=mode, **config)
    assert (report.findings, report.not_checked) == ((), (reason,))


# ---- Several hosts ----


@pytest.mark.parametrize("config", [InputConfig.PER_HOST_V1, InputConfig.PER_HOST_V2])
def test_evaluation_on_several_hosts_needs_per_host_v2(config):
    report = check(
        make_model_fn(), mode="eval", tpu_slice="2x2", per_host_input_for_training=config
    )
    if config == InputConfig.PER_HOST_V2:
        assert not [finding for finding in report.findings if finding.level == ERROR]
    else:
        (error,) = report.findings
        assert error.code == "graph"
        assert error.message.startswith("the slice has several hosts. Evaluate on one host")


# ---- Model parallelism ----


@pytest.mark.parametrize("config", [slow({}), {"input_partition_dims": [[1, 1], None]}])
def test_model_parallelism_is_checked_but_for_the_compiler(config):
    report = check(make_model_fn(), tpu_slice="v3-8", num_cores_per_replica=2, **config)
    assert not [finding for finding in report.findings if finding.level == ERROR]
    reason = "train, XLA and the TPU compiler: num_cores_per_replica=2 (model parallelism)"
    assert report.not_checked == (reason,)
    assert report.modes["train"].batch_size == 4  # 16 examples for 4 replicas


def test_faults_are_found_under_model_parallelism():
    def loss(features, labels):
        scale = tf.numpy_function(lambda: 1.0, [], tf.float32)
        return squares(features, labels) * tf.reshape(scale, [])

    report = check(make_model_fn(loss), tpu_slice="v3-8", num_cores_per_replica=2)
    assert (ERROR, "py_func") in codes(report)


def test_one_core_per_replica_is_lowered():
    report = check(make_model_fn(), num_cores_per_replica=1)
    assert (report.findings, report.not_checked) == ((), ("TPU compiler: skipped",))


# ---- Titles ----


def test_a_title_says_what_was_checked():
    estimator = make_estimator(make_model_fn())
    report = check_program(
        estimator, {"train": rows}, "1x2", compile_with_libtpu=False, title="main.py:7 train"
    )
    title = "check of main.py:7 train for 1x2: 1 host x 2 cores"
    assert format_text(report).splitlines()[0] == title


# ---- One build ----


def test_input_fn_with_state_is_called_once():
    calls = []

    def input_fn(params):
        calls.append(1)
        assert len(calls) == 1
        return rows(params)

    report = check(make_model_fn(), input_fn)
    assert (report.findings, report.not_checked) == ((), ("TPU compiler: skipped",))
    assert report.modes["train"].sizes.parameters == 6


def loop(features):
    """Doubles the features three times, in a loop."""
    return tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, 2 * x), (0, features))[1]


def test_program_that_cannot_be_built_again_for_xla_is_linted():
    calls = []

    def loss(features, labels):
        calls.append(1)
        if len(calls) > 1:
            raise LookupError
        return squares(tf.stop_gradient(loop(features)), labels)

    report = check(make_model_fn(loss))
    (reason,) = report.not_checked
    assert reason.startswith(
        "train, XLA and the TPU compiler: LookupError without a message, raised by `raise "
        "LookupError` (at tests/tpu/check/test_mode.py:"
    )
    assert reason.endswith("): input_fn or model_fn cannot be called twice")
    assert report.modes["train"].sizes.parameters == 6
    assert report.status == 0


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float64])
def test_loss_that_the_training_loop_cannot_carry(dtype):
    report = check(make_model_fn(lambda x, y: tf.cast(squares(x, y), dtype)))
    (error,) = [finding for finding in report.findings if finding.level == ERROR]
    assert error.code == "graph"
    assert "Mismatch between input types and output types for training loop body" in error.message


def test_tensor_of_the_step_in_a_metric():
    def eval_metrics(features, labels):
        return (lambda x: {"mean": tf1.metrics.mean(tf.identity(features))}), [labels]

    (error,) = check(make_model_fn(eval_metrics=eval_metrics), mode="eval").findings
    assert error.message.startswith("a tensor of the TPU loop is used outside of it")


# ---- Verdicts ----


def test_mode_of_which_every_stage_fails_is_not_checked(monkeypatch):
    def fail(*arguments):
        raise AttributeError("no such attribute")

    for owner, name in ((lint, "apply_rules"), (sizes, "measure"), (hlo, "lower")):
        monkeypatch.setattr(owner, name, fail)
    report = check(make_model_fn())
    assert report.unchecked == {"train": "lint, sizes and the TPU compiler failed"}
    assert report.status == 2
    *_, line, verdict = format_text(report).splitlines()
    assert line == "train: not checked: lint, sizes and the TPU compiler failed"
    assert verdict == "no step of training, evaluation or prediction was checked"


def test_export_alone_checks_no_step():
    def serving_input_fn():
        features = {"x": tf1.placeholder(tf.float32, [None, 5])}
        return tf.estimator.export.ServingInputReceiver(features, features)

    def model_fn(features, labels, mode, params):
        predictions = {"y": 2 * features["x"]}
        return tf1.estimator.tpu.TPUEstimatorSpec(mode, predictions=predictions)

    report = check(model_fn, serving_input_fn, "export")
    assert report.status == 2
    verdict = format_text(report).splitlines()[-1]
    assert verdict == (
        "no error in export; no step of training, evaluation or prediction was checked"
    )


class UnprintableError(Exception):
    """Raises when it is printed."""

    def __str__(self):
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (AssertionError(), "AssertionError without a message, raised by `raise error`"),
        (StopIteration(), "StopIteration without a message, raised by `raise error`"),
        (KeyError("x"), "KeyError: 'x'"),
        (SystemExit(), "SystemExit: 0"),
        (SystemExit(3), "SystemExit: 3"),
        (GeneratorExit(), "GeneratorExit without a message, raised by `raise error`"),
        (type("Mine", (BaseException,), {})("text"), "Mine: text"),
        (UnprintableError(), "UnprintableError without a message, raised by `raise error`"),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("owner", ["input_fn", "model_fn"])
def test_every_exception_of_the_program_is_a_finding(owner, error, message):
    def fail(features, labels):
        raise error

    def input_fn(params):
        raise error

    inputs = [input_fn] if owner == "input_fn" else []
    report = check(make_model_fn(fail) if owner == "model_fn" else make_model_fn(), *inputs)
    (finding,) = report.findings
    assert (finding.code, finding.message) == ("graph", message)
    assert finding.where.startswith("tests/tpu/check/test_mode.py:")


@pytest.mark.parametrize("error", [KeyboardInterrupt, StopProgram])
def test_what_ends_the_check_is_no_finding(error):
    def loss(features, labels):
        raise error

    with pytest.raises(error):
        check(make_model_fn(loss))


# ---- What model_fn returns ----


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (lambda x, y: [y, None], "eval_metrics has None in place 1 (model_fn at "),
        (lambda x, y: [0.5, y], "eval_metrics has the Python float 0.5 in place 0 (model_fn at "),
        (lambda x, y: {"a": y, "b": [x]}, "eval_metrics has a value of type list at key 'b' (mod"),
        (lambda x, y: [y, x[0, 0]], "eval_metrics has a scalar in place 1 (model_fn at "),
    ],
)
def test_eval_metrics_with_a_value_that_is_no_batch(tensors, message):
    def eval_metrics(features, labels):
        return (lambda a, b: {"mean": tf1.metrics.mean(a)}), tensors(features, labels)

    (error,) = check(make_model_fn(eval_metrics=eval_metrics), mode="eval").findings
    assert error.message.startswith(message)
    assert "tests/tpu/check/regression.py:" in error.message


def test_host_call_with_a_missing_tensor():
    model_fn = make_model_fn(host_call=lambda x, y: (lambda a: tf.no_op(), [None]))
    (error,) = check(model_fn).findings
    assert error.message.startswith("host_call has None in place 0 (model_fn at ")


def test_predictions_with_a_missing_tensor():
    def model_fn(features, labels, mode, params):
        predictions = {"x": features, "y": None}
        return tf1.estimator.tpu.TPUEstimatorSpec(mode, predictions=predictions)

    report = check(model_fn, lambda params: rows(params).map(lambda x, y: x), "predict")
    (error,) = report.findings
    assert error.message == "TypeError: predictions[y] must be Tensor, given: None"
    assert error.where.startswith("tests/tpu/check/test_mode.py:")


def test_metric_function_that_raises():
    def metrics(labels):
        raise ValueError("no such metric")

    report = check(make_model_fn(eval_metrics=lambda x, y: (metrics, [y])), mode="eval")
    (error,) = report.findings
    assert "the function of eval_metrics at tests/tpu/check/test_mode.py:" in error.message
    assert "raises ValueError: no such metric (model_fn at " in error.message
    assert error.where.startswith("tests/tpu/check/test_mode.py:")


# ---- Control flow of version 2 ----


@pytest.fixture
def control_flow_v2():
    tf1.enable_control_flow_v2()
    yield
    tf1.disable_control_flow_v2()


def test_loop_that_only_version_2_accepts_is_checked(control_flow_v2):
    """The body returns a tuple for a list."""

    def loss(features, labels):
        _, x = tf.while_loop(
            lambda i, x: i < 3,
            lambda i, x: (i + 1, x * 2),
            [tf.constant(0), tf.stop_gradient(features)],
        )
        return squares(x, labels)

    report = check(make_model_fn(loss))
    assert (report.findings, report.not_checked) == ((), ("TPU compiler: skipped",))


def test_missing_sum_is_found_with_version_2(control_flow_v2):
    def train(loss):
        step = tf1.train.get_global_step()
        return tf1.train.GradientDescentOptimizer(0.1).minimize(loss, step)

    report = check(make_model_fn(train=train))
    (finding,) = report.findings
    assert finding.level == ERROR
    assert "CrossShardOptimizer must be used" in finding.message
    assert report.not_checked == ("train, everything else: the step cannot be built",)
    assert finding.where.endswith(f"test_mode.py:{train.__code__.co_firstlineno + 2}")  # minimize


def second_order(features, labels):
    """A loss that needs second-order gradients of a loop, which only version 2 has."""
    x = tf1.layers.dense(features, 1)
    _, y = tf.while_loop(
        lambda i, y: i < 3, lambda i, y: (i + 1, y * y), (0, x), maximum_iterations=3
    )
    return tf.reduce_mean(tf.gradients(y, x)[0] - labels)


def test_step_that_only_version_2_accepts_is_checked(control_flow_v2):
    report = check(make_model_fn(second_order))
    assert (report.findings, report.not_checked) == ((), ("TPU compiler: skipped",))
    assert report.modes["train"].sizes.parameters == 6


def test_state_is_told_from_an_error_of_version_1(control_flow_v2):
    """The loss fails with version 1; its second call fails because of the state."""
    calls = []

    def loss(features, labels):
        calls.append(1)
        if len(calls) > 1:
            raise LookupError
        return second_order(features, labels)

    report = check(make_model_fn(loss))
    assert report.findings == ()
    assert "LookupError" in report.unchecked["train"]
    assert report.unchecked["train"].endswith("input_fn or model_fn cannot be called twice")
    assert report.status == 2


def test_error_of_the_program_is_reported_once_with_version_2(control_flow_v2):
    calls = []

    def input_fn(params):
        calls.append(1)
        raise ValueError("no data")

    assert codes(check(make_model_fn(), input_fn)) == [(ERROR, "graph")]
    assert len(calls) == 1
