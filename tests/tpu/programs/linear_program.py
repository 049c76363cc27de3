"""A small TPUEstimator program with one switch per habit of the programs that people have.

test_emulate.py, test_check.py and test_compare.py run it. Its data are 48 examples of 5 features.
"""

import argparse
import time

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1
parser = argparse.ArgumentParser()
parser.add_argument("--model_dir")
parser.add_argument("--use_tpu", type=int, default=1)
parser.add_argument("--mode", default="train")
parser.add_argument("--steps", type=int, default=6)
parser.add_argument("--dropout", type=float, default=0.0)
parser.add_argument("--noise", type=float, default=0.0)
parser.add_argument("--input", default="plain", help="plain, shuffled, transposed, flat or once")
parser.add_argument(
    "--optimizer",
    default="sharded",
    help="sharded, counted, adam, summed, local, clipped, too_large, no_step",
)
parser.add_argument("--loss", default="mean", help="mean, weighted, smooth, ...")
parser.add_argument("--summary", default="none", help="none, model_fn, host_call or hook")
parser.add_argument("--log", default="", help="a tensor, for hooks of train_and_evaluate")
parser.add_argument("--metrics", default="tensors", help="tensors, none or scalar")
parser.add_argument("--batch_size", type=int, default=16)
arguments = parser.parse_args()
calls = []


def input_fn(params):
    random = np.random.RandomState(3)
    x = random.normal(size=[48, 5]).astype(np.float32)
    dataset = tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True)))
    if arguments.input == "shuffled":
        dataset = dataset.shuffle(48)
    if arguments.input != "once":
        dataset = dataset.repeat()
    dataset = dataset.batch(params["batch_size"], drop_remainder=True)
    if arguments.input in ("transposed", "flat"):
        dataset = dataset.map(lambda x, y: (tf.transpose(x), y))
    if arguments.input == "flat":
        dataset = dataset.map(lambda x, y: (tf.reshape(x, [5 * params["batch_size"]]), y))
    return dataset


def write_loss(step, loss):
    """The function of host_call."""
    with (
        tf.summary.create_file_writer(arguments.model_dir).as_default(),
        tf.summary.record_if(True),
    ):
        tf.summary.scalar("loss", loss[0], step=step[0])
        return tf1.summary.all_v2_summary_ops()


def model_fn(features, labels, mode, params):
    if arguments.input == "flat":
        features = tf.reshape(features, [5, -1])
    if arguments.input in ("transposed", "flat"):
        features = tf.transpose(features)
    if arguments.dropout:
        features = tf.nn.dropout(features, rate=arguments.dropout)
    if arguments.noise:
        features += arguments.noise * tf.random.normal(tf.shape(features))
    output = tf1.layers.dense(features, 1, kernel_initializer=tf1.ones_initializer())
    if mode == "infer":
        return tf1.estimator.tpu.TPUEstimatorSpec(mode, predictions={"output": output})
    if arguments.loss == "batch_norm":
        output = tf1.layers.batch_normalization(output, training=True)
    if arguments.loss == "cpu_only" and not params["use_tpu"]:
        tf1.get_variable("of_cpu", [])
    errors = (output - 2 * labels) ** 2
    loss = tf.reduce_mean(errors)
    weights = tf.cast(labels > 0, tf.float32)  # of a different sum on each core
    if arguments.loss == "weighted":
        loss = tf1.losses.compute_weighted_loss(errors, weights)
    if arguments.loss == "sum":
        loss = tf.reduce_sum(errors)
    if arguments.loss == "smooth":
        loss = tf.reduce_sum(errors * weights) / (tf.reduce_sum(weights) + 1)
    rate = 0.01
    if arguments.optimizer == "counted":
        calls.append(mode)
        rate /= len(calls)
    optimizer = tf1.train.MomentumOptimizer(rate, 0.9)
    if arguments.optimizer in ("adam", "summed"):
        optimizer = tf1.train.AdamOptimizer(0.01, epsilon=1e-30)
    if params["use_tpu"] and arguments.optimizer == "too_large":  # a sum of means
        optimizer = tf1.tpu.CrossShardOptimizer(optimizer, tf1.losses.Reduction.SUM)
    elif params["use_tpu"] and arguments.optimizer != "local":
        optimizer = tf1.tpu.CrossShardOptimizer(optimizer)
    if params["use_tpu"] and arguments.optimizer == "local":  # else TPUEstimator finds the error
        loss += 0 * tf1.tpu.cross_replica_sum(tf.stop_gradient(loss))
    gradients, variables = zip(*optimizer.compute_gradients(loss))
    if arguments.optimizer == "summed":  # CrossShardOptimizer averages in compute_gradients
        gradients = tf.gradients(loss, variables)
    if arguments.optimizer == "clipped":
        gradients, _ = tf.clip_by_global_norm(gradients, 0.1)
    step = None if arguments.optimizer == "no_step" else tf1.train.get_global_step()
    train_op = optimizer.apply_gradients(zip(gradients, variables), step)
    if arguments.loss == "batch_norm":
        updates = tf1.get_collection(tf1.GraphKeys.UPDATE_OPS)
        train_op = tf.group(train_op, *updates)
    host_call = hooks = None
    if arguments.summary == "model_fn":
        tf1.summary.scalar("loss", loss)
    if arguments.summary == "host_call":
        tensors = [tf1.train.get_global_step(), loss]
        host_call = write_loss, [tf.reshape(tensor, [1]) for tensor in tensors]
    if arguments.summary == "hook":
        hooks = [tf1.train.StepCounterHook(1, output_dir=arguments.model_dir)]
    return tf1.estimator.tpu.TPUEstimatorSpec(
        mode,
        loss=loss,
        train_op=train_op,
        host_call=host_call,
        training_hooks=hooks,
        eval_metrics=(
            lambda a, b: {"error": tf1.metrics.mean_absolute_error(a, b)},
            {"none": [labels, None], "scalar": [loss, loss]}.get(
                arguments.metrics, [labels, output]
            ),
        ),
    )


def predict_input_fn(params):
    x = np.zeros([11, 5], np.float32)
    return tf.data.Dataset.from_tensor_slices(x).batch(params["batch_size"])


def serving_input_fn():
    x = tf1.placeholder(tf.float32, [None, 5])
    return tf.estimator.export.TensorServingInputReceiver(x, x)


def logging_hooks():
    return [tf1.train.LoggingTensorHook([name], 1) for name in arguments.log.split()]


def main():
    config = tf1.estimator.tpu.RunConfig(
        cluster=tf.distribute.cluster_resolver.TPUClusterResolver("no-such-tpu", "a-zone"),
        model_dir=arguments.model_dir,
        tpu_config=tf1.estimator.tpu.TPUConfig(
            iterations_per_loop=3,
            per_host_input_for_training=tf1.estimator.tpu.InputPipelineConfig.PER_HOST_V2,
        ),
    )
    estimator = tf1.estimator.tpu.TPUEstimator(
        model_fn,
        config=config,
        use_tpu=bool(arguments.use_tpu),
        train_batch_size=arguments.batch_size,
        eval_batch_size=arguments.batch_size,
        predict_batch_size=arguments.batch_size,
        export_to_tpu=False,
    )
    if arguments.mode == "train":
        estimator.train(input_fn, max_steps=arguments.steps)
    if arguments.mode == "all":
        for step in range(2, arguments.steps + 1, 2):
            estimator.train(input_fn, max_steps=step)
            print("error", estimator.evaluate(input_fn, steps=2)["error"])
        print("predictions", len(list(estimator.predict(predict_input_fn))))
        estimator.export_saved_model(f"{arguments.model_dir}/export", serving_input_fn)
    if arguments.mode == "fail":
        estimator.train(input_fn, max_steps=1)
        estimator.evaluate(input_fn, steps=1)
        raise KeyError("mine")
    if arguments.mode == "evaluate_all":
        estimator.evaluate(input_fn)
    if arguments.mode == "train_and_evaluate":
        tf.estimator.train_and_evaluate(
            estimator,
            tf.estimator.TrainSpec(input_fn, max_steps=arguments.steps, hooks=logging_hooks()),
            tf.estimator.EvalSpec(input_fn, steps=2, hooks=logging_hooks()),
        )
    if arguments.mode == "wait":
        estimator.train(input_fn, max_steps=arguments.steps)
        while not tf.io.gfile.glob(f"{arguments.model_dir}/model.ckpt-*"):
            time.sleep(30)
    if arguments.mode == "continuous_eval":
        for checkpoint in tf.train.checkpoints_iterator(arguments.model_dir):
            metrics = estimator.evaluate(input_fn, steps=2, checkpoint_path=checkpoint)
            if metrics["global_step"] >= arguments.steps:
                break


if __name__ == "__main__":
    main()
