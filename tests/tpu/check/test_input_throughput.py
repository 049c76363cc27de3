"""Throughput of an input_fn, called as TPUEstimator calls it."""

import pytest
import tensorflow as tf

from tpu.check import explanations, input_throughput
from tpu.check.graph_builder import CheckedMode
from tpu.connect import topology

tf1 = tf.compat.v1
SLICE = topology.find("v3-32")  # 4 hosts of 8 cores


def batches(params):
    assert params["batch_size"] == 3
    dataset = tf.data.Dataset.from_tensor_slices({"image": tf.zeros([13, 2], tf.uint8)})
    return dataset.repeat().batch(params["batch_size"], drop_remainder=True)


def takes_params(params):
    return batches(params)


def takes_mode_and_params(mode, params):
    assert mode == tf.estimator.ModeKeys.TRAIN
    return batches(params)


def uses_context(params):
    _, host, num_hosts, cores = params["context"].current_input_fn_deployment()
    assert (host, num_hosts, cores) == (0, 4, 8)
    return batches(params)


def returns_tensors(params):
    return tf1.data.make_one_shot_iterator(batches(params)).get_next()


def uses_lookup_table(params):
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([0], [7]), 0)
    return batches(params).map(lambda features: table.lookup(tf.cast(features["image"], tf.int32)))


@pytest.mark.parametrize(
    "input_fn",
    [takes_params, takes_mode_and_params, uses_context, returns_tensors, uses_lookup_table],
)
def test_measures_any_input_fn(input_fn):
    config = tf1.estimator.tpu.RunConfig(
        cluster=tf.distribute.cluster_resolver.TPUClusterResolver("local"),
        model_dir="/nowhere",
        tpu_config=tf1.estimator.tpu.TPUConfig(
            per_host_input_for_training=tf1.estimator.tpu.InputPipelineConfig.PER_HOST_V2
        ),
    )
    estimator = tf1.estimator.tpu.TPUEstimator(
        lambda features, labels, mode, params: None,
        config=config,
        use_tpu=True,
        train_batch_size=3 * SLICE.num_cores,
    )
    checked = CheckedMode(estimator, input_fn, "train", SLICE)
    assert input_throughput.measure(checked, seconds=0.05) > 0


def test_error_of_an_input_fn_that_ends():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        dataset = tf.data.Dataset.range(1).take(0)
        value = tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()
        with pytest.raises(tf.errors.OutOfRangeError) as error:
            session.run(value)
    explained = explanations.explain_error(error.value)
    assert explained.startswith("input_fn ended before the last step")
    assert "File" not in explained  # no stack


def test_message_of_an_error_at_run_time():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        value = tf.compat.v1.placeholder_with_default([1.0, 2.0], [None])
        value = tf.reshape(value, [3])
        with pytest.raises(tf.errors.InvalidArgumentError) as error:
            session.run(value)
    explained = explanations.explain_error(error.value)
    assert explained.startswith("InvalidArgumentError: Input to reshape is a tensor with 2 values")
    assert "File" not in explained
