"""Loss and metrics of an exact evaluation."""

import dataclasses
import types

import numpy as np
import pytest
import tensorflow as tf

from common.errors import UsageError
from engine.evaluation import metrics
from models.model import Loss, ModelError
from models.vision import mlp


def check_best_metric(name):
    step = types.SimpleNamespace(
        eval_outputs={"logits": tf.ones([13, 3])}, loss_names=("first", "second")
    )
    host_metrics = [types.SimpleNamespace(names=["bleu"])]
    metrics.check(name, mlp.MODEL, {}, tf.range(13), step, {}, host_metrics)


def test_the_mean_loss_excludes_padding(session):
    losses = tf.constant([1.0, 2.0, 6.0, 100.0])
    weights = tf.constant([1.0, 1.0, 1.0, 0.0])
    terms = {"loss": Loss(losses)}
    assert session.run(metrics.mean_loss(terms, weights)) == 3.0
    assert session.run(metrics.mean_loss(terms, tf.zeros([4]))) == 0.0


def test_terms_of_a_loss_are_normalized_by_their_own_weights_and_scaled(session):
    terms = {
        "tokens": Loss(tf.constant([1.0, 4.0, 9.0]), tf.constant([3.0, 1.0, 5.0]), scale=2.0),
        "sentence": Loss(tf.constant([10.0, 20.0, 90.0])),
    }
    weights = tf.constant([1.0, 1.0, 0.0])
    expected = 2 * (3 * 1 + 1 * 4) / 4 + 15
    assert session.run(metrics.mean_loss(terms, weights)) == expected
    found = metrics.streaming(
        mlp.MODEL, tf.range(3), {"logits": tf.ones([3, 3])}, terms, weights, {}
    )
    session.run(tf.compat.v1.local_variables_initializer())
    session.run([update for _, update in found.values()])
    values = session.run({name: value for name, (value, _) in found.items()})
    assert values["average_loss"] == expected
    assert (values["tokens_loss"], values["sentence_loss"]) == (7 / 4, 15)


def test_metrics_over_batches_count_every_example_once(session):
    labels = tf.compat.v1.placeholder(tf.int32, [4])
    losses = tf.compat.v1.placeholder(tf.float32, [4])
    weights = tf.compat.v1.placeholder(tf.float32, [4])
    outputs = {"logits": tf.one_hot(labels, 3)}
    terms = {"loss": Loss(losses)}
    results = metrics.streaming(mlp.MODEL, labels, outputs, terms, weights, {})
    session.run(tf.compat.v1.local_variables_initializer())
    for losses_now, weights_now in (([1, 2, 3, 4], [1, 1, 1, 1]), ([5, 9, 9, 9], [1, 0, 0, 0])):
        feed = {labels: [0, 1, 2, 0], losses: losses_now, weights: weights_now}
        session.run([update for _, update in results.values()], feed)
    values = session.run({name: value for name, (value, _) in results.items()})
    assert values["examples"] == 5
    assert values["examples"].dtype == np.int64
    assert values["average_loss"] == 3.0
    assert values["accuracy"] == 1.0


@pytest.mark.parametrize("name", ["", "accuracy", "average_loss", "second_loss", "bleu"])
def test_known_metrics_are_accepted(name):
    check_best_metric(name)
    assert not tf.compat.v1.local_variables()  # the training graph is unchanged


def test_unknown_metrics_are_rejected():
    with pytest.raises(UsageError, match=r"=acuracy is unknown\. Did you mean 'accuracy'"):
        check_best_metric("acuracy")


def check_names(names, loss_names=("first", "second")):
    found = {name: (tf.ones([]), tf.no_op()) for name in names}
    model = dataclasses.replace(mlp.MODEL, metrics=lambda *_: found)
    step = types.SimpleNamespace(eval_outputs={}, loss_names=loss_names)
    metrics.check("", model, {"image": tf.ones([13, 7])}, (), step, {}, [])


@pytest.mark.parametrize(
    "name", ["loss", "average_loss", "examples", "global_step", "checkpoint", "second_loss"]
)
def test_a_metric_with_the_name_of_another_value_is_an_error(name):
    with pytest.raises(ModelError, match=rf"metrics: '{name}' is the name of .*Rename it"):
        check_names([name])


def test_a_term_that_is_named_average_is_an_error():
    with pytest.raises(ModelError, match="losses: the mean of the term 'average' would be"):
        check_names([], ["average", "other"])
    check_names([], ["average"])  # a single term is not reported


def test_the_mean_of_a_single_term_leaves_its_name_free():
    check_names(["hinge_loss"], ["hinge"])


def test_metrics_that_are_no_dict_are_an_error():
    model = dataclasses.replace(mlp.MODEL, metrics=lambda *_: None)
    step = types.SimpleNamespace(eval_outputs={}, loss_names=())
    with pytest.raises(ModelError, match="metrics: returned None, not a dict of"):
        metrics.check("", model, {"image": tf.ones([13, 7])}, (), step, {}, [])


def test_an_evaluation_refuses_the_name_of_another_value(session):
    found = {"examples": (tf.ones([]), tf.no_op())}
    model = dataclasses.replace(mlp.MODEL, metrics=lambda *_: found)
    with pytest.raises(ModelError, match="metrics: 'examples' is the name of"):
        metrics.streaming(model, (), {}, {"loss": Loss(tf.ones([3]))}, tf.ones([3]), {})


def test_a_model_without_labels_and_outputs_may_name_its_loss(session):
    model = dataclasses.replace(mlp.MODEL, metrics=lambda *_: {})
    step = types.SimpleNamespace(eval_outputs={}, loss_names=("loss",))
    features = {"image": tf.ones([13, 7])}
    metrics.check("average_loss", model, features, (), step, {}, [])
