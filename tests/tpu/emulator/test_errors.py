"""Errors of hooks, host_call and input_fn reach the caller of `TPUEstimator.train`."""

import pytest
import tensorflow as tf

from tpu import emulator

tf1 = tf.compat.v1


class MineError(Exception):
    """An error of a program."""


class Hook(tf1.train.SessionRunHook):
    """A hook that raises an error in one of its methods, or reads a tensor."""

    def __init__(self, method, error, tensor=None):
        self.tensor = tensor
        if method:
            setattr(self, method, self._fail)
        self._error = error

    def _fail(self, *_):
        raise self._error

    def before_run(self, run_context):
        del run_context
        return None if self.tensor is None else tf1.train.SessionRunArgs(self.tensor)


def train(tmp_path, method="", error=None, reads_loss=False):
    def model_fn(features, labels, mode, params):
        del params
        loss = tf.reduce_mean((tf1.layers.dense(features, 1) - labels) ** 2)
        optimizer = tf1.tpu.CrossShardOptimizer(tf1.train.GradientDescentOptimizer(0.1))
        return tf1.estimator.tpu.TPUEstimatorSpec(
            mode,
            loss=loss,
            train_op=optimizer.minimize(loss, tf1.train.get_global_step()),
            training_hooks=[Hook(method, error, loss if reads_loss else None)],
        )

    def input_fn(params):
        dataset = tf.data.Dataset.from_tensors((tf.ones([3]), tf.ones([1]))).repeat()
        return dataset.batch(params["batch_size"], drop_remainder=True)

    with emulator.emulate("1x1"):
        config = tf1.estimator.tpu.RunConfig(
            model_dir=str(tmp_path),
            cluster=tf.distribute.cluster_resolver.TPUClusterResolver("any"),
            tpu_config=tf1.estimator.tpu.TPUConfig(iterations_per_loop=2),
        )
        estimator = tf1.estimator.tpu.TPUEstimator(
            model_fn, config=config, use_tpu=True, train_batch_size=5
        )
        estimator.train(input_fn, max_steps=2)


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("method", ["after_create_session", "before_run", "after_run", "end"])
def test_error_of_a_hook(tmp_path, method):
    with pytest.raises(MineError, match="the cause"):
        train(tmp_path, method, MineError("the cause"))


@pytest.mark.parametrize("error", [SystemExit(7), KeyboardInterrupt()])
def test_end_of_the_program_in_a_hook(tmp_path, error):
    with pytest.raises(type(error)):
        train(tmp_path, "after_run", error)


def test_hook_that_reads_a_tensor_of_the_loop(tmp_path):
    with pytest.raises(ValueError, match="has been marked as not fetchable"):
        train(tmp_path, reads_loss=True)
