"""Directions of metrics: declared by models, and given."""

import pytest

from common.errors import UsageError
from engine.checkpoints import metric_direction
from models import registry

DECLARED = {"accuracy": "max", "fid": "min"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", ("", "")),
        ("accuracy", ("accuracy", "max")),
        ("fid", ("fid", "min")),
        ("average_loss", ("average_loss", "min")),
        ("boxes_loss", ("boxes_loss", "min")),
        ("-novelty", ("novelty", "min")),
        ("a:b:max", ("a:b", "max")),
        ("accuracy:min", ("accuracy", "min")),
    ],
)
def test_a_given_direction_has_priority_over_the_declared_one(value, expected):
    assert metric_direction.resolve(value, DECLARED) == expected


@pytest.mark.parametrize("value", ["novelty", "novelty:larger", "novelty:", "f1"])
def test_a_direction_is_not_guessed_from_the_name(value):
    with pytest.raises(
        UsageError,
        match=f"={value}: .* only of accuracy, average_loss, fid. Write .*{value}:max if",
    ):
        metric_direction.resolve(value, DECLARED)


@pytest.mark.parametrize("value", ["-", ":max", "-:min"])
def test_a_metric_without_a_name(value):
    with pytest.raises(UsageError, match=f"--best_metric={value} names no metric"):
        metric_direction.split(value)


def test_a_part_of_a_declared_name_is_told():
    with pytest.raises(UsageError, match=r"=auc is unknown\. Did you mean 'macro_auc'\?"):
        metric_direction.resolve("auc", {"macro_auc": "max"})


def test_a_name_similar_to_a_declared_one():
    with pytest.raises(UsageError, match=r"=acuracy is unknown\. Did you mean 'accuracy'\? If"):
        metric_direction.resolve("acuracy", DECLARED)


def test_a_minus_and_a_direction():
    with pytest.raises(UsageError, match=r"=-fid:max has a minus and :max\. Write fid:min"):
        metric_direction.split("-fid:max")


@pytest.mark.parametrize("name", ["mlp", "bert_tiny_classifier", "transformer_base", "unet"])
def test_the_scalars_of_the_models_have_a_direction(name):
    model = registry.find(name)
    directions = model.metric_directions
    if callable(directions):
        directions = directions(model.default_params())
    assert directions
    assert {*directions.values()} <= {"min", "max"}


def test_a_classifier_declares_the_metrics_of_its_target():
    model = registry.find("bert_tiny_classifier")
    params = {**model.default_params(), "target": "regression"}
    assert model.metric_directions(params).keys() == {
        "mean_absolute_error",
        "root_mean_squared_error",
    }
