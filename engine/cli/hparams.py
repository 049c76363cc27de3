"""Hyperparameters: defaults of the model, the optimizer and the schedule, overridden by `--params`.

The text of `--params` is `key=value,key=value,...`. A list is written in brackets,
`hidden_units=[256,128]`; its commas do not separate parameters. A list without brackets is
separated by spaces, the form of older flags.cfg files; so a single value is a list of one.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterable, Mapping
from typing import Any

from common import strict_flags
from common.errors import UsageError
from common.messages import did_you_mean
from common.params import TypedList
from engine.train import optimizers, schedules
from models.model import Model, ModelError

# Keys that TPUEstimator, `run_cpu.build_input_fns` or `data_service.distribute` add to the params
# of a model_fn or input_fn.
_RESERVED = {"batch_size", "context", "data_worker", "input_context", "use_tpu"}


def resolve(
    model: Model,
    overrides: Iterable[str],
    dataset_properties: Mapping[str, Any] | None = types.MappingProxyType({}),
    precision: str = "float32",
) -> dict[str, Any]:
    """Returns every hyperparameter of a run.

    Args:
      model: provides `default_params`; `optimizers` and `schedules` add theirs.
      overrides: values of `--params`, `key=value,key=value,...`; a later key wins.
      dataset_properties: `{name: value}` of the data set; the model names those that it needs.
        None if not known yet: they keep their defaults, and no value is checked.
      precision: "float32" or "bfloat16", for models that have a `precision`.

    Raises:
      UsageError: an unknown key, or a value of a wrong type or out of range.
      ModelError: the model does not accept a value, or its defaults are not a dict.
    """
    params = _defaults(model)
    for more in (optimizers.default_params(), schedules.default_params()):
        clash = params.keys() & more.keys()
        if clash:
            raise UsageError(
                f"model '{model.name}' defines {sorted(clash)}, which the training defines too. "
                "Rename it in the model"
            )
        params.update(more)
    reserved = sorted({*params, *model.dataset_properties} & _RESERVED)
    if reserved:
        raise UsageError(
            f"model '{model.name}' has the hyperparameters {reserved}, which an Estimator adds to "
            "params itself. Rename them in the model"
        )
    is_known = dataset_properties is not None
    needed = model.dataset_properties if is_known else ()
    found = {name: dataset_properties[name] for name in needed if name in dataset_properties}
    given = {
        name: _as_default(name, value, params.get(name, value)) for name, value in found.items()
    }
    if "precision" in params:
        given["precision"] = precision
    elif precision != "float32":
        raise UsageError(
            f"--precision={precision}: model '{model.name}' has no hyperparameter 'precision', so "
            "it computes in float32 only"
        )
    params.update(given)
    overrides = list(pairs(overrides))
    for _, (key, text) in overrides:
        if key in model.presets:
            params.update(_preset(key, text, model.presets[key]))
    set_by_flag = {}  # the place in `overrides` of each key
    for place, (key, text) in overrides:
        if key in model.dataset_properties and key not in params:
            params[key] = _guess(text)  # the model has no default, whose type would decide
        elif key not in params:
            raise UsageError(f"--params: '{key}' is unknown.{did_you_mean(key, params)}")
        else:
            params[key] = _convert(key, text, type(params[key]))
        set_by_flag[key] = place
    if not is_known:
        return params
    for name in needed:
        if name not in {*given, *set_by_flag, *model.optional_properties}:
            raise UsageError(
                f"model '{model.name}' needs {name}, which the data set does not define. "
                f"Set it by --params={name}=..."
            )
    for key, value in given.items():
        is_padded = key in model.padded_properties and params[key] > value
        if params[key] != value and not is_padded:
            source = "--precision is" if key == "precision" else "the data set has"
            raise UsageError(f"--params: {key}={params[key]}, but {source} {value}")
    model.check_params(params)
    optimizers.check_params(params)
    if params["layer_decay"] != 1 and not model.layer_variables(params):
        raise UsageError(
            f"layer_decay={params['layer_decay']}: model '{model.name}' does not define its layers."
            " Use learning_rate_factors"
        )
    schedules.check_params(params)
    tables = {table.optimizer for table in model.embedding_tables(params)}
    _check_effects(params, set_by_flag, "optimizer", optimizers.READ_BY, tables)
    _check_effects(params, set_by_flag, "schedule", schedules.READ_BY)
    for name, chooser in _unused_params(model, params).items():
        if _is_without_reader(name, chooser, params, set_by_flag):
            raise UsageError(
                f"--params: {name}={params[name]} has no effect with {chooser}={params[chooser]}. "
                "Remove it"
            )
    return params


def _defaults(model):
    """Returns a copy of the hyperparameters of a model, after a check of their type."""
    found = model.default_params()
    if not isinstance(found, Mapping):
        raise ModelError(
            f"model '{model.name}': default_params() returned {found!r:.60}, and must return a dict"
            " of hyperparameters by name. For a dataclass return dataclasses.asdict"
        )
    for name in found:
        if not isinstance(name, str):
            raise ModelError(
                f"model '{model.name}': default_params() has the key {name!r:.60}. Names of "
                "hyperparameters are strings"
            )
    return dict(found)


def _preset(key, value, presets):
    """Returns the hyperparameters that a value of a preset sets."""
    if value not in presets:
        shown = strict_flags.shown(value)
        raise UsageError(f"--params: {key}={shown} must be one of {', '.join(presets)}")
    return presets[value]


def _unused_params(model, params):
    try:
        return model.unused_params(params)
    except KeyError:  # a copy of a model (`dataclasses.replace`) with other hyperparameters
        return {}


def _check_effects(params, set_by_flag, chooser, read_by, others=frozenset()):
    """Raises `UsageError` for a hyperparameter of `--params` that nothing reads.

    Args:
      params: all hyperparameters.
      set_by_flag: `{hyperparameter: place of the --params that set it}`.
      chooser: "optimizer" or "schedule".
      read_by: `{hyperparameter: values of chooser that read it}`.
      others: further values of chooser, in use beside `params[chooser]`.
    """
    for name, readers in read_by.items():
        is_read = {params[chooser], *others} & {*readers}
        if not is_read and _is_without_reader(name, chooser, params, set_by_flag):
            raise UsageError(
                f"--params: {name}={params[name]} has no effect with {chooser}={params[chooser]}, "
                f"only with {', '.join(readers)}. Remove it"
            )


def _is_without_reader(name, chooser, params, set_by_flag):
    """Returns whether a hyperparameter that nothing reads is an error of `--params`.

    Not 0 and False, and not one that came before its chooser in an earlier --params, such as that
    of a recipe.
    """
    place = set_by_flag.get(name)
    return place is not None and bool(params[name]) and place >= set_by_flag.get(chooser, -1)


def _as_default(name, value, default):
    """Returns a data set property as the type of the model's default."""
    kind = type(default)
    if isinstance(default, TypedList):
        with contextlib.suppress(TypeError, ValueError):
            if isinstance(value, (list, tuple)) and kind(value) == tuple(value):
                return kind(value)
    elif kind is float and type(value) is int:
        return float(value)
    elif type(value) is kind:
        return value
    raise UsageError(
        f"the data set has the property {name}={value!r}, but the model's default is a "
        f"{kind.__name__}. Correct one of the two"
    )


def pairs(overrides):
    """Yields (place in `overrides`, (key, text of the value))."""
    for place, override in enumerate(overrides):
        try:
            pairs = _split(override)
        except ValueError as error:
            shown = strict_flags.shown(override)
            raise UsageError(f"--params: {error} in '{shown}'. Write a list as [1,2]") from error
        for pair in filter(None, pairs):
            key, equals, value = pair.partition("=")
            if not equals:
                shown = strict_flags.shown(pair)
                raise UsageError(f"--params: '{shown}' is not of the form key=value")
            yield place, (key.strip(), value.strip())


def _split(text):
    """Returns the stripped parts of `text` between the commas that are outside of brackets.

    Raises:
      ValueError: brackets do not match.
    """
    parts, depth = [""], 0
    for character in text:
        if character == "," and not depth:
            parts.append("")
            continue
        depth += {"[": 1, "]": -1}.get(character, 0)
        if depth < 0:
            raise ValueError("']' without '['")
        parts[-1] += character
    if depth:
        raise ValueError("'[' without ']'")
    return [part.strip() for part in parts]


def _convert(key, text, kind):
    """Returns `text` as a `kind`, the type of the default."""
    shown = f"{key}={strict_flags.shown(text)}"
    is_list = issubclass(kind, TypedList)
    if not is_list and kind not in _SCALARS:
        raise UsageError(
            f"--params: {shown}: the model's default is a {kind.__name__}. Make it a bool, int, "
            "float or str, or an Ints, Floats or Strings of common.params"
        )
    try:
        if is_list:
            return kind(map(_SCALARS[kind.element], _items(text, kind.element)))
        return _SCALARS[kind](text)
    except ValueError as error:
        if not is_list:
            raise UsageError(f"--params: {shown} is not a valid {kind.__name__}") from error
        example = "[a,b]" if kind.element is str else "[1,2]"
        raise UsageError(
            f"--params: {shown} is not a list of {kind.element.__name__}. Write {key}={example}"
        ) from error


def _guess(text):
    """Returns `text` as an int, else as a float, else as it is."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return _SCALARS[kind](text)
    return text


def _items(text, kind):
    """Returns the texts of the elements of a list."""
    if not text.startswith("["):
        return text.split()
    if text[-1] != "]":
        raise ValueError(text)
    items = _split(text[1:-1]) if text[1:-1].strip() else []
    if kind is str and not all(len(item.split()) == 1 for item in items):
        raise ValueError(text)  # empty, or separated by spaces
    return items


def _to_bool(text):
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


_SCALARS = {bool: _to_bool, int: strict_flags.to_integer, float: strict_flags.to_float, str: str}
