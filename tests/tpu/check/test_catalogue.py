"""Mistakes of TPU programs that must be found, one case each.

With test_check.py, which has the others, these are the mistakes that TPUEstimator, the lint or XLA
find without a TPU.
"""

import re

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
from tpu.check import check_program
from tpu.findings import ERROR, WARNING

tf1 = tf.compat.v1


def feed(dtype):
    """An input_fn with a feature of a dtype that the infeed lacks."""
    return lambda params: rows(params).map(lambda x, y: (tf.cast(x, dtype), y))


def text_features(params):
    return rows(params).map(lambda x, y: (tf.strings.as_string(x), y))


def unknown_rank(params):
    def of_any_rank(x, y):
        return tf.numpy_function(lambda value: value, [x], tf.float32), y

    return rows(params).map(of_any_rank)


def partial_batches(params):
    dataset = rows(params).unbatch().take(30)
    return dataset.batch(params["batch_size"])


def odd_batches(params):
    return rows({"batch_size": 15})


def tensors(params):
    return tf1.data.make_one_shot_iterator(rows(params)).get_next()


PLACE = re.compile(r"tests/tpu/check/(test_catalogue|regression)\.py:\d+$")
V1 = {"per_host_input_for_training": InputConfig.PER_HOST_V1}
SHARD = {"per_host_input_for_training": InputConfig.PER_SHARD_V1}


@pytest.mark.parametrize(
    ("input_fn", "config", "words"),
    [
        (feed(tf.float16), {}, "float16'> is not a supported TPU infeed type"),
        slow(feed(tf.float64), {}, "float64'> is not a supported TPU infeed type"),
        (text_features, {}, "string'> is not a supported TPU infeed type"),
        (unknown_rank, {}, "must"),
        (partial_batches, {}, "drop_remainder=True"),
        (partial_batches, V1, "drop_remainder=True"),
        (odd_batches, V1, "cannot be sharded 2 ways along dimension 0"),
        (tensors, {}, "must return a `Dataset`"),
        (rows, SHARD, "Dataset"),
    ],
)
def test_mistakes_of_input_fn(input_fn, config, words):
    (finding,) = check(make_model_fn(), input_fn, **config).findings
    assert (finding.level, finding.code) == (ERROR, "graph")
    assert re.search(words, finding.message), finding.message
    assert PLACE.match(finding.where), finding


def test_a_feature_that_the_infeed_refuses_is_named():
    def named(params):
        return rows(params).map(lambda x, y: ({"x": x, "names": (tf.strings.as_string(x),)}, y))

    (finding,) = check(make_model_fn(), named).findings
    assert finding.message.startswith("input_fn returns features['names'][0] as string")
    assert finding.where == f"tests/tpu/check/test_catalogue.py:{named.__code__.co_firstlineno}"


def without_params(features, labels, mode):
    return None


def plain_spec(features, labels, mode, params):
    loss = squares(features, labels)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=tf.no_op())


def fail_without_sum(loss):
    step = tf1.train.get_global_step()
    return tf1.train.GradientDescentOptimizer(0.1).minimize(loss, step)


def two_metrics(labels, logits):
    return {}


@pytest.mark.parametrize(
    ("model_fn", "mode", "words"),
    [
        (without_params, "train", "params"),
        (plain_spec, "eval", "TPUEstimatorSpec"),
        (make_model_fn(train=fail_without_sum), "train", "CrossShardOptimizer must be used"),
        (
            make_model_fn(eval_metrics=lambda x, y: (two_metrics, [x])),
            "eval",
            "missing 1 required positional argument|length of tensors",
        ),
    ],
)
def test_mistakes_of_model_fn(model_fn, mode, words):
    found = check(model_fn, mode=mode).findings
    assert [(finding.level, finding.code) for finding in found] == [(ERROR, "graph")]
    assert re.search(words, found[0].message), found[0].message
    assert PLACE.match(found[0].where), found[0]


def metrics_of_the_loop(features, labels):
    logits = features[:, :1]
    return lambda y: {"error": tf1.metrics.mean_squared_error(y, logits)}, [labels]


def part_of_a_batch(features, labels):
    return {"x": tf.boolean_mask(features, features[:, 0] > 0)}


def words(features, labels):
    ids, names = tf.constant([0], tf.int64), tf.constant([7], tf.int64)
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(ids, names), -1)
    return {"word": table.lookup(tf.cast(features, tf.int64))}


@pytest.mark.parametrize(
    ("mode", "field", "make", "line", "text"),
    [
        ("eval", "eval_metrics", metrics_of_the_loop, 2, "uses 'logits' of model_fn. Pass it"),
        slow("predict", "predictions", part_of_a_batch, 1, "has dynamic shape"),
        slow("predict", "predictions", words, 2, "a TPU cannot look up tables. Convert"),
    ],
)
def test_what_model_fn_returns_has_its_line(mode, field, make, line, text):
    (finding,) = check(make_model_fn(**{field: make}), mode=mode).findings
    assert text in finding.message, finding.message
    line += make.__code__.co_firstlineno
    assert finding.where == f"tests/tpu/check/test_catalogue.py:{line}"


@pytest.mark.parametrize(
    ("config", "words"),
    [({"num_shards": 4}, "num_shards is not set correctly")],
)
def test_mistakes_of_the_configuration(config, words):
    (finding,) = check(make_model_fn(), **config).findings
    assert finding.code == "graph"
    assert words in finding.message


@pytest.mark.parametrize("mode", ["eval", slow("predict")])
def test_missing_batch_size(mode):
    estimator = make_estimator(make_model_fn())
    setattr(estimator._ctx, f"_{mode}_batch_size", None)
    (finding,) = check_program(estimator, {mode: rows}, "1x2", False).findings
    assert (finding.code, finding.mode) == ("graph", mode)
    assert f"{mode}_batch_size in TPUEstimator constructor cannot be `None`" in finding.message


# ---- Operations ----


def decode(value):
    image = tf.io.decode_jpeg(tf.constant(b""), channels=3)
    return tf.reduce_sum(tf.cast(image, tf.float32))


def split(value):
    return tf.cast(tf.size(tf.strings.split([tf.strings.as_string(value)]).values), tf.float32)


def crop(value):
    images = tf.zeros([1, 8, 8, 1]) + value
    return tf.reduce_sum(tf.image.crop_and_resize(images, [[0.0, 0.0, 1.0, 1.0]], [0], [4, 4]))


def histogram(value):
    counts = tf.histogram_fixed_width(tf.reshape(value, [1]), [0.0, 1.0])
    return tf.cast(tf.reduce_sum(counts), tf.float32)


def default_placeholder(value):
    return tf1.placeholder(tf.float32, []) * value


def script(value):
    return tf.reshape(tf1.py_func(lambda x: x, [value], tf.float32), [])


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (split, "string"),
        (crop, "op"),
        slow(histogram, "op"),
        (default_placeholder, "placeholder"),
        (script, "py_func"),
        slow(decode, "op"),
    ],
)
def test_operations_without_a_tpu_kernel(change, code):
    def loss(features, labels):
        value = squares(features, labels)
        return value + change(tf.stop_gradient(value))

    assert (ERROR, code) in codes(check(make_model_fn(loss)))


def top_k(features):
    count = tf.cast(features[0, 0], tf.int32)
    return tf.reduce_sum(tf.math.top_k(features, count).values)


def reshape(features):
    rows = tf.cast(features[0, 0], tf.int32)
    return tf.reduce_sum(tf.reshape(features, tf.stack([rows, -1])))


def filled(features):
    return tf.reduce_sum(tf.fill([tf.cast(features[0, 0], tf.int32)], 1.0))


@pytest.mark.parametrize("change", [top_k, slow(reshape), slow(filled)])
def test_shapes_that_depend_on_data(change):
    def loss(features, labels):
        return squares(features, labels) + change(features)

    assert (WARNING, "dynamic-shape") in codes(check(make_model_fn(loss)))


def test_string_predictions():
    def model_fn(features, labels, mode, params):
        predictions = {"name": tf.fill([8], "cat"), "x": features}
        return tf1.estimator.tpu.TPUEstimatorSpec(mode, predictions=predictions)

    found = check(model_fn, lambda params: rows(params).map(lambda x, y: x), "predict").findings
    assert ERROR in {finding.level for finding in found}
