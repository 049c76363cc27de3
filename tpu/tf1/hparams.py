"""tf.contrib.training.HParams: named hyperparameters with types, parsed from `name=value,...`."""

from __future__ import annotations

import json
import numbers
import re

_ASSIGNMENT = re.compile(
    r"(?P<name>[a-zA-Z][\w.]*)(\[\s*(?P<index>\d+)\s*\])?\s*=\s*"
    r"((?P<value>[^,\[]*)|\[(?P<values>[^\]]*)\])($|,\s*)"
)


def parse_values(values, type_map, ignore_unknown=False):
    """Parses hyperparameters.

    Args:
      values: str, such as "a=1,b=[2,3],c[1]=4".
      type_map: {name: type}, of the elements for lists.
      ignore_unknown: whether to skip names that are not in `type_map`.

    Returns:
      {name: value}, as {"a": 1, "b": [2, 3], "c": {1: 4}}.

    Raises:
      ValueError: invalid syntax, an unknown name, an invalid or a repeated value.
    """
    result = {}
    position = 0
    while position < len(values):
        match = _ASSIGNMENT.match(values, position)
        if not match:
            raise ValueError(f"Malformed hyperparameter value: {values[position:]}")
        position = match.end()
        name, index = match["name"], match["index"]
        if name not in type_map:
            if ignore_unknown:
                continue
            raise ValueError(f"Unknown hyperparameter type for {name}")
        value = _parse(match, type_map[name], values)
        if index is None:
            _set_once(result, name, value, values)
        elif isinstance(value, list) or not isinstance(result.setdefault(name, {}), dict):
            raise ValueError(f"Could not assign a list or list element {name}[{index}] in {values}")
        else:
            _set_once(result[name], int(index), value, values)
    return result


def _parse(match, value_type, values):
    texts = match["value"]
    if texts is None:
        texts = [text for text in re.split("[ ,]", match["values"]) if text]
    parse = _parse_bool if value_type is bool else value_type
    try:
        return [parse(text) for text in texts] if isinstance(texts, list) else parse(texts)
    except (ValueError, TypeError):
        raise ValueError(
            f"Could not parse hparam '{match['name']}' of type '{value_type.__name__}' with value "
            f"'{texts}' in {values}"
        ) from None


def _parse_bool(text):
    known = {"true": True, "True": True, "false": False, "False": False}
    return known[text] if text in known else bool(int(text))


def _set_once(result, key, value, values):
    if key in result:
        raise ValueError(f"Multiple assignments to variable '{key}' in {values}")
    result[key] = value


class HParams:
    """Hyperparameters as attributes. The type of the first value is the type of all later ones."""

    def __init__(self, hparam_def=None, model_structure=None, **kwargs):
        if hparam_def is not None:
            raise ValueError("HParams from an HParamDef message is not available with --tf1")
        self._hparam_types = {}
        self._model_structure = model_structure
        for name, value in kwargs.items():
            self.add_hparam(name, value)

    def add_hparam(self, name, value):
        """Adds a hyperparameter.

        Raises:
          ValueError: the name is taken, or the value is an empty list.
        """
        if getattr(self, name, None) is not None:
            raise ValueError(f"Hyperparameter name is reserved: {name}")
        is_list = isinstance(value, (list, tuple))
        if is_list and not value:
            raise ValueError(f"Multi-valued hyperparameters cannot be empty: {name}")
        self._hparam_types[name] = (type(value[0] if is_list else value), is_list)
        setattr(self, name, value)

    def set_hparam(self, name, value):
        """Sets a hyperparameter, converted to its type.

        Raises:
          KeyError: an unknown hyperparameter.
          ValueError: a value of another type.
        """
        value_type, is_list = self._hparam_types[name]
        if isinstance(value, list) != is_list:
            given = (
                "Must not pass a list for single" if not is_list else "Must pass a list for multi"
            )
            raise ValueError(f"{given}-valued parameter: {name}.")
        if is_list:
            value = [_convert(name, value_type, element) for element in value]
        else:
            value = _convert(name, value_type, value)
        setattr(self, name, value)

    def del_hparam(self, name):
        """Removes a hyperparameter, if it exists."""
        if hasattr(self, name):
            delattr(self, name)
            del self._hparam_types[name]

    def parse(self, values):
        """Overrides hyperparameters by a str such as "a=1,b=[2,3]". Returns self."""
        types = {name: value_type for name, (value_type, _) in self._hparam_types.items()}
        return self.override_from_dict(parse_values(values, types))

    def override_from_dict(self, values_dict):
        """Overrides hyperparameters by {name: value}. Returns self."""
        for name, value in values_dict.items():
            self.set_hparam(name, value)
        return self

    def parse_json(self, values_json):
        """Overrides hyperparameters by a JSON object. Returns self."""
        return self.override_from_dict(json.loads(values_json))

    def to_json(self, indent=None, separators=None, sort_keys=False):
        """Returns the hyperparameters as JSON, without functions."""
        values = _without_functions(self.values())
        return json.dumps(values, indent=indent, separators=separators, sort_keys=sort_keys)

    def values(self):
        """Returns {name: value}."""
        return {name: getattr(self, name) for name in self._hparam_types}

    def get(self, key, default=None):
        """Returns a hyperparameter, or `default`, which must have its type."""
        if key not in self._hparam_types:
            return default
        value_type, is_list = self._hparam_types[key]
        if default is not None:
            if isinstance(default, list) != is_list:
                raise ValueError(f"Hparam '{key}' is incompatible with default={default}")
            for element in default if is_list else [default]:
                _convert(key, value_type, element)
        return getattr(self, key)

    def set_model_structure(self, model_structure):
        """Sets an object that HParams only keeps."""
        self._model_structure = model_structure

    def get_model_structure(self):
        """Returns the object of `set_model_structure`."""
        return self._model_structure

    def __contains__(self, key):
        return key in self._hparam_types

    def __str__(self):
        return str(sorted(self.values().items()))

    def __repr__(self):
        return f"{type(self).__name__}({self})"


def _convert(name, value_type, value):
    """Returns a value in the type of a hyperparameter, if nothing is lost."""
    if issubclass(value_type, type(None)):
        return value
    text = (str, bytes)
    is_valid = (
        not (issubclass(value_type, text) and not isinstance(value, text))
        and issubclass(value_type, bool) == isinstance(value, bool)
        and not (
            issubclass(value_type, numbers.Integral) and not isinstance(value, numbers.Integral)
        )
        and not (issubclass(value_type, numbers.Number) and not isinstance(value, numbers.Number))
    )
    if not is_valid:
        raise ValueError(
            f"Could not cast hparam '{name}' of type '{value_type}' from value {value!r}"
        )
    return value_type(value)


def _without_functions(value):
    if callable(value):
        return None
    if isinstance(value, (list, tuple)):
        return [_without_functions(element) for element in value if not callable(element)]
    if isinstance(value, dict):
        return {k: _without_functions(v) for k, v in value.items() if not callable(v)}
    return value
