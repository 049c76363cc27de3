"""The loss and the metrics of an exact evaluation."""

import numpy as np
import pytest
import tensorflow as tf

from common.errors import UsageError
from engine.evaluation import metrics
from models.vision import mlp


def test_the_mean_loss_leaves_padding_out(session):
    losses = tf.constant([1.0, 2.0, 6.0, 100.0])
    weights = tf.constant([1.0, 1.0, 1.0, 0.0])
    labels = tf.range(4)
    assert session.run(metrics.mean_loss(mlp.MODEL, labels, losses, weights)) == 3.0
    assert session.run(metrics.mean_loss(mlp.MODEL, labels, losses, tf.zeros([4]))) == 0.0


def test_metrics_over_batches_count_every_example_once(session):
    labels = tf.compat.v1.placeholder(tf.int32, [4])
    losses = tf.compat.v1.placeholder(tf.float32, [4])
    weights = tf.compat.v1.placeholder(tf.float32, [4])
    outputs = {"logits": tf.one_hot(labels, 3)}
    results = metrics.metrics(mlp.MODEL, labels, outputs, losses, weights)
    session.run(tf.compat.v1.local_variables_initializer())
    for losses_now, weights_now in (([1, 2, 3, 4], [1, 1, 1, 1]), ([5, 9, 9, 9], [1, 0, 0, 0])):
        feed = {labels: [0, 1, 2, 0], losses: losses_now, weights: weights_now}
        session.run([update for _, update in results.values()], feed)
    values = session.run({name: value for name, (value, _) in results.items()})
    assert values["examples"] == 5
    assert values["examples"].dtype == np.int64
    assert values["average_loss"] == 3.0
    assert values["accuracy"] == 1.0


@pytest.mark.parametrize("name", ["", "accuracy", "average_loss"])
def test_a_metric_of_the_evaluation_is_accepted(name):
    labels, outputs = tf.range(13), {"logits": tf.ones([13, 3])}
    metrics.require_metric(name, mlp.MODEL, labels, outputs)
    assert not tf.compat.v1.local_variables()  # the training graph is left alone


def test_other_metrics_are_refused():
    outputs = {"logits": tf.ones([13, 3])}
    with pytest.raises(UsageError, match=r"=acuracy is unknown\. Did you mean 'accuracy'"):
        metrics.require_metric("acuracy", mlp.MODEL, tf.range(13), outputs)
