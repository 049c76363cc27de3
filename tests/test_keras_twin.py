"""Keras' twins train what ours train, or say that they cannot."""

import pytest
import tensorflow as tf

from benchmarks.peers import keras_twin
from engine.cli import hparams
from models import registry


def resolve(model, *overrides):
    return hparams.resolve(registry.find(model), overrides, {"num_classes": 3})


@pytest.mark.parametrize(
    ("overrides", "kind", "expected"),
    [
        (
            "optimizer=momentum,momentum=0.8,nesterov=true",
            tf.compat.v1.train.MomentumOptimizer,
            {"_momentum": 0.8, "_use_nesterov": True},
        ),
        (
            "beta1=0.8,beta2=0.99,epsilon=0.1",
            tf.compat.v1.train.AdamOptimizer,
            {"_beta1": 0.8, "_beta2": 0.99, "_epsilon": 0.1},
        ),
        ("optimizer=adamw", tf.compat.v1.train.AdamOptimizer, {"_beta1": 0.9}),
    ],
)
def test_the_optimizer_of_an_estimator_is_the_recipes(overrides, kind, expected):
    optimizer = keras_twin.v1_optimizer(resolve("mlp", overrides, "learning_rate=0.1"))
    assert isinstance(optimizer, kind)
    expected = {**expected, "_lr" if "_beta1" in expected else "_learning_rate": 0.1}
    assert {name: getattr(optimizer, name) for name in expected} == expected


@pytest.mark.parametrize(
    "override",
    [
        "optimizer=rmsprop",
        "optimizer=lars",
        "optimizer=lamb",
        "weight_decay=0.1",
        "clip_norm=1.0",
        "learning_rate_factors=logits/.*:10",
        "trainable=logits/.*",
    ],
)
def test_an_optimizer_that_twins_lack_is_refused(override, eager):
    params = resolve("mlp", override)
    for make in (
        lambda: keras_twin.optimizer(params, 0.1),
        lambda: keras_twin.v1_optimizer(params),
    ):
        with pytest.raises(ValueError, match=f"no twin has {override[:9]}"):
            make()


def test_an_estimator_has_no_averages_nor_decay():
    for override in ("optimizer=momentum,ema_decay=0.9", "optimizer=adamw,weight_decay=0.1"):
        with pytest.raises(ValueError, match=r"of tf\.compat\.v1 has no"):
            keras_twin.v1_optimizer(resolve("mlp", override))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("depth=50,stem=cifar", "depth=50 with stem=cifar"),
        ("depth=18", "depth=18 with stem=imagenet"),
        ("depth=18,stem=cifar,dropout=0.1", "dropout=0.1"),
        ("depth=18,stem=cifar,stochastic_depth=0.1", "stochastic_depth=0.1"),
        ("depth=18,stem=cifar,label_smoothing=0.1", "label_smoothing=0.1"),
        ("depth=18,stem=cifar,class_weights=balanced", "class_weights=balanced"),
    ],
)
def test_a_network_that_twins_lack_is_refused(overrides, message, eager):
    with pytest.raises(ValueError, match=message):
        keras_twin.compiled(resolve("resnet", overrides), (32, 32, 3))
