"""Hyperparameters: defaults, overrides and refusals."""

import dataclasses

import pytest

from common.errors import UsageError
from engine.cli import hparams
from models.vision import mlp


def resolve(*overrides):
    return hparams.resolve(mlp.MODEL, overrides, {"num_classes": 3})


def test_defaults_of_the_model_and_of_the_training():
    params = resolve()
    assert params["hidden_units"] == "512"
    assert params["optimizer"] == "adam"
    assert params["schedule"] == "constant"


def test_the_number_of_classes_is_the_data_sets():
    assert resolve()["num_classes"] == 3


def test_a_later_key_wins_and_others_stay():
    params = resolve("dropout=0.1,learning_rate=0.5", "dropout=0.3")
    assert (params["dropout"], params["learning_rate"]) == (0.3, 0.5)


def test_values_take_the_type_of_the_default():
    params = resolve("learning_rate=1, warmup_steps=20 ,nesterov=True,hidden_units=3 4,")
    assert params["learning_rate"] == 1.0
    assert isinstance(params["learning_rate"], float)
    assert params["warmup_steps"] == 20
    assert params["nesterov"] is True
    assert params["hidden_units"] == "3 4"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("droput=0.1", "'droput' is unknown. Did you mean 'dropout'"),
        ("dropout", "'dropout' is not of the form key=value"),
        ("dropout=", "dropout= is not a valid float"),
        ("dropout=inf", "dropout=inf is not a valid float"),
        ("warmup_steps=1e3", "warmup_steps=1e3 is not a valid int"),
        ("nesterov=1", "nesterov=1 is not a valid bool"),
        ("num_classes=4", "num_classes=4, but the data set has 3"),
    ],
)
def test_a_wrong_override_is_refused(override, message):
    with pytest.raises(UsageError, match=message):
        resolve(override)


def test_a_model_may_not_take_a_name_of_the_training():
    model = dataclasses.replace(mlp.MODEL, default_params=lambda: {"momentum": 0.5})
    with pytest.raises(UsageError, match=r"defines \['momentum'\], which the training defines too"):
        hparams.resolve(model, [], {"num_classes": 3})
