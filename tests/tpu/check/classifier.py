"""A small image classifier in the TPUEstimator style, with one change per test."""

import inspect
import os

import tensorflow as tf

from tpu.check import check_program

tf1 = tf.compat.v1
BATCH = 128  # 16 a core of a v3-8


def dense(x, units, name):
    return tf1.layers.dense(x, units, name=name)


def make_model_fn(change=lambda loss, images, logits: loss, **options):
    """A model_fn that is valid except for `change` and the options."""

    def model_fn(features, labels, mode, params):
        images = features["image"]
        x = tf1.layers.conv2d(tf.cast(images, tf.float32), 8, 3, padding="same", name="conv")
        if options.get("batch_norm"):
            training = mode == tf.estimator.ModeKeys.TRAIN
            x = tf1.layers.batch_normalization(x, training=training, name="norm")
        logits = dense(tf.reduce_mean(x, [1, 2]), 10, "logits")
        if mode == tf.estimator.ModeKeys.PREDICT:
            predictions = {"classes": tf.argmax(logits, 1), "logits": logits}
            return tf1.estimator.tpu.TPUEstimatorSpec(mode, predictions=predictions)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        loss = change(tf.reduce_mean(losses), images, logits)
        optimizer = tf1.train.MomentumOptimizer(0.1, 0.9)
        if params["use_tpu"] and not options.get("no_sum"):
            optimizer = tf1.tpu.CrossShardOptimizer(optimizer)
        if options.get("no_sum"):
            tf1.tpu.cross_replica_sum(loss)  # satisfies TPUEstimator's check for a sum
        updates = [] if options.get("forget") else tf1.get_collection(tf1.GraphKeys.UPDATE_OPS)
        with tf.control_dependencies(updates):
            train_op = optimizer.minimize(loss, tf1.train.get_global_step())
        hooks = [tf1.train.LoggingTensorHook({"x": logits}, 1)] if options.get("hook") else None
        return tf1.estimator.tpu.TPUEstimatorSpec(
            mode,
            loss=loss,
            train_op=train_op,
            training_hooks=hooks,
            eval_metrics=(
                lambda labels, logits: {
                    "accuracy": tf1.metrics.accuracy(labels, tf.argmax(logits, 1))
                },
                [labels, logits],
            ),
        )

    return model_fn


def make_input_fn(
    dtype=tf.uint8, drop_remainder=True, batch_size=None, any_height=False, labels=True
):
    def input_fn(params):
        image = tf.zeros([64, 8, 8, 3], dtype)
        dataset = tf.data.Dataset.from_tensor_slices(({"image": image}, tf.zeros([64], tf.int32)))
        if any_height:  # a dynamic shape
            height = tf.random.uniform([], 4, 9, tf.int32)
            dataset = dataset.map(lambda x, y: ({"image": x["image"][:height]}, y))
        dataset = dataset if labels else dataset.map(lambda x, y: x)
        return dataset.repeat().batch(batch_size or params["batch_size"], drop_remainder)

    return input_fn


def make_estimator(model_fn, batch_size=BATCH):
    config = tf1.estimator.tpu.RunConfig(
        cluster=tf.distribute.cluster_resolver.TPUClusterResolver("local"),
        model_dir="/nowhere",
        tpu_config=tf1.estimator.tpu.TPUConfig(
            per_host_input_for_training=tf1.estimator.tpu.InputPipelineConfig.PER_HOST_V2
        ),
    )
    sizes = {f"{mode}_batch_size": batch_size for mode in ("eval", "predict")}
    sizes["train_batch_size"] = batch_size or BATCH
    return tf1.estimator.tpu.TPUEstimator(model_fn, config=config, use_tpu=True, **sizes)


def run_check(
    model_fn,
    input_fns=None,
    topology="v3-8",
    batch_size=BATCH,
    compile_with_libtpu=False,
    **options,
):
    estimator = make_estimator(model_fn, batch_size)
    input_fns = input_fns or {"train": make_input_fn()}
    return check_program(estimator, input_fns, topology, compile_with_libtpu, **options)


def find_line(function, text):
    """Returns "file:line" of the line of a function that contains `text`."""
    lines, first = inspect.getsourcelines(function)
    (offset,) = [i for i, line in enumerate(lines) if text in line]
    return f"{os.path.relpath(inspect.getsourcefile(function))}:{first + offset}"
