"""Hyperparameters: the defaults of the model and of the training, and `--params` on top."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from typing import Any

from common import strict_flags
from common.errors import UsageError
from common.messages import did_you_mean
from engine.train import optimizers, schedules
from models.model import Model


def resolve(
    model: Model,
    overrides: Iterable[str],
    dataset_properties: Mapping[str, Any] = types.MappingProxyType({}),
    precision: str = "float32",
) -> dict[str, Any]:
    """Returns every hyperparameter of a run.

    Args:
      model: its `default_params` come first, then those of `optimizers` and `schedules`.
      overrides: texts `key=value,key=value,...`; a later key wins.
      dataset_properties: of the data set; the model names those that it needs.
      precision: "float32" or "bfloat16"; models that have a `precision` get it.

    Raises:
      UsageError: an unknown key, a value of a wrong type or out of range.
      ModelError: a value that the model refuses.
    """
    params = dict(model.default_params())
    for more in (optimizers.default_params(), schedules.default_params()):
        clash = params.keys() & more.keys()
        if clash:
            raise UsageError(
                f"model '{model.name}' defines {sorted(clash)}, which the training defines too"
            )
        params.update(more)
    needed = [name for name in model.dataset_properties if name in params]
    given = {name: dataset_properties[name] for name in needed if name in dataset_properties}
    given["precision"] = precision
    params.update({key: value for key, value in given.items() if key in params})
    if precision != "float32" and "precision" not in params:
        raise UsageError(
            f"--precision={precision}: model '{model.name}' has no hyperparameter 'precision', so "
            "it computes in float32 only"
        )
    set_by_flag = set()
    for key, text in _pairs(overrides):
        if key not in params:
            raise UsageError(f"--params: '{key}' is unknown.{did_you_mean(key, params)}")
        params[key] = _convert(key, text, type(params[key]))
        set_by_flag.add(key)
    for name in needed:
        if name not in given and name not in set_by_flag:
            raise UsageError(
                f"model '{model.name}' needs {name}, which the data set does not define. "
                f"Set it by --params={name}=..."
            )
    for key, value in given.items():
        if params.get(key, value) != value:
            source = "--precision is" if key == "precision" else "the data set has"
            raise UsageError(f"--params: {key}={params[key]}, but {source} {value}")
    model.check_params(params)
    optimizers.check_params(params)
    schedules.check_params(params)
    return params


def _pairs(overrides):
    for override in overrides:
        for pair in filter(None, (part.strip() for part in override.split(","))):
            key, equals, value = pair.partition("=")
            if not equals:
                raise UsageError(f"--params: '{pair}' is not of the form key=value")
            yield key.strip(), value.strip()


def _convert(key, text, wanted):
    """Returns `text` as the type `wanted`, which is the type of the default."""
    if wanted is str:
        return text
    if wanted is bool:
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
    else:
        try:
            return {int: strict_flags.to_integer, float: strict_flags.to_float}[wanted](text)
        except ValueError:
            pass
    raise UsageError(f"--params: {key}={strict_flags.shown(text)} is not a valid {wanted.__name__}")
