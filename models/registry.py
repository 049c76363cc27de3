"""Finds a model by its name, or a user's own as `package.module:ATTRIBUTE`."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Iterable

from models.model import Model, ModelError

# A new model is one file and one line here. Text, so that `--help` imports no TensorFlow.
MODELS = {
    "mlp": "models.mlp:MODEL",
    "convnet": "models.convnet:MODEL",
    "resnet": "models.resnet:MODEL",
    "mobilenet": "models.mobilenet:MODEL",
    "transformer_tiny": "models.transformer:TINY",
    "transformer_small": "models.transformer:SMALL",
    "transformer_base": "models.transformer:BASE",
    "transformer_big": "models.transformer:BIG",
}


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """Returns ` Did you mean 'X'?`, or the whole list where nothing is near."""
    valid = sorted(valid)
    near = difflib.get_close_matches(name, valid, n=1)
    return f" Did you mean '{near[0]}'?" if near else f" Valid: {', '.join(valid)}."


def find(name: str) -> Model:
    """Returns the model called `name`, or the one at `package.module:ATTRIBUTE`.

    Raises:
      ModelError: the name is unknown, or the module, the attribute or its type is wrong.
    """
    if ":" not in name and name not in MODELS:
        raise ModelError(
            f"--model={name} is unknown.{did_you_mean(name, MODELS)} "
            "A model of your own is --model=package.module:ATTRIBUTE"
        )
    path = MODELS.get(name, name)
    model = attribute("model", path)
    if not isinstance(model, Model):
        module_name, _, wanted = path.partition(":")
        raise ModelError(
            f"--model={name}: {module_name} has no models.model.Model named '{wanted}' "
            f"(found {type(model).__name__})"
        )
    return model


def attribute(flag: str, path: str):
    """Returns what `package.module:ATTRIBUTE` names; None if the module has no such attribute.

    Raises:
      ModelError: it is not of that form, or there is no such module; names the flag.
    """
    module_name, _, name = path.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), name)):
        raise ModelError(f"--{flag}={path} must be package.module:ATTRIBUTE")
    return getattr(_import(flag, path, module_name), name, None)


def _import(flag, path, module_name):
    # A user's file lies in the folder they stand in, as with `python -m`.
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # An import that fails inside the user's module is theirs to see, traceback and all.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ModelError(
            f"--{flag}={path}: no module '{error.name}' on the Python path or in {os.getcwd()}"
        ) from error
