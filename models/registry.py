"""Finds a model by name, a network as `keras:NETWORK`, or a custom model as `module:ATTRIBUTE`."""

from __future__ import annotations

import dataclasses
import importlib
import os
import sys
from collections.abc import Collection

from common.errors import UsageError
from common.messages import did_you_mean
from models.model import Model, ModelError

# Add a line for each new model. Strings, so that `--help` does not import TensorFlow.
MODELS = {
    "mlp": "models.vision.mlp:MODEL",
    "convnet": "models.vision.convnet:MODEL",
    "resnet": "models.vision.resnet:MODEL",
    "mobilenet": "models.vision.mobilenet:MODEL",
    "efficientnet": "models.vision.efficientnet:MODEL",
    "saved_model": "models.vision.saved_model:MODEL",
    "retinanet": "models.detection.retinanet:MODEL",
    "faster_rcnn": "models.detection.faster_rcnn:MODEL",
    "mask_rcnn": "models.detection.mask_rcnn:MODEL",
    "unet": "models.segmentation.unet:MODEL",
    "deeplab": "models.segmentation.deeplab:MODEL",
    "dcgan": "models.generation.dcgan:MODEL",
    "sngan": "models.generation.sngan:MODEL",
    "neumf": "models.recommendation.neumf:MODEL",
    "two_tower": "models.recommendation.two_tower:MODEL",
    "dlrm": "models.recommendation.dlrm:MODEL",
    "keyword_cnn": "models.speech.keyword_cnn:MODEL",
    "conformer_ctc": "models.speech.conformer_ctc:MODEL",
    "transformer": "models.text.transformer:MODEL",
    "gpt": "models.text.gpt:MODEL",
    "bert_pretraining": "models.text.bert_pretraining:MODEL",
    "bert_classifier": "models.text.bert_classifier:MODEL",
    "bert_regressor": "models.text.bert_regressor:MODEL",
    "bert_token_classifier": "models.text.bert_token_classifier:MODEL",
    "bert_squad": "models.text.bert_squad:MODEL",
    "bert_embedder": "models.text.bert_embedder:MODEL",
}

# `--model=KIND:REST` is the model that this function makes of REST.
_KINDS = {"keras": "models.vision.keras_network:find"}

# Labels of images with boxes or masks -> --task of prepare_data.py.
_TASKS = {"boxes": "detection", "mask": "segmentation", "masks": "instance_segmentation"}
_SHOWN = 6  # models that a message names


def may_exist(name: str) -> bool:
    """Returns whether `find` may know this name, without importing the model."""
    return ":" in name or name in MODELS or bool(_without_a_part(name))


def find(name: str) -> Model:
    """Returns the model with this name, or the one at `package.module:ATTRIBUTE`.

    A name may have a value of a preset as one of its parts: `bert_base_classifier` is
    `bert_classifier` with `size=base` by default.

    Raises:
      ModelError: the name is unknown, or the module, the attribute or its type is wrong.
    """
    for shorter, part in _without_a_part(name):
        model = find(shorter)
        for key, presets in model.presets.items():
            if part in presets:
                params = {**model.default_params(), **presets[part], key: part}
                return dataclasses.replace(model, name=name, default_params=params.copy)
    if ":" not in name and name not in MODELS:
        raise ModelError(
            f"--model={name} is unknown.{did_you_mean(name, MODELS)} "
            "Use --model=package.module:ATTRIBUTE for a custom model"
        )
    kind, _, rest = name.partition(":")
    if kind in _KINDS:
        return attribute("model", _KINDS[kind])(rest)
    path = MODELS.get(name, name)
    model = attribute("model", path)
    if not isinstance(model, Model):
        module_name, _, wanted = path.partition(":")
        raise ModelError(
            f"--model={name}: {module_name} has no models.model.Model named '{wanted}' "
            f"(found {type(model).__name__})"
        )
    return model


def _without_a_part(name):
    """Returns (name of a model, part) for each part of `name` without which it is one."""
    parts = name.split("_")
    shorter = (("_".join(parts[:i] + parts[i + 1 :]), part) for i, part in enumerate(parts))
    return [pair for pair in shorter if pair[0] in MODELS and name not in MODELS]


def check_data(
    name: str,
    data_name: str,
    features: Collection[str],
    labels: Collection[str] | None,
    num_classes: int = 0,
) -> None:
    """Checks that a data set has the features and labels that a model declares.

    Args:
      name: value of --model.
      data_name: name of the data set.
      features: names of its features, with those that its input pipeline makes; "a/b" is nested.
      labels: names of its labels, "label" for the class, "target" for other targets of
        `models.targets`; None if unknown, which checks nothing.
      num_classes: number of its classes, for the message.

    Raises:
      UsageError: it lacks one. The message names the models that fit.
    """
    model = find(name)
    problem = ""
    if not _has(features, model.features):
        problem = (
            f"needs {_joined(model.features)}, but the data set {data_name} holds "
            f"{', '.join(features)}"
        )
    elif labels is not None and not _has_labels(labels, model):
        found = ", ".join(sorted(labels)) or "none"
        classes = f" of {num_classes} classes" if num_classes else ""
        problem = (
            f"needs the labels {_joined(model.labels)}, but the data set {data_name} has "
            f"{found}{classes}"
        )
    if not problem:
        return
    fitting = [
        other
        for other, model in ((other, find(other)) for other in MODELS)
        if _has(features, model.features) and _has_labels(labels or (), model)
    ]
    shown = ", ".join(fitting[:_SHOWN]) + (", ..." if fitting[_SHOWN:] else "")
    advice = f"Use --model={shown}" if fitting else "No model of this package fits it"
    tasks = [_TASKS[label] for label in model.labels if label in _TASKS.keys() - {*(labels or ())}]
    if fitting and tasks and not _TASKS.keys().isdisjoint(labels or ()):
        advice += f", or prepare the data with --task={tasks[-1]}"
    raise UsageError(f"--model={name} {problem}. {advice}")


def _joined(words):
    """Returns "a", "a and b" or "a, b and c"."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _has(names, needed):
    known = {*names, *(name.partition("/")[0] for name in names)}  # the dict of a nested feature
    return known >= set(needed)


def _has_labels(names, model):
    has_target = "target" in names and "target" in model.dataset_properties
    return has_target or _has(names, model.labels)


def attribute(flag: str, path: str):
    """Imports `package.module:ATTRIBUTE`; returns None if the module has no such attribute.

    Args:
      flag: name of the flag, for error messages.
      path: value of the flag.

    Raises:
      ModelError: the path has another form, or the module is missing.
    """
    module_name, _, name = path.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), name)):
        raise ModelError(f"--{flag}={path} must be package.module:ATTRIBUTE")
    return getattr(_import(flag, path, module_name), name, None)


def _import(flag, path, module_name):
    # Find modules in the working folder, like `python -m`.
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # Show the traceback of an import that fails inside the custom module.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ModelError(
            f"--{flag}={path}: no module '{error.name}' on the Python path or in {os.getcwd()}"
        ) from error
