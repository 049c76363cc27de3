"""Training step: gradient accumulation gives the update of the whole batch."""

import dataclasses
import types

import numpy as np
import pytest
import tensorflow as tf

from common.errors import UsageError
from engine import model_fns
from engine.cli import hparams
from engine.train import train_step
from models.model import Loss, ModelError
from models.vision import convnet, mlp
from tests import numerics
from tests.marks import slow

BATCH_SIZE, PIXELS, STEPS = 12, 7 * 5, 3
# Each step: the scaled pixels, two layers with bias and six operations of the loss, forward and
# backward, and ten of weight decay, clipping and momentum. The gradient of a kernel is summed over
# images and pixels.
TRAINING = {"terms": BATCH_SIZE * PIXELS, "depth": STEPS * (2 * (1 + 2 * 2 + 6) + 10)}
PLAIN = "layers=[conv:4:3,relu,flatten]"
BATCH_NORM = "layers=[conv:4:3,batch_norm,relu,flatten]"


def run_steps(model, overrides, accumulate_steps, count=STEPS):
    """Returns losses, last logits and variables after some steps on fixed batches."""
    overrides = [*overrides, "learning_rate=0.1"]
    params = hparams.resolve(model, overrides, {"num_classes": 3})
    random = np.random.default_rng(0)
    images = random.uniform(0, 255, [count, BATCH_SIZE, 7, 5, 1]).astype(np.float32)
    labels = random.integers(0, 3, [count, BATCH_SIZE], dtype=np.int32)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.set_random_seed(1)
        step = tf.compat.v1.train.get_or_create_global_step()
        features = {"image": tf.gather(images, step)}
        settings = types.SimpleNamespace(
            steps=count, batch_size=BATCH_SIZE, accumulate_steps=accumulate_steps
        )
        train = train_step.train_step(model, features, tf.gather(labels, step), params, settings)
        session.run(tf.compat.v1.global_variables_initializer())
        fetches = (train.loss, train.eval_outputs, train.op)
        losses, outputs, _ = zip(*(session.run(fetches) for _ in range(count)))
        return losses, outputs[-1]["logits"], session.run(variables_of(train))


def variables_of(train):
    trained = train.model_variables
    return {variable.op.name: variable for variable in trained}


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("accumulate_steps", [4, slow(2), slow(12)])
@pytest.mark.parametrize(
    ("model", "overrides"),
    [
        (mlp.MODEL, ["dropout=0,hidden_units=5,optimizer=momentum"]),
        (convnet.MODEL, [PLAIN, "optimizer=momentum,weight_decay=0.01,clip_norm=0.5"]),
    ],
)
def test_gradient_accumulation_matches_the_whole_batch(model, overrides, accumulate_steps):
    whole = run_steps(model, overrides, 1)
    accumulated = run_steps(model, overrides, accumulate_steps)
    for found, expected in zip(accumulated[:2], whole[:2]):
        numerics.assert_close(found, expected, **TRAINING)
    numerics.assert_all_close(accumulated[2], whole[2], **TRAINING)
    fewer = run_steps(model, overrides, 1, count=len(whole[0]) - 1)[2]
    numerics.assert_far(fewer["logits/kernel"], whole[2]["logits/kernel"], **TRAINING)


@pytest.mark.parametrize("accumulate_steps", [1, 3])
def test_a_variable_that_the_loss_does_not_use_keeps_its_value(accumulate_steps):
    def inference(features, params, training):
        tf.compat.v1.get_variable("unused", [2], initializer=tf.ones_initializer())
        return mlp.MODEL.inference(features, params, training)

    model = dataclasses.replace(mlp.MODEL, inference=inference)
    overrides = ["dropout=0,hidden_units=5,optimizer=adamw,weight_decay=0.5"]
    variables = run_steps(model, overrides, accumulate_steps)[2]
    np.testing.assert_array_equal(variables["unused"], [1, 1])


@pytest.mark.parametrize("accumulate_steps", [1, 3])
def test_inference_reads_the_labels_in_train_inputs(accumulate_steps):
    given = set()

    def inference(features, params, training):
        given.add((*features, int(features["label"].shape[0])))
        return mlp.MODEL.inference(features, params, training)

    model = dataclasses.replace(mlp.MODEL, inference=inference, train_inputs=("label",))
    run_steps(model, ["hidden_units=5"], accumulate_steps, count=1)
    assert given == {("image", "label", BATCH_SIZE // accumulate_steps)}


def test_micro_batches_update_batch_norm_one_after_another():
    overrides = [BATCH_NORM, "batch_norm_momentum=0.5,optimizer=momentum"]
    variables = run_steps(convnet.MODEL, overrides, 3, count=1)[2]
    whole = run_steps(convnet.MODEL, overrides, 1, count=1)[2]
    # With momentum 0.5, three updates go 1 - 0.5**3 of the way to the batch statistics, one update
    # goes 0.5 of the way.
    ratio = variables["layer_1/moving_mean"] / whole["layer_1/moving_mean"]
    np.testing.assert_allclose(ratio, 0.875 / 0.5, rtol=0.1)


def test_model_variables_exclude_optimizer_slots():
    variables = run_steps(mlp.MODEL, ["ema_decay=0.9,hidden_units=5"], 1)[2]
    assert sorted(variables) == [
        "dense_0/bias",
        "dense_0/kernel",
        "global_step",
        "logits/bias",
        "logits/kernel",
    ]


def build(inference=mlp.MODEL.inference, losses=mlp.MODEL.losses, overrides=(), batch=5):
    """Builds a training step of a changed model on images; `batch` may be None."""
    model = dataclasses.replace(mlp.MODEL, inference=inference, losses=losses)
    params = hparams.resolve(model, ["hidden_units=3", *overrides], {"num_classes": 3})
    settings = types.SimpleNamespace(steps=7, batch_size=5, accumulate_steps=1)
    images = tf.compat.v1.placeholder(tf.float32, [batch, 7, 5, 1])
    labels = tf.compat.v1.placeholder(tf.int32, [5])
    return train_step.train_step(model, {"image": images}, labels, params, settings)


def loss_of(change):
    """Returns a `Model.losses` whose loss is changed."""

    def losses(features, labels, outputs, params):
        del features, params
        values = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, outputs["logits"])
        return change(values)

    return losses


def stop(values):
    return {"loss": Loss(tf.stop_gradient(values))}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (stop, r"no variable has a gradient, not even logits/bias\. The loss does not depend"),
        (lambda v: {"loss": Loss(tf.boolean_mask(v, v > 0))}, "values of an unknown batch size"),
        (lambda v: {"loss": Loss(v, tf.where(v > 0)[:, 0])}, "weights of an unknown batch size"),
        (lambda v: {"loss": Loss(v, v > 0)}, "weights of bool, not float32. Use tf.cast"),
        (lambda v: {"loss": Loss(tf.cast(v, tf.int32))}, "values of int32, not float32"),
        (lambda v: {"loss": Loss(v, tf.cast(v, tf.float64))}, "float64, but values of float32"),
        (lambda v: {"loss": Loss(tf.reduce_mean(v))}, r"values of shape \(\), not \[batch\]"),
        (lambda v: {"loss": Loss(1.0)}, "values of type float, not a tensor"),
        (lambda v: {"loss": v}, "'loss' is a .*Tensor. Return a models.model.Loss"),
        (lambda v: {}, "returned {}, not a dict of a Loss"),
        (lambda v: v, "not a dict of a Loss for each name"),
    ],
)
def test_an_invalid_loss_is_an_error(change, message):
    with pytest.raises(ModelError, match=f"losses: .*{message}"):
        build(losses=loss_of(change))


@pytest.mark.parametrize(
    "override",
    ["clip_norm=1", "learning_rate_factors=[logits/.*:10]", "optimizer=sgd", "optimizer=lamb"],
)
def test_no_gradient_is_an_error_of_every_optimizer(override):
    with pytest.raises(ModelError, match="no variable has a gradient"):
        build(losses=loss_of(stop), overrides=[override])


def test_the_pattern_of_frozen_variables_is_named():
    def inference(features, params, training):
        tf.compat.v1.get_variable("unused", [2])
        return mlp.MODEL.inference(features, params, training)

    with pytest.raises(ModelError, match="no variable of trainable=unused has a gradient"):
        build(inference, overrides=["trainable=unused"])


def test_a_group_of_variables_without_gradients_is_left_out():
    def inference(features, params, training):
        tf.compat.v1.get_variable("unused", [2])
        return mlp.MODEL.inference(features, params, training)

    build(inference, overrides=["learning_rate_factors=[logits/.*:10]"])
    with tf.Graph().as_default(), pytest.raises(UsageError, match="'unused' matches no trained"):
        build(inference, overrides=["learning_rate_factors=[unused:10]"])


def test_variables_without_gradients_are_reported_once(capsys):
    def inference(features, params, training):
        for name in "abcd":
            tf.compat.v1.get_variable(f"unused/{name}", [2])
        return mlp.MODEL.inference(features, params, training)

    step = build(inference)
    assert step.without_gradient == ("unused/a", "unused/b", "unused/c", "unused/d")
    settings = types.SimpleNamespace(
        model=mlp.MODEL,
        checkpoint=None,
        evaluation=types.SimpleNamespace(best_metric=""),
        task=types.SimpleNamespace(is_chief=True),
    )
    for _ in range(2):
        model_fns.check_training(settings, {}, tf.zeros([5], tf.int32), {}, step)
    (line,) = capsys.readouterr().out.splitlines()
    assert "4 variables without a gradient" in line
    assert "unused/a, unused/b, unused/c, ..." in line


def test_frozen_variables_are_not_reported():
    assert build(overrides=["trainable=logits/.*"]).without_gradient == ()


def test_a_model_without_variables_is_an_error():
    def inference(features, params, training):
        return {"logits": features["image"][:, :3, 0, 0]}

    with pytest.raises(ModelError, match="the model has no trainable variable"):
        build(inference)


def test_an_unknown_batch_size_is_an_error():
    with pytest.raises(UsageError, match="feature 'image' of the training batch: the batch size"):
        build(batch=None)
