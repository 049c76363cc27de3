"""Finding models by name, and the user's own by module and attribute."""

import dataclasses
import sys

import pytest

from common.constants import WORDPIECE_TASKS
from common.errors import UsageError
from engine.cli import hparams
from input_fns import kinds
from models import registry
from models.model import ModelError
from models.vision import mlp


@pytest.mark.parametrize("name", registry.MODELS)
def test_every_registered_model_is_found_under_its_own_name(name):
    assert registry.find(name).name == name


@pytest.mark.parametrize(
    ("name", "model", "size"),
    [
        ("bert_minilm_token_classifier", "bert_token_classifier", "minilm"),
        ("bert_large_squad", "bert_squad", "large"),
        ("transformer_big", "transformer", "big"),
        ("conformer_ctc_medium", "conformer_ctc", "medium"),
    ],
)
def test_a_name_with_a_size_is_the_model_with_this_preset(name, model, size):
    assert registry.may_exist(name)
    found, whole = registry.find(name), registry.find(model)
    assert found.name == name
    properties = {"vocab_size": 99, "num_tags": 9, "max_length": 5, "max_tokens": 5}
    properties["sample_rate"] = 8000
    params = hparams.resolve(found, [], properties)
    assert params == hparams.resolve(whole, [f"size={size}"], properties)
    assert params["size"] == size
    smaller = ["size=tiny"]
    assert hparams.resolve(found, smaller, properties) == hparams.resolve(
        whole, smaller, properties
    )


@pytest.mark.parametrize(
    "name", ["bert_huge_squad", "mlp_tiny", "bert_tiny", "bert_tiny_mini_squad"]
)
def test_a_name_with_another_part_is_unknown(name):
    with pytest.raises(ModelError, match=f"--model={name} is unknown"):
        registry.find(name)


def test_a_model_of_another_module():
    assert registry.find("models.vision.mlp:MODEL") is mlp.MODEL


def test_a_module_in_the_working_folder(tmp_path, monkeypatch):
    (tmp_path / "in_working_folder.py").write_text("from models.vision.mlp import MODEL as MINE\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    assert registry.find("in_working_folder:MINE") is mlp.MODEL


def test_an_unknown_name_brings_the_nearest():
    with pytest.raises(ModelError, match="Did you mean 'convnet'"):
        registry.find("convnt")


def test_an_attribute_that_is_no_model():
    with pytest.raises(ModelError, match=r"no models.model.Model named 'inference' \(found func"):
        registry.find("models.vision.mlp:inference")


def test_a_broken_import_inside_the_users_module_is_not_hidden(tmp_path, monkeypatch):
    (tmp_path / "broken_model.py").write_text("import no_such_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        registry.find("broken_model:MODEL")


def test_a_function_with_another_number_of_arguments_is_one_line():
    def metrics(features, labels, outputs, weights, params):
        raise NotImplementedError

    with pytest.raises(ModelError) as error:
        dataclasses.replace(mlp.MODEL, metrics=metrics)
    assert str(error.value) == (
        "model 'mlp': metrics(features, labels, outputs, weights, params) must take 4 argument(s). "
        "See docs/own_model.md"
    )


def test_functions_with_defaults_star_arguments_or_without_a_signature_are_accepted():
    model = dataclasses.replace(
        mlp.MODEL,
        metrics=lambda *tensors: {},
        reports=lambda params, pipeline, colors="rgb": (),
        default_params=dict,
    )
    assert model.reports({}, None) == ()


def test_an_unknown_argument_of_a_model_brings_the_nearest():
    with pytest.raises(
        ModelError, match=r"Model has no argument 'eval_output'. Did you mean 'eval_outputs'\?"
    ):
        dataclasses.replace(mlp.MODEL, eval_output=None)


@pytest.mark.parametrize(
    "path", [".:x", "..:x", ".a:x", "a.:x", "a..b:x", ":x", "os:", "a/b:x", "a:b:c"]
)
def test_what_is_no_attribute_of_a_module_is_refused(path):
    with pytest.raises(ModelError, match=r"must be package\.module:ATTRIBUTE"):
        registry.find(path)


def test_names_without_anything_near_are_listed():
    assert registry.did_you_mean("zzz", ["b", "a"]) == " Valid: a, b."


def data_sets():
    """Data sets of every kind: the data set, features of its pipeline that are not stored."""

    def synthetic(*task, **shapes):
        return kinds.synthetic(kinds.SyntheticShapes(*task, **shapes))

    return {
        "classes": (synthetic("", 3, (8, 8)), ()),
        "boxes": (synthetic("detection", 3, (8, 8)), ("image_info",)),
        "instances": (synthetic("instance_segmentation", 3, (8, 8)), ("image_info",)),
        "masks": (synthetic("segmentation", 3, (8, 8)), ()),
        "pairs": (synthetic("translation", text=(7, 31)), ()),
        "ratings": (synthetic("ratings", tables=(11, 13)), ("items",)),
        "clicks": (synthetic("clicks", tables=(5, 7)), ()),
        "sounds": (synthetic("", 3, audio=(8000, 9, 0, 0)), ()),
        "transcripts": (synthetic(audio=(8000, 9, 6, 5)), ()),
        **{task: (synthetic(task, text=(9, 31)), ()) for task in WORDPIECE_TASKS},
    }


# Kind of data of each model: the start of its path.
FITTING = {
    "classes": "models.vision.",
    "boxes": ("models.detection.retinanet", "models.detection.faster_rcnn"),
    "instances": "models.detection.",
    "masks": "models.segmentation.",
    "pairs": "models.text.transformer",
    "ratings": ("models.recommendation.neumf", "models.recommendation.two_tower"),
    "clicks": "models.recommendation.dlrm",
    "sounds": "models.speech.keyword_cnn",
    "transcripts": "models.speech.conformer_ctc",
    "classification": "models.text.bert_classifier",
    "regression": ("models.text.bert_regressor", "models.text.bert_embedder"),
    "token_classification": "models.text.bert_token_classifier",
    "squad": "models.text.bert_squad",
    "pretraining": "models.text.bert_pretraining",
}


def fits(model, kind):
    return registry.MODELS[model].startswith(FITTING[kind])


def check(model, kind):
    data, made = data_sets()[kind]
    labels = data.labels or (("label",) if data.num_classes else ())
    features = dict.fromkeys((*data.features, *made))
    registry.check_data(model, kind, features, labels, len(data.all_class_names))


@pytest.mark.parametrize("kind", FITTING)
def test_every_model_fits_its_kind_of_data_and_no_other(kind):
    for model in registry.MODELS:
        if fits(model, kind):
            check(model, kind)
            continue
        with pytest.raises(UsageError) as raised:
            check(model, kind)
        message = str(raised.value)
        assert message.startswith(f"--model={model} needs ")
        assert "\n" not in message
        advised = message.rpartition("Use --model=")[2].partition(", or prepare")[0]
        advised = advised.removesuffix(", ...").split(", ")
        assert advised
        assert all(fits(name, kind) for name in advised), message


def test_a_model_of_masks_on_classes_names_the_labels_and_the_models_that_fit():
    message = (
        "--model=unet needs the labels mask, but the data set classes has label of 3 classes. "
        "Use --model=mlp, convnet, resnet, mobilenet"
    )
    with pytest.raises(UsageError, match=message):
        check("unet", "classes")


def test_boxes_without_the_masks_that_a_model_needs_name_the_task():
    labels = ("boxes", "classes", "is_crowd")
    message = r"labels boxes, classes, is_crowd and masks, .* --task=instance_segmentation$"
    with pytest.raises(UsageError, match=message):
        registry.check_data("mask_rcnn", "shapes", ("image", "image_info"), labels, 2)


def test_data_that_no_model_fits():
    with pytest.raises(UsageError, match=r"holds age\. No model of this package fits it"):
        registry.check_data("mlp", "people", ["age"], [])
