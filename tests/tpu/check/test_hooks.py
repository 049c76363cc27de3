"""Hooks that keep tensors of the TPU loop."""

import pytest
import tensorflow as tf

from tpu.check import hooks
from tpu.findings import ERROR, WARNING

tf1 = tf.compat.v1


class KeepHook(tf.estimator.SessionRunHook):
    """A hook of a program."""

    def __init__(self, kept):
        self.kept = self.again = kept


def logging_hook(loss, update):
    del update
    return tf1.train.LoggingTensorHook([loss], every_n_iter=1)


def summary_hook(loss, update):
    del update
    return tf1.train.SummarySaverHook(1, output_dir="/nowhere", summary_op=[loss])


@pytest.mark.parametrize(
    ("make", "level", "text"),
    [
        (logging_hook, ERROR, "LoggingTensorHook reads 'loss:0' inside the TPU loop"),
        (summary_hook, ERROR, "SummarySaverHook reads 'loss:0' inside the TPU loop"),
        (lambda loss, _: tf1.train.NanTensorHook(loss), ERROR, "NanTensorHook reads 'loss:0'"),
        (lambda loss, _: tf1.train.NanTensorHook("loss:0"), ERROR, "NanTensorHook reads 'loss:0'"),
        (lambda loss, _: KeepHook(loss), WARNING, "KeepHook keeps 'loss:0' inside the TPU loop"),
        (lambda _, update: KeepHook({"a": [1, (update,)]}), WARNING, "KeepHook keeps 'update'"),
    ],
)
def test_value_of_the_loop(make, level, text):
    with tf.Graph().as_default() as graph:
        loss = tf.identity(3.0, "loss")
        update = tf.no_op("update")
        for op in (loss.op, update):
            graph.prevent_fetching(op)  # as TensorFlow does in the program of a core
        ((found, message, op),) = hooks.find_faults([make(loss, update)], graph)
    assert found == level
    assert message.startswith(text)
    assert message.endswith(". Pass it to host_call instead")
    assert op.name in message


@pytest.mark.parametrize(
    ("count", "names"), [(2, "'a:0', 'a_1:0'"), (5, "'a:0', 'a_1:0', 'a_2:0' and 2 more")]
)
def test_a_hook_has_one_finding(count, names):
    with tf.Graph().as_default() as graph:
        kept = [tf.identity(3.0, "a") for _ in range(count)]
        for value in kept:
            graph.prevent_fetching(value.op)
        ((_, message, _),) = hooks.find_faults([KeepHook(kept)], graph)
    assert message == (
        f"KeepHook keeps {names} inside the TPU loop, which a session cannot read. Pass them to "
        "host_call instead"
    )


def test_values_of_the_host_are_not_reported():
    with tf.Graph().as_default() as graph:
        step = tf.identity(3, "step")
        kept = [KeepHook(step), logging_hook(step, None), tf1.train.NanTensorHook("no/such:0")]
        assert hooks.find_faults(kept, graph) == []
