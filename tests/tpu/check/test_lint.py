"""Lint rules on a tiny regression: what is found, and what must not be."""

import pytest
import tensorflow as tf

from tests.marks import slow
from tests.tpu.check.regression import check, codes, make_model_fn, minimize, rows, squares
from tpu.check import format_text
from tpu.findings import ERROR, WARNING

tf1 = tf.compat.v1
SKIPPED = ("TPU compiler: skipped",)


def assert_clean(report):
    """No findings, and no stage was left out but the compiler."""
    assert report.findings == ()
    assert report.not_checked == SKIPPED


# ---- Asserts: XLA drops them ----


def static_assert(features, labels):
    tf1.assert_less_equal(8, 512, message="too long")
    return squares(features, labels)


def dynamic_assert(features, labels):
    loss = squares(features, labels)
    with tf.control_dependencies([tf1.assert_less(loss, 1e9, message="the loss is too large")]):
        return tf.identity(loss)


def assert_with_text(features, labels):
    loss = squares(features, labels)
    text = tf.strings.join(["loss ", tf.strings.as_string(loss)])
    with tf.control_dependencies([tf.debugging.Assert(loss < 1e9, [text])]):
        return tf.identity(loss)


@pytest.mark.parametrize("loss", [slow(static_assert), slow(dynamic_assert), assert_with_text])
def test_asserts_and_what_only_they_use_are_no_findings(loss):
    assert_clean(check(make_model_fn(loss)))


def test_text_that_the_step_also_uses_is_an_error():
    def loss(features, labels):
        loss = squares(features, labels)
        text = tf.strings.as_string(loss)
        with tf.control_dependencies([tf.debugging.Assert(loss < 1e9, [text])]):
            return loss + tf.strings.to_number(text)

    assert (ERROR, "string") in codes(check(make_model_fn(loss)))


# ---- Operations that never run ----


def test_operations_that_nothing_uses_are_no_findings():
    def loss(features, labels):
        value = squares(features, labels)
        tf.strings.as_string(value)
        tf.numpy_function(lambda x: x, [value], tf.float32)
        tf.cast(value, tf.float64)
        return value

    assert_clean(check(make_model_fn(loss)))


def test_constant_and_shape_arithmetic_in_float64_is_no_finding():
    def loss(features, labels):
        scale = tf.sqrt(tf.cast(tf.shape(features)[0], tf.float64))
        return squares(features, labels) * tf.cast(scale, tf.float32)

    assert_clean(check(make_model_fn(loss)))


def test_updates_of_metrics_that_never_run_are_no_findings():
    def loss(features, labels):
        tf1.metrics.mean(features)
        return squares(features, labels)

    assert_clean(check(make_model_fn(loss)))


# ---- Summaries and prints ----


def summarized(features, labels):
    loss = squares(features, labels)
    tf1.summary.scalar("loss", loss)
    return loss


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_summary_that_the_session_merges_is_an_error(mode):
    (finding,) = check(make_model_fn(summarized), mode=mode).findings
    assert (finding.level, finding.code) == (ERROR, "summary")
    assert finding.message.startswith("ScalarSummary 'loss' is in the collection SUMMARIES")
    assert finding.message.endswith("write the summary in host_call")


def test_summary_in_prediction_is_an_error():
    def model_fn(features, labels, mode, params):
        tf1.summary.scalar("mean", tf.reduce_mean(features))
        return tf1.estimator.tpu.TPUEstimatorSpec(mode, predictions={"x": features})

    report = check(model_fn, lambda params: rows(params).map(lambda x, y: x), "predict")
    assert (ERROR, "summary") in codes(report)


def test_summary_is_not_merged_if_the_scaffold_has_a_summary_op():
    def scaffold_fn(features, labels):
        return lambda: tf1.train.Scaffold(summary_op=tf.constant(""))

    report = check(make_model_fn(summarized, scaffold_fn=scaffold_fn))
    assert codes(report) == [(WARNING, "summary")]


@pytest.mark.parametrize("scope", ["", "layer"])
def test_tf_print_is_one_finding(scope):
    def loss(features, labels):
        value = squares(features, labels)
        with tf.name_scope(scope), tf.control_dependencies([tf.print("loss", value)]):
            return tf.identity(value)

    found = [f for f in check(make_model_fn(loss)).findings if f.code == "print"]
    assert [f.message for f in found] == [
        "tf.print: a TPU cannot print. Pass the tensor to host_call"
    ]


def test_tf_print_that_never_runs_is_one_warning():
    def loss(features, labels):
        value = squares(features, labels)
        tf.print("loss", value)
        return value

    (finding,) = check(make_model_fn(loss)).findings
    assert (finding.level, finding.code) == (WARNING, "print")
    assert finding.message.startswith("tf.print never runs on a TPU")


@pytest.mark.parametrize(
    ("name", "label"), [(None, "PyFunc: "), ("crop", "PyFunc 'crop': "), ("PyFunc", "PyFunc: ")]
)
def test_name_of_an_operation_is_not_repeated(name, label):
    def loss(features, labels):
        value = squares(features, labels)
        for _ in range(2):  # the second operation has the name PyFunc_1
            value *= tf.ensure_shape(tf1.py_func(abs, [value], tf.float32, name=name), [])
        return value

    found = [f.message for f in check(make_model_fn(loss)).findings if f.code == "py_func"]
    assert found[0].startswith(f"{label}a TPU cannot run Python")


# ---- Tensors from outside ----


@pytest.mark.parametrize("cell", [tf1.nn.rnn_cell.LSTMCell, slow(tf1.nn.rnn_cell.GRUCell)])
def test_recurrent_networks_capture_nothing(cell):
    def loss(features, labels):
        steps = tf.stack([features] * 3, axis=1)
        outputs, _ = tf1.nn.dynamic_rnn(cell(4), steps, dtype=tf.float32)
        return squares(outputs[:, -1], labels)

    report = check(make_model_fn(loss))
    assert "capture" not in {finding.code for finding in report.findings}
    assert report.not_checked == SKIPPED


def test_number_of_the_host_is_a_warning():
    def loss(features, labels):
        with tf.init_scope():
            noise = tf.random.uniform([])
        return squares(features, labels) * noise

    (finding,) = check(make_model_fn(loss)).findings
    assert (finding.level, finding.code) == (WARNING, "capture")
    assert "computed on the host once per session.run" in finding.message


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_keras_layer_without_training_is_a_warning_in_training(mode):
    def loss(features, labels):
        return squares(tf1.keras.layers.Dropout(0.5)(features), labels)

    findings = check(make_model_fn(loss), mode=mode).findings
    messages = [f.message.partition(",")[0] for f in findings if f.code == "capture"]
    expected = ["a Keras layer is called without training="]
    assert messages == (expected if mode == "train" else [])


# ---- Outside compilation ----


def through_text(loss):
    number = tf.strings.to_number(tf.strings.as_string(loss))
    number.set_shape([])
    return number


def test_explicit_outside_compilation_is_a_warning():
    def loss(features, labels):
        value = squares(features, labels)
        return value + tf1.tpu.outside_compilation(through_text, tf.stop_gradient(value))

    report = check(make_model_fn(loss))
    assert set(codes(report)) == {(WARNING, "outside-compilation")}
    assert report.not_checked == SKIPPED  # XLA lowers the step without it


@pytest.fixture
def soft_placement():
    before = tf.config.get_soft_device_placement()
    tf.config.set_soft_device_placement(True)
    yield
    tf.config.set_soft_device_placement(before)


def test_automatic_outside_compilation_is_a_warning(soft_placement):
    def loss(features, labels):
        value = squares(features, labels)
        with tf.control_dependencies([tf1.summary.scalar("loss", value, collections=[])]):
            return value + through_text(tf.stop_gradient(value))

    report = check(make_model_fn(loss))
    assert set(codes(report)) == {(WARNING, "outside-compilation")}
    assert report.not_checked == SKIPPED


def test_conditional_summary_is_left_out_of_the_compiled_step(soft_placement):
    def loss(features, labels):
        value = squares(features, labels)
        step = tf1.train.get_global_step()
        with tf.init_scope():
            writer = tf.raw_ops.SummaryWriter(shared_name="w", container="")

        def write():
            with tf.control_dependencies(
                [tf.raw_ops.WriteScalarSummary(writer=writer, step=step, tag="loss", value=value)]
            ):
                return tf.constant(True)

        written = tf.cond(tf.equal(step % 5, 0), write, lambda: False)
        with tf.control_dependencies([written]):
            return tf.identity(value)

    report = check(make_model_fn(loss))
    assert set(codes(report)) == {(WARNING, "outside-compilation")}
    assert report.not_checked == SKIPPED


def test_summary_writer_of_outside_compilation_is_no_capture(soft_placement):
    def loss(features, labels):
        value = squares(features, labels)
        step = tf1.train.get_global_step()
        with tf.init_scope():
            writer = tf.raw_ops.SummaryWriter(shared_name="w", container="")
        with tf.control_dependencies(
            [
                tf.raw_ops.WriteScalarSummary(
                    writer=tf.identity(writer), step=step, tag="loss", value=value
                )
            ]
        ):
            return tf.identity(value)

    assert set(codes(check(make_model_fn(loss)))) == {(WARNING, "outside-compilation")}


# ---- Updates ----


def optimizer(rate=0.01):
    return tf1.tpu.CrossShardOptimizer(tf1.train.GradientDescentOptimizer(rate))


def train_with_clipping(clip):
    def train(loss):
        variables = tf1.trainable_variables()
        gradients = clip(tf.gradients(loss, variables))
        return optimizer().apply_gradients(zip(gradients, variables), tf1.train.get_global_step())

    return train


@pytest.mark.parametrize(
    "clip",
    [
        lambda gradients: tf.clip_by_global_norm(gradients, 1.0)[0],
        lambda gradients: [tf.clip_by_norm(gradient, 1.0) for gradient in gradients],
        lambda gradients: [tf.clip_by_value(gradient, -1.0, 1.0) for gradient in gradients],
    ],
)
def test_gradients_clipped_before_their_sum(clip):
    report = check(make_model_fn(train=train_with_clipping(clip)))
    assert set(codes(report)) == {(WARNING, "clip-before-sum")}


class ClippingOptimizer(tf1.train.GradientDescentOptimizer):
    """Clips what CrossShardOptimizer has summed."""

    def apply_gradients(self, pairs, global_step=None, name=None):
        gradients, variables = zip(*pairs)
        clipped, _ = tf.clip_by_global_norm(gradients, 1.0)
        return super().apply_gradients(zip(clipped, variables), global_step, name)


@pytest.mark.parametrize(
    "train",
    [
        train_with_clipping(lambda gradients: [gradient * 0.5 for gradient in gradients]),
        lambda loss: tf1.tpu.CrossShardOptimizer(ClippingOptimizer(0.1)).minimize(
            loss, tf1.train.get_global_step()
        ),
    ],
)
def test_scaled_gradients_and_clipped_sums_are_no_findings(train):
    assert_clean(check(make_model_fn(train=train)))


def test_clipped_activations_are_no_finding():
    def loss(features, labels):
        mean = tf1.tpu.cross_replica_sum(tf.nn.relu6(features))  # as in batch norm over cores
        return squares(tf.minimum(mean, 1.0), labels)

    assert_clean(check(make_model_fn(loss)))


def grouped(loss):
    """BERT's train_op: the learning rate reads what a grouped assignment changes."""
    step = tf1.train.get_global_step()
    rate = tf1.train.polynomial_decay(0.1, step, 100)
    return tf.group(optimizer(rate).minimize(loss), step.assign(step + 1))


def chained(loss):
    step = tf1.train.get_global_step()
    rate = tf1.train.polynomial_decay(0.1, step, 100)
    with tf.control_dependencies([optimizer(rate).minimize(loss)]):
        return step.assign_add(1).op


def test_learning_rate_in_no_order_with_the_step():
    (finding,) = check(make_model_fn(train=grouped)).findings
    assert (finding.level, finding.code) == (WARNING, "unordered-update")
    assert finding.message.startswith("'global_step' is read for an update")
    assert finding.where.startswith("tests/tpu/check/test_lint.py:")


def test_learning_rate_before_the_step_is_no_finding():
    assert_clean(check(make_model_fn(train=chained)))


def test_one_core_needs_no_sum_over_cores():
    def train(loss):
        tf1.tpu.cross_replica_sum(loss)
        step = tf1.train.get_global_step()
        return tf1.train.GradientDescentOptimizer(0.1).minimize(loss, step)

    model_fn = make_model_fn(train=train)
    assert (ERROR, "no-cross-replica-sum") in codes(check(model_fn))
    assert (ERROR, "no-cross-replica-sum") not in codes(check(model_fn, tpu_slice="1x1"))


@pytest.mark.parametrize(
    ("sums", "is_missing"),
    [
        ([[[0, 1], [2, 3]]], True),
        ([[[0, 1], [2, 3]], [[0, 2], [1, 3]]], False),  # a sum of sums
        ([[[0, 1, 2, 3]]], False),
    ],
)
def test_sums_over_groups_must_join_all_cores(sums, is_missing):
    def train(loss):
        optimizer = tf1.train.GradientDescentOptimizer(0.1)
        pairs = optimizer.compute_gradients(loss)
        for groups in sums:
            pairs = [(tf1.tpu.cross_replica_sum(g, groups), v) for g, v in pairs]
        return optimizer.apply_gradients(pairs, tf1.train.get_global_step())

    found = codes(check(make_model_fn(train=train), tpu_slice="2x2"))
    assert ((ERROR, "no-cross-replica-sum") in found) == is_missing


# ---- Waste ----


@pytest.mark.parametrize(("shape", "is_found"), [([16, 16, 3], True), ([4, 100, 4], False)])
def test_float32_on_the_infeed_is_a_note_for_images_only(shape, is_found):
    """[batch, 4, 100, 4] may be targets of boxes."""

    def input_fn(params):
        return rows(params).map(lambda x, y: ({"x": x, "other": tf.zeros([8, *shape])}, y))

    def loss(features, labels):
        return squares(features["x"], labels) + tf.reduce_mean(features["other"])

    found = check(make_model_fn(loss), input_fn).findings
    assert [finding.code for finding in found] == ["infeed-float"] * is_found
    assert [finding.waste for finding in found] == [3 * 8 * 16 * 16 * 3] * is_found


def test_findings_of_one_rule_are_one_entry():
    def loss(features, labels):
        x = tf1.layers.dense(features, 16)
        for size in (9, 17, 33):
            x = tf1.layers.dense(x, size)
        return squares(tf1.layers.dense(x, 16), labels)

    report = check(make_model_fn(loss))
    assert [finding.code for finding in report.findings] == ["tiles"] * 4
    assert [finding.waste for finding in report.findings] == sorted(
        (finding.waste for finding in report.findings), reverse=True
    )
    lines = format_text(report).splitlines()
    (first,) = [line for line in lines if line.startswith("warning tiles")]
    assert first.startswith("warning tiles (train): 4 x: MatMul from 17 to 33")
    assert first.endswith("KiB in all)")


def test_errors_that_differ_in_a_name_are_one_entry():
    def train(loss):
        tf1.train.ExponentialMovingAverage(0.9).apply(tf1.trainable_variables())
        return minimize(loss)

    lines = format_text(check(make_model_fn(train=train))).splitlines()
    number = next(i for i, line in enumerate(lines) if line.startswith("error"))
    first, place, same = lines[number : number + 3]
    assert "2 x: 'dense/kernel/ExponentialMovingAverage' is never updated" in first
    assert place.startswith("    at ")
    assert same == "  the same: 'dense/bias/ExponentialMovingAverage'"


# ---- Functions ----


def test_faults_in_functions_are_found():
    @tf.function
    def inner(value):
        return tf.strings.to_number(tf.strings.as_string(value))

    @tf.function
    def outer(value):
        tf.debugging.Assert(value < 9, [tf.strings.as_string(value)])
        return inner(value)

    def loss(features, labels):
        value = squares(features, labels)
        return value + tf.reshape(outer(tf.stop_gradient(value)), [])  # HERE

    found = check(make_model_fn(loss)).findings
    assert {(finding.level, finding.code) for finding in found} == {
        (ERROR, "string"),
        (ERROR, "op"),
    }
    assert {finding.where.partition(":")[0] for finding in found} == {
        "tests/tpu/check/test_lint.py"
    }


def test_functions_without_faults():
    @tf.function
    def scaled(value):
        tf.debugging.assert_less(value, 1e9, message="too large")
        return value * 2

    def loss(features, labels):
        return scaled(squares(features, labels))

    assert_clean(check(make_model_fn(loss)))
