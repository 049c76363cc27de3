"""Hyperparameters: defaults, overrides and refusals."""

import copy
import dataclasses
import json

import pytest

from common.errors import UsageError
from engine.cli import hparams
from models import registry
from models.layers.embedding_table import EmbeddingTable
from models.model import ModelError
from models.vision import mlp


def resolve(*overrides):
    return hparams.resolve(mlp.MODEL, overrides, {"num_classes": 3})


def test_defaults_of_the_model_and_of_the_training():
    params = resolve()
    assert params["hidden_units"] == (512,)
    assert params["optimizer"] == "adam"
    assert params["schedule"] == "constant"


def test_the_number_of_classes_is_the_data_sets():
    assert resolve()["num_classes"] == 3


def test_a_later_key_wins_and_others_stay():
    params = resolve("dropout=0.1,learning_rate=0.5", "dropout=0.3")
    assert (params["dropout"], params["learning_rate"]) == (0.3, 0.5)


def test_values_take_the_type_of_the_default():
    params = resolve(
        "optimizer=momentum,learning_rate=1, warmup_steps=20 ,nesterov=True,hidden_units=[3,4],"
    )
    assert params["learning_rate"] == 1.0
    assert isinstance(params["learning_rate"], float)
    assert params["warmup_steps"] == 20
    assert params["nesterov"] is True
    assert params["hidden_units"] == (3, 4)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("hidden_units=[256,128],dropout=0.1", (256, 128)),
        ("hidden_units=[ 256 , 128 ]", (256, 128)),
        ("hidden_units=256 128", (256, 128)),  # flags.cfg of older versions
        ("hidden_units=256", (256,)),
        ("hidden_units=[256]", (256,)),
        ("hidden_units=[]", ()),
        ("hidden_units=", ()),
        ("pixel_mean=[1,2.5,3]", (1.0, 2.5, 3.0)),
        ("pixel_mean=1", (1.0,)),
        (
            "learning_rate_factors=[logits/.*:10,stage_[1-3]/.*:0.1]",
            ("logits/.*:10", "stage_[1-3]/.*:0.1"),
        ),
        (
            "learning_rate_factors=logits/.*:10 stage_[12]/.*:0.1",
            ("logits/.*:10", "stage_[12]/.*:0.1"),
        ),
        ("decay_boundaries=[3,6],schedule=step", (3, 6)),
    ],
)
def test_a_list(override, expected):
    key = override.partition("=")[0]
    value = resolve(override)[key]
    assert value == expected
    assert [type(item) for item in value] == [type(item) for item in expected]
    assert hparams._convert(key, str(value), type(value)) == value
    assert json.loads(json.dumps(value)) == list(expected)  # result files, model cards
    copied = copy.deepcopy(value)  # Estimator copies params
    assert copied == value
    assert type(copied) is type(value)


def test_a_regular_expression_keeps_its_brackets():
    assert resolve("trainable=[a-c,]+/.*,dropout=0.5")["trainable"] == "[a-c,]+/.*"


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (None, r"default_params\(\) returned None, and must return a dict"),
        (["units"], r"returned \['units'\], and must return a dict of hyperparameters by name"),
        ({8: "units"}, r"default_params\(\) has the key 8\. Names of hyperparameters are strings"),
    ],
)
def test_defaults_are_a_dict_by_name(found, message):
    model = dataclasses.replace(mlp.MODEL, default_params=lambda: found)
    with pytest.raises(ModelError, match=message):
        hparams.resolve(model, [])


def test_a_default_of_another_type_cannot_be_overridden():
    model = dataclasses.replace(mlp.MODEL, default_params=lambda: {"sizes": (1, 2)})
    message = r"sizes=\[3\]: the model's default is a tuple. Make it .* an Ints, Floats or Strings"
    with pytest.raises(UsageError, match=message):
        hparams.resolve(model, ["sizes=[3]"])


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
        ("hidden_units=[3;4]", r"hidden_units=\[3;4\] is not a list of int. Write .*=\[1,2\]"),
        ("hidden_units=[3,,4]", "is not a list of int"),
        ("hidden_units=[3,4]5", "is not a list of int"),
        ("pixel_mean=[1,nan]", r"is not a list of float. Write pixel_mean=\[1,2\]"),
        ("learning_rate_factors=[a:2 b:3]", r"is not a list of str. Write .*=\[a,b\]"),
        ("learning_rate_factors=[a:2,]", "is not a list of str"),
        ("hidden_units=[3,4", r"'\[' without '\]' in 'hidden_units=\[3,4'"),
        ("hidden_units=3]", r"'\]' without '\['"),
    ],
)
def test_a_wrong_override_is_refused(override, message):
    with pytest.raises(UsageError, match=message):
        resolve(override)


def test_a_model_may_not_take_a_name_of_the_training():
    model = dataclasses.replace(mlp.MODEL, default_params=lambda: {"momentum": 0.5})
    with pytest.raises(UsageError, match=r"defines \['momentum'\], which the training defines too"):
        hparams.resolve(model, [], {"num_classes": 3})


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["optimizer=lars,nesterov=true"], "nesterov=True has no effect with optimizer=lars"),
        (["nesterov=true"], "nesterov=True has no effect with optimizer=adam, only with momentum"),
        (["optimizer=sgd,momentum=0.9"], "momentum=0.9 has no effect with optimizer=sgd"),
        (["optimizer=momentum", "beta1=0.5"], "beta1=0.5 has no effect"),
        (["optimizer=adam,trust_coefficient=0.1"], "only with lars"),
        (["optimizer=adagrad,epsilon=1e-3"], "epsilon=0.001 has no effect"),
        (["rmsprop_decay=0.5"], "only with rmsprop"),
        (["decay_steps=7"], "decay_steps=7 has no effect with schedule=constant, only with expon"),
        (["schedule=cosine,decay_rate=0.5"], "decay_rate=0.5 has no effect"),
        (["schedule=cosine,decay_power=2"], "only with polynomial"),
        (["schedule=exponential,end_learning_rate=1e-5"], "only with cosine, polynomial"),
    ],
)
def test_a_value_without_an_effect_is_refused(overrides, message):
    with pytest.raises(UsageError, match=f"--params: .*{message}"):
        hparams.resolve(mlp.MODEL, overrides, {"num_classes": 3})


@pytest.mark.parametrize(
    "overrides",
    [
        ["optimizer=lars,nesterov=false"],
        ["optimizer=momentum,nesterov=true", "optimizer=sgd"],  # of a recipe and of the user
        ["schedule=cosine,decay_steps=7", "schedule=constant"],
    ],
)
def test_the_optimizer_of_a_recipe_can_be_replaced(overrides):
    hparams.resolve(mlp.MODEL, overrides, {"num_classes": 3})


def test_the_optimizer_of_a_table_reads_its_own_hyperparameters():
    table = EmbeddingTable("items", 7, 3, {}, optimizer="adam")
    model = dataclasses.replace(mlp.MODEL, embedding_tables=lambda params: [table])
    hparams.resolve(model, ["optimizer=sgd,beta1=0.5"], {"num_classes": 3})


@pytest.mark.parametrize("name", ["batch_size", "context", "input_context", "use_tpu"])
def test_a_model_may_not_take_a_name_of_the_estimator(name):
    model = dataclasses.replace(mlp.MODEL, default_params=lambda: {name: 3})
    with pytest.raises(UsageError, match=rf"has the hyperparameters \['{name}'\], which an Estim"):
        hparams.resolve(model, [], {"num_classes": 3})
    model = dataclasses.replace(mlp.MODEL, dataset_properties=(name,))
    with pytest.raises(UsageError, match=f"'{name}'"):
        hparams.resolve(model, [], {name: 3})


def test_a_padded_property_may_be_larger_than_that_of_the_data_set():
    model = dataclasses.replace(mlp.MODEL, padded_properties=("num_classes",))
    assert hparams.resolve(model, ["num_classes=5"], {"num_classes": 3})["num_classes"] == 5
    with pytest.raises(UsageError, match="num_classes=2, but the data set has 3"):
        hparams.resolve(model, ["num_classes=2"], {"num_classes": 3})


def test_a_property_of_the_data_set_needs_no_default():
    model = dataclasses.replace(mlp.MODEL, dataset_properties=("num_classes", "max_boxes"))
    params = hparams.resolve(model, [], {"num_classes": 3, "max_boxes": 7, "other": 1})
    assert (params["num_classes"], params["max_boxes"]) == (3, 7)
    assert "other" not in params


def test_a_property_that_the_data_set_lacks_must_be_given():
    with pytest.raises(UsageError, match="needs num_classes, which the data set does not define"):
        hparams.resolve(mlp.MODEL, [], {})
    assert hparams.resolve(mlp.MODEL, ["num_classes=5"], {})["num_classes"] == 5


def test_the_target_is_that_of_the_data_set_and_that_of_an_unknown_one_is_a_class():
    assert hparams.resolve(mlp.MODEL, [], {"num_classes": 3})["target"] == "classification"
    properties = {"num_classes": 2, "target": "regression", "target_mean": (3.0, 4.0)}
    params = hparams.resolve(mlp.MODEL, ["loss=huber"], properties)
    assert (params["target"], params["target_mean"]) == ("regression", (3.0, 4.0))
    with pytest.raises(UsageError, match="target=multilabel, but the data set has regression"):
        hparams.resolve(mlp.MODEL, ["target=multilabel"], properties)


def test_a_property_without_a_default_can_be_given_by_the_flag():
    model = dataclasses.replace(mlp.MODEL, dataset_properties=("depth",))
    assert hparams.resolve(model, ["depth=3"], {})["depth"] == 3


@pytest.mark.parametrize("value", ["x", None, 1.5])
def test_a_property_of_another_type_than_the_default_is_an_error(value):
    with pytest.raises(UsageError, match="the data set has the property num_classes="):
        hparams.resolve(mlp.MODEL, [], {"num_classes": value})


def test_layer_decay_needs_a_model_with_layers():
    with pytest.raises(
        UsageError, match=r"layer_decay=0.5: model 'mlp' does not define its layers"
    ):
        resolve("layer_decay=0.5")
    layered = dataclasses.replace(mlp.MODEL, layer_variables=lambda params: ["dense_0/.*"])
    assert hparams.resolve(layered, ["layer_decay=0.5"], {"num_classes": 3})["layer_decay"] == 0.5


def test_a_preset_sets_hyperparameters_that_are_not_given():
    transformer, data = registry.find("transformer"), {"vocab_size": 99}
    names = ("size", "num_layers", "hidden_size", "dropout")

    def resolved(*overrides):
        params = hparams.resolve(transformer, overrides, data)
        return [params[name] for name in names]

    assert resolved() == ["base", 6, 512, 0.1]
    assert resolved("num_layers=3,size=big") == ["big", 3, 1024, 0.3]
    assert resolved("size=big,dropout=0.5", "size=tiny") == ["tiny", 4, 128, 0.5]
    with pytest.raises(UsageError, match="size=huge must be one of tiny, small, base, big"):
        resolved("size=huge")


@pytest.mark.parametrize("name", registry.MODELS)
def test_the_values_of_a_preset_set_the_same_hyperparameters(name):
    model = registry.find(name)
    defaults = model.default_params()
    for key, presets in model.presets.items():
        for value in presets.values():
            assert {n: type(v) for n, v in value.items()} == {n: type(defaults[n]) for n in value}
            assert value.keys() == presets[defaults[key]].keys()
        assert presets[defaults[key]].items() <= defaults.items()


SIZES = {"num_classes": 3, "num_users": 5, "num_items": 7, "table_rows": [5, 7], "vocab_size": 99}


@pytest.mark.parametrize(
    ("model", "override", "chooser"),
    [
        ("transformer", "length_penalty=1,beam_size=1", "beam_size=1"),
        ("unet", "focal_gamma=1", "losses="),
        ("unet", "backbone_width=2", "backbone=own"),
        ("unet", "backbone=mobilenet_v2,stride_in_1x1=true", "backbone=mobilenet_v2"),
        ("deeplab", "backbone=resnet18,stride_in_1x1=true", "backbone=resnet18"),
        ("retinanet", "backbone=mobilenet_v1,stride_in_1x1=true", "backbone=mobilenet_v1"),
        ("resnet", "depth=18,stride_in_1x1=true", "depth=18"),
        ("convnet", "batch_norm_momentum=0.5", "layers="),
        ("mlp", "hidden_units=[],dropout=0.5", "hidden_units="),
        ("mlp", "huber_delta=2", "loss=default"),
        ("mlp", "threshold=[0.3]", "target=classification"),
        ("neumf", "gmf_size=0,embedding_dropout=0.5", "gmf_size=0"),
        ("neumf", "mlp_size=0,hidden_units=[3]", "mlp_size=0"),
        ("neumf", "hidden_units=[],dropout=0.5", "hidden_units="),
        ("two_tower", "tower_units=[],dropout=0.5", "tower_units="),
        ("dlrm", "tpu_embedding_pipelining=true", "tpu_embedding_rows=0"),
    ],
)
def test_a_hyperparameter_that_another_makes_useless_is_refused(model, override, chooser):
    found = registry.find(model)
    properties = {name: SIZES[name] for name in found.dataset_properties if name in SIZES}
    with pytest.raises(UsageError, match=f"has no effect with {chooser}.*Remove it"):
        hparams.resolve(found, [override], properties)


@pytest.mark.parametrize("model", registry.MODELS)
def test_useless_hyperparameters_are_those_of_the_model(model):
    found = registry.find(model)
    params = found.default_params()
    unused = found.unused_params(params)
    assert {*unused, *unused.values()} <= params.keys()


@pytest.mark.parametrize(
    ("model", "override"),
    [
        ("resnet", "depth=50,stride_in_1x1=true"),
        ("unet", "backbone=resnet50,stride_in_1x1=true,backbone_width=0.5"),
        ("unet", "losses=[focal],focal_gamma=1"),
        ("mlp", "hidden_units=[3],dropout=0.5"),
        ("neumf", "hidden_units=[3],dropout=0.5"),
    ],
)
def test_a_hyperparameter_with_an_effect_is_accepted(model, override):
    found = registry.find(model)
    properties = {name: SIZES[name] for name in found.dataset_properties if name in SIZES}
    hparams.resolve(found, [override], properties)


def test_a_recipe_may_set_what_a_later_choice_makes_useless():
    resnet = registry.find("resnet")
    hparams.resolve(resnet, ["stride_in_1x1=true", "depth=18"], {"num_classes": 3})
