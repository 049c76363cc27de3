"""A TPUEstimator program in the style of TensorFlow's guide, independent of this package.

test_emulator.py runs it under the emulator. Like many programs it uses a resolver made from a name,
PER_HOST_V1 input, TensorFlow 2 behavior and argparse.
"""

import argparse
import sys

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1


def make_data(seed, size):
    random = np.random.RandomState(seed)
    labels = random.randint(0, 5, size).astype(np.int32)
    images = random.uniform(0, 0.3, [size, 20]).astype(np.float32)
    images[np.arange(size), labels * 4] += 1
    return images, labels


def initializer(seed):
    return tf1.glorot_uniform_initializer(seed=seed)


def metric_fn(labels, logits):
    return {"accuracy": tf1.metrics.accuracy(labels, tf.argmax(logits, 1))}


def model_fn(features, labels, mode, params):
    images = features["images"] if isinstance(features, dict) else features
    hidden = tf1.layers.dense(images, 16, tf.nn.softplus, kernel_initializer=initializer(1))
    logits = tf1.layers.dense(hidden, 5, kernel_initializer=initializer(2))
    if mode == tf.estimator.ModeKeys.PREDICT:
        predictions = {"class_ids": tf.argmax(logits, 1)[:, tf.newaxis], "logits": logits}
        return tf1.estimator.tpu.TPUEstimatorSpec(mode, predictions=predictions)
    loss = tf1.losses.sparse_softmax_cross_entropy(labels=labels, logits=logits)
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf1.estimator.tpu.TPUEstimatorSpec(
            mode, loss=loss, eval_metrics=(metric_fn, [labels, logits])
        )
    optimizer = tf1.train.AdagradOptimizer(learning_rate=params["learning_rate"])
    if params["use_tpu"]:
        optimizer = tf1.tpu.CrossShardOptimizer(optimizer)
    train_op = optimizer.minimize(loss, global_step=tf1.train.get_global_step())
    return tf1.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def train_input_fn(params):
    dataset = tf.data.Dataset.from_tensor_slices(make_data(1, 480)).repeat()
    return dataset.batch(params["batch_size"], drop_remainder=True)


def eval_input_fn(params):
    dataset = tf.data.Dataset.from_tensor_slices(make_data(2, 96))
    return dataset.batch(params["batch_size"], drop_remainder=True)


def predict_input_fn(params):
    dataset = tf.data.Dataset.from_tensor_slices({"images": make_data(3, 30)[0]})
    return dataset.batch(params["batch_size"])


def main(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--tpu", default="my-tpu")
    parser.add_argument("--model_dir")
    parser.add_argument("--use_tpu", type=int, default=1)
    arguments = parser.parse_args(argv)
    cluster = None
    if arguments.use_tpu:
        cluster = tf.distribute.cluster_resolver.TPUClusterResolver(arguments.tpu)
    run_config = tf1.estimator.tpu.RunConfig(
        cluster=cluster,
        model_dir=arguments.model_dir,
        tf_random_seed=7,
        session_config=tf1.ConfigProto(allow_soft_placement=True, log_device_placement=False),
        tpu_config=tf1.estimator.tpu.TPUConfig(iterations_per_loop=20),
    )
    estimator = tf1.estimator.tpu.TPUEstimator(
        model_fn,
        use_tpu=bool(arguments.use_tpu),
        train_batch_size=48,
        eval_batch_size=48,
        predict_batch_size=16,
        params={"learning_rate": 0.5},
        config=run_config,
    )
    estimator.train(train_input_fn, max_steps=50)
    metrics = estimator.evaluate(eval_input_fn, steps=2)
    return metrics, list(estimator.predict(predict_input_fn))


if __name__ == "__main__":
    print(main(sys.argv[1:])[0])
