"""A TPUEstimator program for one or several hosts: MODEL_DIR STEPS [HOST_TO_STOP STEP ACTION]."""

import os
import signal
import sys

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1
FEATURES = np.random.RandomState(0).randn(104, 7).astype(np.float32)
LABELS = np.random.RandomState(1).randint(0, 3, 104).astype(np.int32)
BATCH_SIZE, LOOP = 32, 4


class ActHook(tf.estimator.SessionRunHook):
    """Stops or kills at a step."""

    def __init__(self, step, action):
        self._step, self._action = step, action

    def after_run(self, run_context, run_values):
        """Acts if the step is reached."""
        step = run_context.session.run(tf1.train.get_global_step())
        if step >= self._step and self._action == "stop":
            run_context.request_stop()
        elif step >= self._step:
            os.kill(os.getpid(), signal.SIGKILL)


def main(model_dir, steps, host_to_stop=-1, stop_step=0, action=""):
    """Trains; host_call appends the losses of all cores to losses.txt."""
    hooks = []

    def input_fn(params):
        context = params["context"]
        host, num_hosts, num_cores = context.current_host, context.num_hosts, context.num_replicas
        print(f"input of host {host} of {num_hosts}", flush=True)
        if host == int(host_to_stop):
            hooks.append(ActHook(int(stop_step), action))
        dataset = tf.data.Dataset.from_tensor_slices((FEATURES, LABELS)).repeat()
        dataset = dataset.batch(params["batch_size"], drop_remainder=True)
        cores = num_cores // num_hosts  # batches of a step for this host
        dataset = dataset.enumerate().filter(lambda i, _: tf.equal(i % num_cores // cores, host))
        return dataset.map(lambda i, example: example)

    def model_fn(features, labels, mode, params):
        """A dense network with batch norm, whose statistics differ per core."""
        # TensorFlow derives other seeds from the number of operations, so also of input pipelines.
        initializer = tf1.glorot_uniform_initializer(seed=1)
        hidden = tf1.layers.dense(
            features, params["width"], tf.nn.relu, kernel_initializer=initializer
        )
        hidden = tf1.layers.batch_normalization(hidden, training=True)
        hidden = tf1.nn.dropout(hidden, rate=0.2, seed=2)
        logits = tf1.layers.dense(hidden, 3, kernel_initializer=initializer)
        loss = tf1.losses.sparse_softmax_cross_entropy(labels, logits)
        optimizer = tf1.tpu.CrossShardOptimizer(tf1.train.MomentumOptimizer(0.1, 0.9))
        with tf.control_dependencies(tf1.get_collection(tf1.GraphKeys.UPDATE_OPS)):
            train_op = optimizer.minimize(loss, tf1.train.get_global_step())

        def append(step, losses):
            with open(os.path.join(model_dir, "losses.txt"), "a") as file:
                print(step[0], *losses, file=file)
            return np.int64(0)

        def host_call(step, losses):
            return tf1.py_func(append, [step, losses], tf.int64)

        step = tf.reshape(tf1.train.get_global_step(), [1])
        return tf1.estimator.tpu.TPUEstimatorSpec(
            mode,
            loss=loss,
            train_op=train_op,
            training_hooks=hooks,
            host_call=(host_call, [step, tf.reshape(loss, [1])]),
        )

    tpu_config = tf1.estimator.tpu.TPUConfig(
        iterations_per_loop=LOOP,
        per_host_input_for_training=tf1.estimator.tpu.InputPipelineConfig.PER_HOST_V2,
    )
    config = tf1.estimator.tpu.RunConfig(
        model_dir=model_dir, tpu_config=tpu_config, tf_random_seed=3, save_checkpoints_steps=LOOP
    )
    estimator = tf1.estimator.tpu.TPUEstimator(
        model_fn, config=config, params={"width": 16}, train_batch_size=BATCH_SIZE, use_tpu=True
    )
    estimator.train(input_fn, max_steps=int(steps))


if __name__ == "__main__":
    main(*sys.argv[1:])
