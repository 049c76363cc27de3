"""Programs that fail on a TPU are reported with the line of the fault."""

import functools
import importlib.util
import json
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf

from tests.marks import slow
from tests.tpu.check.classifier import (
    dense,
    find_line,
    make_estimator,
    make_input_fn,
    make_model_fn,
    run_check,
)
from tpu.check import (
    Report,
    check,
    check_program,
    codes,
    compiler,
    cost,
    explain,
    format_text,
    to_json,
)
from tpu.connect import topology
from tpu.findings import ERROR, WARNING, Finding
from tpu.graph import tpu_kernels

tf1 = tf.compat.v1
needs_libtpu = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None,
    reason="libtpu is not installed: Linux, x86-64, Python 3.11 and the 'check' extra",
)
SKIPPED = "TPU compiler: skipped"


def test_valid_program_has_no_findings():
    input_fns = {
        "train": make_input_fn(),
        "eval": make_input_fn(),
        "predict": make_input_fn(labels=False),
    }
    report = run_check(make_model_fn(batch_norm=True), input_fns)
    assert report.findings == ()
    assert report.not_checked == (SKIPPED,)
    assert list(report.modes) == ["train", "eval", "predict"]
    assert format_text(report).endswith("no problem found")


def rotation(loss, images, logits):
    flat = tf.cast(images, tf.float32)
    turned = tf.raw_ops.ImageProjectiveTransformV3(  # HERE
        images=flat,
        transforms=tf.constant([[1.0, 0.1, 0.0, -0.1, 1.0, 0.0, 0.0, 0.0]]),
        output_shape=[8, 8],
        fill_value=0.0,
        interpolation="BILINEAR",
    )
    return loss + tf.reduce_mean(turned)


def python(loss, images, logits):
    noise = tf.numpy_function(lambda x: x, [loss], tf.float32)  # HERE
    return loss + tf.reshape(noise, [])


def summary(loss, images, logits):
    tf1.summary.scalar("loss", loss)  # HERE
    return loss


def unmerged_summary(loss, images, logits):
    tf1.summary.scalar("loss", loss, collections=[])  # HERE
    return loss


def awaited_summary(loss, images, logits):
    with tf.control_dependencies([tf1.summary.scalar("loss", loss)]):  # HERE
        return tf.identity(loss)


def printing(loss, images, logits):
    return tf1.Print(loss, [loss])  # HERE


def placeholder(loss, images, logits):
    return loss + tf1.placeholder(tf.float32, [])  # HERE


def text(loss, images, logits):
    with tf.control_dependencies([tf.strings.as_string(loss)]):  # HERE
        return tf.identity(loss)


def bicubic(loss, images, logits):
    return loss + tf.reduce_mean(tf.image.resize(images, [4, 4], "bicubic"))  # HERE


def complex_numbers(loss, images, logits):
    wide = tf.cast(logits, tf.complex128)  # HERE
    return loss + tf.cast(tf.reduce_mean(tf.abs(wide)), tf.float32)


def masked(loss, images, logits):
    kept = tf.boolean_mask(logits, logits[:, 0] > 0)  # HERE
    return loss + tf.reduce_mean(kept)


def unique(loss, images, logits):
    classes, _ = tf.unique(tf.argmax(logits, 1))  # HERE
    return loss + tf.cast(tf.reduce_sum(classes), tf.float32)


def sliced(loss, images, logits):
    count = tf.cast(tf.reduce_max(images[:, 0, 0, 0]), tf.int32)
    return loss + tf.reduce_sum(logits[:count])  # HERE


def random_height(loss, images, logits):
    height = tf.random.uniform([], 4, 8, tf.int32)
    resized = tf.image.resize(images, [height, 8])  # HERE
    return loss + tf.reduce_mean(resized)


def lookup(loss, images, logits):
    with tf.init_scope():
        names = tf.lookup.KeyValueTensorInitializer(tf.range(3, dtype=tf.int64), tf.range(3.0))
        table = tf.lookup.StaticHashTable(names, 0.0)  # HERE
    return loss + tf.reduce_sum(table.lookup(tf.argmax(logits, 1)))


def counted_range(loss, images, logits):
    count = tf.cast(tf.reduce_max(images), tf.int32)
    return loss + tf.cast(tf.reduce_sum(tf.range(count)), tf.float32)  # HERE


def suppressed(loss, images, logits):
    boxes = tf.image.non_max_suppression(logits[:, :4], logits[:, 4], 5)  # HERE
    return loss + tf.cast(tf.reduce_sum(boxes), tf.float32)


def double(loss, images, logits):
    return tf.cast(tf.cast(loss, tf.float64) * 2, tf.float32)  # HERE


def flipped(loss, images, logits):
    changed = tf.image.random_flip_left_right(tf.cast(images, tf.float32))  # HERE
    return loss + tf.reduce_mean(changed)


def hue(loss, images, logits):
    changed = tf.image.adjust_hue(tf.cast(images, tf.float32), 0.1)  # HERE
    return loss + tf.reduce_mean(changed)


@functools.cache
def report_of(change):
    """Checks the classifier with a change of its loss, once for all tests."""
    with tf.Graph().as_default():
        return run_check(make_model_fn(change))


@pytest.mark.parametrize(
    ("change", "level", "code"),
    [
        (rotation, ERROR, "op"),
        (python, ERROR, "py_func"),
        (summary, ERROR, "summary"),
        (unmerged_summary, WARNING, "summary"),
        (awaited_summary, ERROR, "summary"),
        (printing, ERROR, "print"),
        (placeholder, ERROR, "placeholder"),
        (text, ERROR, "string"),
        slow(bicubic, ERROR, "op"),
        (complex_numbers, ERROR, "dtype"),
        (masked, WARNING, "dynamic-shape"),
        slow(unique, WARNING, "dynamic-shape"),
        slow(sliced, WARNING, "dynamic-shape"),
        (random_height, WARNING, "dynamic-shape"),
        (random_height, ERROR, "xla"),
        (lookup, ERROR, "capture"),
        slow(counted_range, WARNING, "dynamic-shape"),
        slow(suppressed, WARNING, "dynamic-shape"),
        (double, WARNING, "float64"),
        (hue, WARNING, "augmentation"),
        (flipped, WARNING, "augmentation"),
    ],
)
def test_rule_reports_the_line(change, level, code):
    report = report_of(change)
    found = [finding for finding in report.findings if finding.code == code]
    assert find_line(change, "# HERE") in [finding.where for finding in found]
    assert {finding.level for finding in found} == {level}
    assert {finding.mode for finding in found} == {"train"}


def codes_in_source():
    """Returns the codes of all findings that the package can yield."""
    paths = pathlib.Path(check.__file__).parent.glob("*.py")
    source = "".join(path.read_text() for path in paths)
    found = re.findall(r'(?:ERROR|WARNING|NOTE), "([\w-]+)"', source)
    return {*found, *tpu_kernels.HOST_OPS}


def test_every_code_is_documented():
    found = codes_in_source() | set(codes.codes())
    assert {"op", "hbm", "print", "batch-of-8", "clip-before-sum"} <= found
    page = (pathlib.Path(__file__).parents[3] / "docs" / "check.md").read_text()
    assert not [code for code in found if f"`{code}`" not in page]


def test_every_code_is_explained():
    for code in codes_in_source():
        assert len(explain(code).split()) > 20


def test_unknown_code_has_no_explanation():
    with pytest.raises(ValueError, match=r"unknown code 'oops'\. Valid: augmentation, batch"):
        explain("oops")


def test_missing_kernel_message():
    (finding,) = [f for f in report_of(rotation).findings if f.code == "op"]
    assert finding.message == "ImageProjectiveTransformV3 has no TPU kernel. Use it in the input_fn"


def not_dense(kind):
    """An input_fn with a feature that is a SparseTensor or a RaggedTensor."""

    def element(_):
        if kind == "SparseTensor":
            ids = tf.SparseTensor([[0, 0]], [1], [16, 5])
        else:
            ids = tf.RaggedTensor.from_row_lengths(tf.range(16), tf.ones([16], tf.int64))
        return {"ids": ids}, tf.zeros([16], tf.int32)

    return lambda params: tf.data.Dataset.range(3).map(element).repeat()


@pytest.mark.parametrize(
    ("input_fn", "words"),
    [
        (make_input_fn(drop_remainder=False), "drop_remainder=True"),
        (make_input_fn(dtype=tf.float64), "float64.*is not a supported TPU infeed type"),
        (make_input_fn(dtype=tf.int16), "int16.*is not a supported TPU infeed type"),
        (not_dense("SparseTensor"), r"features\['ids'\] as SparseTensor.*tf.sparse.to_dense"),
        (not_dense("RaggedTensor"), r"features\['ids'\] as RaggedTensor.*to_tensor"),
        (make_input_fn(any_height=True), r"must have static shape.*\(16, \?, 8, 3\)"),
        (lambda params: tf.zeros([16, 8, 8, 3]), "must return a `Dataset`"),
        (lambda params: 1 // 0, "ZeroDivisionError"),
    ],
)
def test_tpuestimator_error_of_input_fn_is_a_finding(input_fn, words):
    (finding,) = run_check(make_model_fn(), {"train": input_fn}).findings
    assert (finding.level, finding.code, finding.mode) == (ERROR, "graph", "train")
    assert re.search(words, finding.message)


def spec_with(**changes):
    """A model_fn whose TPUEstimatorSpec has `changes`: `{field: function(spec, logits)}`."""

    def model_fn(features, labels, mode, params):
        spec = make_model_fn()(features, labels, mode, params)
        logits = tf.cast(labels, tf.float32)[:, tf.newaxis]
        return spec._replace(**{name: change(spec, logits) for name, change in changes.items()})

    return model_fn


def ref_variable(loss, images, logits):
    with tf1.variable_scope("old", use_resource=False):
        return loss * tf1.get_variable("scale", initializer=1.0)


def endless_loop(loss, images, logits):
    _, total = tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * x), (0, loss))
    return total


def captures(logits):
    return tf1.train.Scaffold(init_op=tf.identity(logits))


def branches(loss, images, logits):
    one, two = lambda: tf.zeros([2]), lambda: tf.constant(True)
    return loss + tf.reduce_sum(tf.cond(loss > 0, one, two))


def writes_summary(loss):
    tf1.summary.scalar("loss", loss[0])
    return tf.no_op()


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    ("model_fn", "words"),
    [
        (spec_with(loss=lambda spec, logits: logits), "the loss must be a scalar"),
        (spec_with(train_op=lambda spec, logits: None), "the train_op or the loss is None"),
        (
            spec_with(host_call=lambda spec, logits: (lambda x: x, [spec.loss])),
            "should preserve batch size dimension, but got scalar",
        ),
        (
            spec_with(host_call=lambda spec, logits: (lambda x, y: x, [logits])),
            "missing 1 required positional argument: 'y'",
        ),
        (
            spec_with(host_call=lambda spec, logits: (writes_summary, [logits[:, 0]])),
            "tf.contrib.summary|tf.summary",
        ),
        (
            spec_with(scaffold_fn=lambda spec, logits: lambda: captures(logits)),
            "scaffold_fn|TPU",
        ),
        (spec_with(training_hooks=lambda spec, logits: 3), "hook|iterable"),
        (make_model_fn(branches), "must have the same type"),
        (make_model_fn(ref_variable), "Non-resource Variables are not supported"),
        (make_model_fn(endless_loop), "needs maximum_iterations"),
        (lambda features, labels, mode, params: 1, "TPUEstimatorSpec"),
    ],
)
def test_tpuestimator_error_of_model_fn_is_a_finding(model_fn, words):
    report = run_check(model_fn)
    graph = [finding for finding in report.findings if finding.code == "graph"]
    assert len(graph) == 1
    assert re.search(words, graph[0].message), graph[0].message


def test_input_fn_without_params_is_a_finding():
    (finding,) = run_check(make_model_fn(), {"train": lambda: None}).findings
    assert "does not include params argument" in finding.message


def test_missing_batch_size_is_a_finding():
    (finding,) = run_check(make_model_fn(), {"eval": make_input_fn()}, batch_size=None).findings
    assert "eval_batch_size" in finding.message


def eval_spec_with(eval_metrics):
    def model_fn(features, labels, mode, params):
        spec = make_model_fn()(features, labels, mode, params)
        return spec._replace(eval_metrics=eval_metrics(labels))

    return model_fn


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    ("eval_metrics", "words"),
    [
        (lambda labels: {"mean": tf1.metrics.mean(labels)}, "unpack|tuple or list"),
        (lambda labels: (lambda x: {}, [tf.reduce_mean(labels)]), "but got scalar"),
        (
            lambda labels: (lambda x: {"mean": tf1.metrics.mean(labels)}, [labels]),
            "Pass it to host_call or eval_metrics",
        ),
        (
            lambda labels: (lambda x: {"max": tf.reduce_max(x)}, [labels]),
            r"metric_fn at \S*test_check.py:\d+ returns a tensor of shape \(\) as 'max'. .* pair",
        ),
        (
            lambda labels: (lambda x: {"all": x}, [labels]),
            r"returns a tensor of shape \(128,\) as 'all'. Each metric must be a pair",
        ),
        (
            lambda labels: (lambda x: {"one": 1.0}, [labels]),
            "returns the Python float 1.0 as 'one'",
        ),
        (
            lambda labels: (
                (lambda mean: lambda x: {"m": mean})(tf1.metrics.mean(labels)),
                [labels],
            ),
            r"metric_fn at \S*test_check.py:\d+ returns 'm', which model_fn computes on the TPU",
        ),
    ],
)
def test_invalid_eval_metrics_are_a_finding(eval_metrics, words):
    report = run_check(eval_spec_with(eval_metrics), {"eval": make_input_fn()})
    graph = [finding for finding in report.findings if finding.code == "graph"]
    assert len(graph) == 1
    assert re.search(words, graph[0].message), graph[0].message
    assert graph[0].mode == "eval"


@pytest.mark.parametrize(
    "predictions",
    [
        lambda logits: logits,
        lambda logits: {"mean": tf.reduce_mean(logits)},
        lambda logits: {"some": tf.boolean_mask(logits, logits[:, 0] > 0)},
    ],
)
def test_invalid_predictions_are_a_finding(predictions):
    def model_fn(features, labels, mode, params):
        logits = dense(tf1.layers.flatten(tf.cast(features["image"], tf.float32)), 3, "logits")
        return tf1.estimator.tpu.TPUEstimatorSpec(mode, predictions=predictions(logits))

    report = run_check(model_fn, {"predict": make_input_fn(labels=False)})
    assert [f.code for f in report.findings if f.level == ERROR] == ["graph"]


def mistyped(params):
    return params["batch_sise"]


def test_error_in_input_fn_has_its_line():
    (finding,) = run_check(make_model_fn(), {"train": mistyped}).findings
    assert finding.where == find_line(mistyped, "return")


def mistyped_in_map(params):
    def parse(i):
        return tf.no_such_function(i)

    return tf.data.Dataset.range(9).map(parse)


def test_error_in_a_function_of_a_dataset_has_its_line():
    (finding,) = run_check(make_model_fn(), {"train": mistyped_in_map}).findings
    assert finding.where == find_line(mistyped_in_map, "no_such_function")
    assert "has no attribute 'no_such_function'" in finding.message


def test_input_fn_with_another_batch_size():
    report = run_check(make_model_fn(), {"train": make_input_fn(batch_size=32)})
    messages = [f.message for f in report.findings if f.code == "batch"]
    assert any("(32, 8, 8, 3) whatever params['batch_size'] is, which is 16" in m for m in messages)


def test_batch_not_divisible_by_cores():
    (finding,) = run_check(make_model_fn(), batch_size=100).findings
    assert "must be divisible by number of replicas 8" in finding.message
    assert "use a train batch size of 96 or 104 (" in finding.message


@pytest.mark.parametrize(("size", "padding"), [(13, "19%"), slow(12, "25%")])
def test_batch_not_a_multiple_of_eight(size, padding):
    (finding,) = run_check(make_model_fn(), batch_size=8 * size).findings
    assert (finding.code, finding.level) == ("batch-of-8", WARNING)
    assert (
        f"a per-core batch of {size} is not a multiple of 8: {padding} of each" in finding.message
    )


def test_gradients_without_cross_replica_sum():
    report = run_check(make_model_fn(no_sum=True))
    found = [f for f in report.findings if f.code == "no-cross-replica-sum"]
    variables = {f.message.split("'")[1] for f in found}
    assert variables == {"conv/kernel", "conv/bias", "logits/kernel", "logits/bias"}


def sums_only_the_loss(loss, images, logits):
    return loss * tf1.tpu.cross_replica_sum(tf.stop_gradient(loss))


def assigned_by_hand(loss, images, logits):
    weight = tf1.get_variable("by_hand", initializer=1.0)
    (gradient,) = tf.gradients(loss * weight, [weight])
    with tf.control_dependencies([weight.assign(weight - 0.1 * gradient)]):
        return tf.identity(loss)


def gathered_by_hand(loss, images, logits):
    weight = tf1.get_variable("by_hand", initializer=1.0)
    gathered = tf1.get_variable("gathered", initializer=0.0, trainable=False)
    (gradient,) = tf.gradients(loss * weight, [weight])
    with tf.control_dependencies([gathered.assign_add(gradient)]):
        update = weight.assign(weight - 0.1 * gathered.read_value())
    with tf.control_dependencies([update]):
        return tf.identity(loss)


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    ("change", "options", "expected"),
    [
        (gathered_by_hand, {}, "by_hand"),
        (sums_only_the_loss, {"no_sum": True}, "conv/kernel"),
        (assigned_by_hand, {}, "by_hand"),
    ],
)
def test_sum_of_another_tensor_is_not_enough(change, options, expected):
    report = run_check(make_model_fn(change, **options))
    found = [f for f in report.findings if f.code == "no-cross-replica-sum"]
    assert expected in {f.message.split("'")[1] for f in found}


def test_update_ops_that_never_run():
    report = run_check(make_model_fn(batch_norm=True, forget=True))
    found = [f for f in report.findings if f.code == "update-never-runs"]
    assert {f.message.split("'")[1] for f in found} == {"norm/moving_mean", "norm/moving_variance"}
    expected = find_line(make_model_fn, "batch_normalization(x, training")
    assert {f.where for f in found} == {expected}


def test_hook_that_reads_a_tensor_of_the_loop():
    (finding,) = run_check(make_model_fn(hook=True)).findings
    assert finding.code == "hook"
    assert "LoggingTensorHook reads 'logits/BiasAdd:0'" in finding.message


@pytest.mark.parametrize("name", ["logits/BiasAdd", "logits/BiasAdd:0"])
def test_hook_of_the_call_that_names_a_tensor_of_the_loop(name):
    hooks = {"train": [tf.compat.v1.train.LoggingTensorHook([name], 1)]}
    (finding,) = run_check(make_model_fn(), hooks=hooks).findings
    assert "LoggingTensorHook reads 'logits/BiasAdd:0'" in finding.message


def test_channels_that_waste_tiles():
    def change(loss, images, logits):
        return loss + tf.reduce_mean(dense(dense(logits, 9, "odd"), 16, "last"))

    report = run_check(make_model_fn(change))
    found = [f for f in report.findings if f.code == "tiles"]
    assert any("from 10 to 9 channels: 65% of its weights is padding" in f.message for f in found)


def test_float32_images_are_a_note():
    report = run_check(make_model_fn(), {"train": make_input_fn(dtype=tf.float32)})
    assert [f.code for f in report.findings] == ["infeed-float"]


def test_prediction_on_several_hosts_is_an_error():
    input_fns = {mode: make_input_fn() for mode in ("train", "eval")}
    input_fns["predict"] = make_input_fn(labels=False)
    report = run_check(make_model_fn(), input_fns, topology="v3-32", batch_size=512)
    (error,) = report.findings
    assert (error.level, error.code, error.mode) == (ERROR, "graph", "predict")
    assert "Predict on one host, such as a v3-8" in error.message
    assert report.modes["eval"].sizes is not None  # PER_HOST_V2 evaluates on all hosts


def test_sizes_equal_hand_computed_values():
    sizes = run_check(make_model_fn()).modes["train"].sizes
    kernel, head = 3 * 3 * 3 * 8 + 8, 8 * 10 + 10
    assert sizes.parameters == kernel + head
    assert sizes.parameter_bytes == 4 * (kernel + head)
    assert sizes.slot_bytes == 4 * (kernel + head) + 8  # momenta, and the global step
    assert sizes.infeed_bytes == 16 * 8 * 8 * 3 + 16 * 4
    forward = 2 * 16 * (8 * 8 * 3 * 3 * 3 * 8 + 8 * 10)
    assert forward * 2 < sizes.flops < forward * 3.2  # the first layer needs no gradient of images


def wasteful(loss, images, logits):
    """129 channels, with transposes between the convolutions."""
    x = tf.cast(tf.image.resize(images, [32, 32]), tf.float32)
    for i in range(3):
        x = tf1.layers.conv2d(x, 129, 3, padding="same", name=f"wide_{i}")
        x = tf.transpose(tf.nn.relu(tf.transpose(x, [0, 3, 1, 2])), [0, 2, 3, 1])
    return loss + tf.reduce_mean(x)


def repaired(loss, images, logits):
    """The same convolutions with 128 channels and no transposes."""
    x = tf.cast(tf.image.resize(images, [32, 32]), tf.float32)
    for i in range(3):
        x = tf1.layers.conv2d(x, 128, 3, padding="same", name=f"wide_{i}")
        x = tf.nn.relu(x)
    return loss + tf.reduce_mean(x)


def test_external_constant_keeps_its_shape():
    def change(loss, images, logits):
        with tf.init_scope():
            matrix = tf.constant(np.eye(10, dtype=np.float32))
        return loss + tf.reduce_mean(tf.matmul(logits, matrix))

    report = run_check(make_model_fn(change))
    assert (report.findings, report.not_checked) == ((), (SKIPPED,))


def test_estimator_can_be_checked_for_two_slices():
    estimator = make_estimator(make_model_fn(), batch_size=256)
    for name in ("v3-8", "v3-32"):
        report = check_program(estimator, {"train": make_input_fn()}, name, False)
        assert report.findings == ()
        assert report.modes["train"].batch_size == 256 // report.topology.num_cores


def test_failed_rehearsal_is_a_finding():
    def rehearse():
        raise ZeroDivisionError("no loss")

    report = run_check(make_model_fn(), rehearse=rehearse)
    (finding,) = report.findings
    assert (finding.level, finding.code, finding.mode) == (ERROR, "run", "train")
    assert "the rehearsal failed: ZeroDivisionError: no loss" in finding.message
    assert finding.where.startswith("tests/tpu/check/test_check.py")


def test_rehearsal_is_skipped_if_graph_fails():
    report = run_check(make_model_fn(), {"train": make_input_fn(drop_remainder=False)}, rehearse=1)
    assert "rehearsal: the training graph could not be built" in report.not_checked


class FakeCompiler:
    """Replaces compile_hlo: returns or raises the given results, one per call."""

    def __init__(self, *results):
        self._results = list(results)

    def __call__(self, hlo, target, effort):
        result = self._results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


OUT_OF_MEMORY = compiler.Compiled(False, "a compiler", error="too large", out_of_memory=True)
TIMEOUT = compiler.CompilerUnavailableError("killed after 900 s")


@pytest.mark.parametrize(
    "results",
    [
        slow((OUT_OF_MEMORY, TIMEOUT, TIMEOUT)),
        (OUT_OF_MEMORY, OUT_OF_MEMORY, TIMEOUT),
    ],
)
def test_out_of_memory_is_an_error_even_if_later_compilations_time_out(monkeypatch, results):
    monkeypatch.setattr(compiler, "compile_hlo", FakeCompiler(*results))
    report = run_check(
        make_model_fn(),
        compile_with_libtpu=True,
        with_batch=lambda mode, size: make_estimator(make_model_fn(), size),
    )
    (finding,) = report.findings
    assert (finding.level, finding.code) == (ERROR, "hbm")
    assert any("killed after 900 s" in reason for reason in report.not_checked)


def test_memory_near_the_limit_is_a_warning(monkeypatch):
    memory = {"peak": int(15.5 * 2**30)}
    fits = compiler.Compiled(True, "a compiler", memory=memory)
    monkeypatch.setattr(compiler, "compile_hlo", FakeCompiler(fits))
    monkeypatch.setattr(cost, "estimate_step_time", lambda *arguments: None)
    report = run_check(make_model_fn(), compile_with_libtpu=True)
    assert [(f.level, f.code) for f in report.findings] == [(WARNING, "hbm")]
    assert format_text(report).endswith("no error, 1 warning")


def test_variables_beyond_the_memory_are_an_error_before_xla():
    def change(loss, images, logits):
        table = tf1.get_variable("table", [10**9, 5], use_resource=True)
        return loss + tf.reduce_sum(tf.gather(table, [3]))

    report = run_check(make_model_fn(change))
    (finding,) = report.findings
    assert (finding.level, finding.code) == (ERROR, "hbm")
    assert "The largest is 'table': float32[1000000000, 5] = 18.63 GiB" in finding.message
    assert report.modes["train"].compiled is None


@needs_libtpu
def test_unimplemented_operation_is_a_compiler_error():
    def change(loss, images, logits):
        bits = tf.bitcast(tf.cast(loss, tf.float64), tf.int64)
        return loss + 0 * tf.cast(bits, tf.float32)

    report = run_check(make_model_fn(change), compile_with_libtpu=True)
    (error,) = [f for f in report.findings if f.level == ERROR]
    assert error.code == "tpu-compiler"
    assert "X64" in error.message


@pytest.mark.slow
@needs_libtpu
def test_instructions_in_loops_have_lines(monkeypatch):
    def change(loss, images, logits):
        x = tf.cast(tf.image.resize(images, [32, 32]), tf.float32)

        def body(i, x):
            return i + 1, tf1.layers.conv2d(x, 3, 3, padding="same", name="looped")

        _, x = tf.while_loop(lambda i, _: i < 3, body, (0, x), maximum_iterations=3)
        return loss + tf.reduce_mean(x)

    report = run_check(make_model_fn(change), compile_with_libtpu=True)
    places = {part.where for part in report.modes["train"].step_time.largest}
    assert find_line(change, "tf1.layers.conv2d") in places


@pytest.mark.slow
@needs_libtpu
def test_odd_channels_and_transposes_are_slower():
    seconds = []
    for change in (wasteful, repaired):
        report = run_check(make_model_fn(change), compile_with_libtpu=True)
        assert report.num_errors == 0
        seconds.append(report.modes["train"].step_time.seconds)
    assert seconds[0] > 1.3 * seconds[1]


@pytest.mark.slow
@needs_libtpu
def test_memory_estimate_is_near_the_compiler():
    train = run_check(make_model_fn(repaired), compile_with_libtpu=True).modes["train"]
    assert train.sizes.hbm_bytes == pytest.approx(train.compiled.memory["peak"], rel=0.25)


@pytest.mark.slow
@needs_libtpu
def test_step_time_is_attributed_to_lines():
    step_time = (
        run_check(make_model_fn(repaired), compile_with_libtpu=True).modes["train"].step_time
    )
    assert sum(part.share for part in step_time.largest) > 0.8
    places = {part.where for part in step_time.largest}
    assert find_line(repaired, "tf1.layers.conv2d") in places


def test_to_json():
    report = report_of(rotation)
    fields = json.loads(to_json(report))
    assert fields["num_errors"] == 1
    assert fields["findings"][0]["code"] == "op"
    assert fields["topology"]["name"] == "v3-8"
    assert fields["modes"]["train"]["batch_size"] == 16
    assert "tensorflow-tpu 2.16.1" in fields["kernels"]


def test_format_text():
    lines = format_text(report_of(rotation)).splitlines()
    assert lines[0] == "check for v3-8: 1 host x 8 cores"
    assert lines[-1] == "1 error"
    (place,) = [i for i, line in enumerate(lines) if line.startswith("error op (train): Image")]
    assert lines[place + 1] == f"    at {find_line(rotation, '# HERE')}"
    assert any(line.startswith("memory") and "about" in line for line in lines)


def test_errors_of_different_modes_are_not_joined():
    findings = [
        Finding(ERROR, "graph", "no labels", "a.py:3", "train"),
        Finding(ERROR, "graph", "no loss", "a.py:5", "eval"),
        Finding(ERROR, "graph", "no labels", "a.py:3", "predict"),
    ]
    lines = format_text(Report(topology.find("v3-8"), tuple(findings), {}, ())).splitlines()
    place = lines.index("error graph (train, predict): no labels")
    assert lines[place + 2] == "error graph (eval): no loss"


def test_format_text_in_color():
    report = report_of(rotation)
    assert "\033[31merror\033[0m" in format_text(report, color=True)
    assert "\033" not in format_text(report)
