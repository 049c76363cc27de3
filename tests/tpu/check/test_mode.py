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

    (finding,) = check(make_model_fn(train=train)).findings
    assert finding.level == ERROR
    assert "CrossShardOptimizer must be used" in finding.message
