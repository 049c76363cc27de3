"""A linear regression in the TPUEstimator style on two cores of 8 examples, with one change."""

import numpy as np
import tensorflow as tf

from tpu.check import check_program

tf1 = tf.compat.v1
InputConfig = tf1.estimator.tpu.InputPipelineConfig
NUM_FEATURES = 5


def rows(params):
    """An input_fn: [batch, 5] and [batch, 1]."""
    x = np.ones([64, NUM_FEATURES], np.float32)
    dataset = tf.data.Dataset.from_tensor_slices((x, x[:, :1]))
    return dataset.repeat().batch(params["batch_size"], drop_remainder=True)


def squares(features, labels):
    """The loss of the regression."""
    return tf.reduce_mean((tf1.layers.dense(features, 1) - labels) ** 2)


def minimize(loss):
    """A train_op that sums the gradients over the cores."""
    optimizer = tf1.tpu.CrossShardOptimizer(tf1.train.GradientDescentOptimizer(0.01))
    return optimizer.minimize(loss, tf1.train.get_global_step())


def make_model_fn(loss=squares, train=minimize, **fields):
    """A model_fn; `fields` are `{field of the spec: (features, labels) -> value}`."""

    def model_fn(features, labels, mode, params):
        value = loss(features, labels)
        is_training = mode == tf.estimator.ModeKeys.TRAIN
        return tf1.estimator.tpu.TPUEstimatorSpec(
            mode,
            loss=value,
            train_op=train(value) if is_training else None,
            **{name: make(features, labels) for name, make in fields.items()},
        )

    return model_fn


def make_estimator(model_fn, use_tpu=True, eval_on_tpu=True, embeddings=None, **tpu_config):
    tpu_config.setdefault("per_host_input_for_training", InputConfig.PER_HOST_V2)
    return tf1.estimator.tpu.TPUEstimator(
        model_fn,
        config=tf1.estimator.tpu.RunConfig(
            cluster=tf.distribute.cluster_resolver.TPUClusterResolver("local"),
            model_dir="/nowhere",
            tpu_config=tf1.estimator.tpu.TPUConfig(**tpu_config),
        ),
        use_tpu=use_tpu,
        eval_on_tpu=eval_on_tpu,
        embedding_config_spec=embeddings,
        train_batch_size=16,
        eval_batch_size=16,
        predict_batch_size=16,
    )


def check(model_fn, input_fn=rows, mode="train", tpu_slice="1x2", **tpu_config):
    """Checks one mode without the TPU compiler."""
    estimator = make_estimator(model_fn, **tpu_config)
    return check_program(estimator, {mode: input_fn}, tpu_slice, compile_with_libtpu=False)


def codes(report):
    """Returns (level, code) of each finding."""
    return [(finding.level, finding.code) for finding in report.findings]
