"""A train_step of the model, and losses of some variables only."""

import dataclasses
import types

import numpy as np
import pytest
import tensorflow as tf

from common.errors import UsageError
from engine.cli import hparams
from engine.train import own_step, train_step
from models.layers.embedding_table import EmbeddingTable
from models.model import Loss, ModelError
from models.vision import mlp

BATCH = 7


def network(features, params, training):
    """Two scalars, a and b, that start at 1 and 2."""
    a, b = (
        tf.compat.v1.get_variable(name, [], initializer=tf.constant_initializer(value))
        for name, value in (("a", 1.0), ("b", 2.0))
    )
    ones = tf.ones_like(features["x"])
    return {"a": a * ones, "b": b * ones}


def losses(features, labels, outputs, params):
    return {"product": Loss(outputs["a"] * outputs["b"])}


def build(
    train_step_of_model=None, losses=losses, overrides=(), accumulate_steps=1, tables=(), **features
):
    """Returns the `TrainStep` of a model with the variables a and b; SGD with a rate of 0.1."""
    model = dataclasses.replace(
        mlp.MODEL,
        inference=network,
        losses=losses,
        eval_outputs=lambda features, labels, outputs, params: outputs,
        train_step=train_step_of_model,
        embedding_tables=lambda _: tables,
    )
    overrides = ["optimizer=sgd,learning_rate=0.1", *overrides]
    params = hparams.resolve(model, overrides, {"num_classes": 3})
    params["tpu_embedding_rows"] = 1
    settings = types.SimpleNamespace(steps=9, batch_size=BATCH, accumulate_steps=accumulate_steps)
    features, labels = {"x": tf.zeros([BATCH]), **features}, tf.zeros([BATCH], tf.int32)
    return train_step.train_step(model, features, labels, params, settings)


def run(session, step, count=1):
    """Runs a step; returns all variables."""
    session.run(tf.compat.v1.global_variables_initializer())
    for _ in range(count):
        session.run(step.op)
    variables = tf.compat.v1.global_variables()
    return session.run({variable.op.name: variable for variable in variables})


def alternating(features, labels, params, tools):
    """Decreases a by 0.1 * b twice, then b by 0.2 * a."""
    first = tools.optimizer("first", optimizer="momentum", momentum=0.0)
    second = tools.optimizer("second", 2 * tools.learning_rate)
    for _ in range(2):
        outputs = tools.infer(features)
        tools.update(first, {"first": Loss(outputs["a"] * outputs["b"], variables="a")})
    outputs = tools.infer(features)
    tools.update(second, {"second": Loss(outputs["a"] * outputs["b"], variables="b")})
    return tools.finish(outputs)


def test_updates_run_in_their_order(session):
    step = build(alternating, overrides=["ema_decay=0.9"])
    found = run(session, step)
    assert found["a"] == pytest.approx(1 - 2 * 0.1 * 2)
    assert found["b"] == pytest.approx(2 - 0.2 * 0.6)  # of the updated a
    assert found["global_step"] == 1
    assert "a/Momentum" in found
    assert "a/Momentum_1" not in found  # both updates are of one optimizer
    assert "b/ExponentialMovingAverage" in found
    assert sorted(v.op.name for v in step.model_variables) == ["a", "b", "global_step"]
    assert step.loss_names == ("product",)
    assert step.without_gradient == ()


def test_the_loss_is_the_sum_over_the_optimizers(session):
    step = build(alternating)
    session.run(tf.compat.v1.global_variables_initializer())
    first, second, loss = session.run([*step.loss_means.values(), step.loss])
    assert [*step.loss_means] == ["first", "second"]
    assert (first, second) == pytest.approx((0.8 * 2, 0.6 * 2))
    assert loss == pytest.approx(first + second)


def test_moving_averages_are_updated_by_each_network(session):
    def counting(features, params, training):
        calls = tf.compat.v1.get_variable("calls", initializer=0.0, trainable=False)
        tf.compat.v1.add_to_collection(
            tf.compat.v1.GraphKeys.UPDATE_OPS, calls.assign(2 * calls + 1)
        )
        return network(features, params, training)

    def two_updates(features, labels, params, tools):
        optimizer = tools.optimizer("sgd")
        for _ in range(2):
            outputs = tools.infer(features, counting)
            tools.update(optimizer, losses(features, labels, outputs, params))
        return tools.finish(tools.infer(features, counting))

    assert run(session, build(two_updates))["calls"] == 7


def one_update(change):
    """Returns a train_step that is right but for `change(tools, outputs)`."""

    def step(features, labels, params, tools):
        outputs = tools.infer(features)
        tools.update(tools.optimizer("sgd"), losses(features, labels, outputs, params))
        return change(tools, outputs)

    return step


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda *_: None, r"returned None. Return tools\.finish"),
        (lambda *given: given[3].finish(given[3].infer(given[0])), "no tools.update before"),
        (one_update(lambda tools, _: tools.optimizer("sgd")), "there are two optimizers 'sgd'"),
        (
            one_update(lambda tools, _: tools.optimizer("x", rate=1)),
            "the optimizer 'x' has no 'rate'",
        ),
        (one_update(lambda tools, outputs: tools.update("sgd", {})), "tools.update.* got 'sgd'"),
        (one_update(lambda tools, _: tools.infer(len, {})), r"tools\.infer.* got features <built"),
        (
            one_update(lambda tools, _: tools.update(tools.optimizer("x"), None)),
            "the update by 'x': returned None, not a dict of a Loss for each name",
        ),
    ],
)
def test_a_wrong_train_step_is_an_error(step, message):
    with pytest.raises(ModelError, match=f"train_step: {message}"):
        build(step)


@pytest.mark.parametrize(
    ("override", "accumulate_steps", "name"),
    [
        ("lazy_embeddings=true", 1, "lazy_embeddings=True"),
        ("learning_rate_factors=[a:2]", 1, "learning_rate_factors="),
        ("layer_decay=0.5", 1, "layer_decay=0.5"),
        ("weight_decay=0.5", 7, "--accumulate_steps=7"),
    ],
)
def test_what_only_the_step_of_the_engine_does_is_an_error(override, accumulate_steps, name):
    layers = {"layer_variables": lambda _: ["a"]}
    own = dataclasses.replace(mlp.MODEL, train_step=alternating, **layers)
    params = hparams.resolve(own, ["optimizer=sgd", override], {"num_classes": 3})
    with pytest.raises(UsageError, match=f"^{name}.* not supported .* which has a train_step"):
        own_step.check(own, params, accumulate_steps, use_tpu=False)
    own_step.check(mlp.MODEL, params, accumulate_steps, use_tpu=False)


# ---- Loss.variables ----


def terms(**variables):
    """Returns a `Model.losses`: each term is a * b, and updates these variables."""

    def build_terms(features, labels, outputs, params):
        product = outputs["a"] * outputs["b"]
        return {name: Loss(product, variables=pattern) for name, pattern in variables.items()}

    return build_terms


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("accumulate_steps", [1, 7])
@pytest.mark.parametrize(
    ("variables", "gradients", "without"),
    [
        ({"first": "a"}, {"a": 2, "b": 0}, ("b",)),
        ({"first": "a", "second": "b"}, {"a": 2, "b": 1}, ()),
        ({"first": "a", "second": ".*"}, {"a": 4, "b": 1}, ()),
        ({"first": "a", "second": "a"}, {"a": 4, "b": 0}, ("b",)),
    ],
)
def test_a_term_updates_its_variables(session, variables, gradients, without, accumulate_steps):
    step = build(losses=terms(**variables), accumulate_steps=accumulate_steps)
    found = run(session, step)
    assert found["a"] == pytest.approx(1 - 0.1 * gradients["a"])
    assert found["b"] == pytest.approx(2 - 0.1 * gradients["b"])
    assert step.without_gradient == without


def test_weight_decay_counts_once_for_each_trained_variable(session):
    def of_kernels(features, params, training):
        kernels = [
            tf.compat.v1.get_variable(f"{name}/kernel", initializer=tf.ones([2, 2]))
            for name in ("a", "b", "c")
        ]
        return {"sum": tf.ones([BATCH]) * tf.add_n([tf.reduce_sum(kernel) for kernel in kernels])}

    def sums(features, labels, outputs, params):
        return {
            "first": Loss(outputs["sum"], variables="a/.*"),
            "second": Loss(outputs["sum"], variables="[ab]/.*"),
        }

    model = dataclasses.replace(
        mlp.MODEL, inference=of_kernels, losses=sums, eval_outputs=lambda *_: {}
    )
    overrides = ["optimizer=sgd,learning_rate=0.1,weight_decay=0.5"]
    params = hparams.resolve(model, overrides, {"num_classes": 3})
    settings = types.SimpleNamespace(steps=9, batch_size=BATCH, accumulate_steps=1)
    step = train_step.train_step(model, {"x": tf.zeros([BATCH])}, (), params, settings)
    found = run(session, step)
    expected = {"a": 1 - 0.1 * (2 + 0.5), "b": 1 - 0.1 * (1 + 0.5), "c": 1.0}
    for name, value in expected.items():
        np.testing.assert_allclose(found[f"{name}/kernel"], np.full([2, 2], value), rtol=1e-6)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [("c", "matches no variable. The last variable of the model is"), ("(", "'first' has variab")],
)
def test_variables_that_match_none_are_an_error(pattern, message):
    with pytest.raises(ModelError, match=message):
        build(losses=terms(first=pattern))


def test_a_term_of_frozen_variables_only_is_accepted(session):
    step = build(losses=terms(first="a", second="b"), overrides=["trainable=b"])
    assert run(session, step)["a"] == 1.0


def test_tpu_embeddings_need_losses_of_all_variables():
    table = EmbeddingTable("table", 5, 2, {"ids": lambda features: features["ids"]})
    features = {"tpu_embedding/ids": tf.zeros([BATCH, 2])}
    with pytest.raises(UsageError, match=r"updates a only .* TPU embeddings do not support"):
        build(losses=terms(first="a"), tables=[table], **features)
