"""A TPUEstimator of one weight, for tests of the emulator."""

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1
NUM_EXAMPLES = 96


def numbers(params):
    """Endless batches of the numbers 0 to 95, float32 `[batch, 1]`, without sharding by host."""
    x = np.arange(NUM_EXAMPLES, dtype=np.float32)[:, np.newaxis]
    dataset = tf.data.Dataset.from_tensor_slices((x, x))
    return dataset.repeat().batch(params["batch_size"], drop_remainder=True)


def numbers_once(params):
    """The numbers 0 to 7 as features."""
    x = np.arange(8, dtype=np.float32)[:, np.newaxis]
    return tf.data.Dataset.from_tensor_slices(x).batch(params["batch_size"])


def model_fn(features, labels, mode, params):
    """Learns the mean of its labels; predicts what `params["predict"]` makes of the features."""
    weight = tf1.get_variable("weight", initializer=0.0)
    if mode == tf.estimator.ModeKeys.PREDICT:
        predictions = params["predict"](features)
        return tf1.estimator.tpu.TPUEstimatorSpec(mode, predictions=predictions)
    loss = tf.reduce_mean((weight - labels) ** 2) / 2
    optimizer = tf1.train.GradientDescentOptimizer(0.1)
    if params["use_tpu"]:
        optimizer = tf1.tpu.CrossShardOptimizer(optimizer)
    train_op = optimizer.minimize(loss, tf1.train.get_global_step())
    metrics = (lambda x: {"mean": tf1.metrics.mean(x)}, [labels])
    return tf1.estimator.tpu.TPUEstimatorSpec(
        mode, loss=loss, train_op=train_op, eval_metrics=metrics
    )


def config(folder, tpu_config=None, **options):
    """Returns a RunConfig; options such as `cluster` or `master`."""
    tpu_config = tf1.estimator.tpu.TPUConfig(**{"iterations_per_loop": 4, **(tpu_config or {})})
    return tf1.estimator.tpu.RunConfig(model_dir=str(folder), tpu_config=tpu_config, **options)


def estimator(run_config, model_fn=model_fn, batch_size=8, use_tpu=True, **params):
    """Returns a TPUEstimator."""
    sizes = {f"{mode}_batch_size": batch_size for mode in ("train", "eval", "predict")}
    return tf1.estimator.tpu.TPUEstimator(
        model_fn, config=run_config, use_tpu=use_tpu, params=params, **sizes
    )
