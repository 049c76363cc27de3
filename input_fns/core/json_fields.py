"""Reads the fields of an untrusted JSON file and checks their types and ranges.

`Fields` reads them one by one. A dataclass whose fields are declared with `field` is read with
`parse` and written with `to_value`:

    @dataclasses.dataclass(frozen=True)
    class Clip:
        rate: int = field(integer_in(1, 2**20))
        file: str = field(file_name)
        tags: dict[str, int] = field(named(integer), default_factory=dict)
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Collection
from typing import Any, Callable

from common import names
from input_fns import DataError

MAX_INT = 2**63 - 1
Read = Callable[[Any, str], Any]  # (value, path in the file) -> checked value
_MAX_DIGITS = 20  # Python's conversion of integers takes quadratic time


class Fields:
    """An object of a JSON file. Each method returns a field or raises a `DataError` naming it.

    A `read` function of this module, such as `line`, checks the value.
    """

    def __init__(self, value: Any, where: str):
        """Checks that `value` is an object; `where` is its path in the file."""
        self._where = where
        self._values = mapping(value, where)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def integer(self, name: str, low: int = 0, high: int = MAX_INT) -> int:
        """Returns an integer in [low, high]."""
        return integer(self._get(name), self._path(name), low, high)

    def items(self, name: str, read: Read) -> tuple:
        """Returns `read(value, where)` of each value of a list."""
        return items(self._get(name), self._path(name), read)

    def required(self, name: str, read: Read) -> Any:
        """Returns `read(value, where)`."""
        return read(self._get(name), self._path(name))

    def optional(self, name: str, read: Read) -> Any:
        """Returns `read(value, where)`; None if the field is missing or null."""
        value = self._values.get(name)
        return None if value is None else read(value, self._path(name))

    def _get(self, name):
        if name not in self._values:
            raise DataError(f"{self._path(name)} is missing")
        return self._values[name]

    def _path(self, name):
        return f"{self._where}.{name}" if self._where else name


def field(read: Read, optional: bool = False, omitted: bool = False, **options: Any) -> Any:
    """Returns a field of a dataclass that a JSON file has.

    Args:
      read: reads and checks its value.
      optional: the file may lack it; it then has its default.
      omitted: optional, and not written if it has its default.
      **options: of `dataclasses.field`.
    """
    metadata = {"read": read, "optional": optional or omitted, "omitted": omitted}
    return dataclasses.field(metadata=metadata, **options)


def parse(cls: type, value: Any, where: str) -> Any:
    """Returns a `cls` from an object of a JSON file, after its `validate(where)` if it has one.

    Raises:
      DataError: a field is missing or invalid; the message names it.
    """
    fields = Fields(value, where)
    found = {
        each.name: fields.required(each.name, each.metadata["read"])
        for each in dataclasses.fields(cls)
        if each.metadata and (each.name in fields or not each.metadata["optional"])
    }
    parsed = cls(**found)
    if hasattr(parsed, "validate"):
        parsed.validate(where)
    return parsed


def to_value(parsed: Any) -> dict[str, Any]:
    """Returns the object of a JSON file from which `parse` reads `parsed`."""
    return {
        each.name: _to_json(getattr(parsed, each.name))
        for each in dataclasses.fields(parsed)
        if each.metadata
        and not (each.metadata["omitted"] and getattr(parsed, each.name) == each.default)
    }


def _to_json(value):
    if dataclasses.is_dataclass(value):
        return to_value(value)
    if isinstance(value, dict):
        return {name: _to_json(each) for name, each in value.items()}
    return list(map(_to_json, value)) if isinstance(value, (list, tuple)) else value


def nested(cls: type) -> Read:
    """Returns a function that reads a `cls`; see `parse`."""
    return functools.partial(parse, cls)


def integer_in(low: int, high: int = MAX_INT) -> Read:
    """Returns a function that reads an integer in [low, high]."""
    return functools.partial(integer, low=low, high=high)


def one_of(valid: Collection[str]) -> Read:
    """Returns a function that reads one of the strings `valid`."""

    def read(value, where):
        is_valid = isinstance(value, str) and value in valid
        return _check(value, where, is_valid, f"one of {', '.join(valid)}")

    return read


def array(read: Read) -> Read:
    """Returns a function that reads a list of values that `read` reads, as a tuple."""
    return functools.partial(items, read=read)


def named(read: Read, separator: str | None = None) -> Read:
    """Returns a function that reads an object of values that `read` reads.

    Its keys are plain names, or plain names that `separator` joins.
    """

    def read_all(value, where):
        values = mapping(value, where)
        for key in values:
            parts = key.split(separator) if separator else [key]
            is_valid = all(map(names.is_plain_name, parts))
            _check(key, f"a key of {where}", is_valid, "a plain name")
        return {key: read(value, f"{where}.{key}") for key, value in values.items()}

    return read_all


def line(value: Any, where: str) -> str:
    """Returns `value`, one line of text."""
    return _check(value, where, names.is_line(value), "a line of text")


def file_name(value: Any, where: str) -> str:
    """Returns `value`, a file name without a folder."""
    return _check(value, where, names.is_plain_name(value), "a plain file name")


def file_name_or_empty(value: Any, where: str) -> str:
    """Returns `value`, a file name without a folder, or ""."""
    return file_name(value, where) if line(value, where) else ""


def boolean(value: Any, where: str) -> bool:
    """Returns `value`, true or false."""
    return _check(value, where, isinstance(value, bool), "true or false")


def integer(value: Any, where: str, low: int = 0, high: int = MAX_INT) -> int:
    """Returns `value`, an integer in [low, high]."""
    is_valid = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    limit = f"from {low} to {high}" if high < MAX_INT else f"of at least {low}"
    return _check(value, where, is_valid, f"an integer {limit}")


def utf8_text(value: Any, where: str) -> str:
    """Returns `value`, text of any characters that UTF-8 can store."""
    try:
        if isinstance(value, str):
            value.encode()
            return value
    except UnicodeEncodeError as error:
        raise DataError(f"{where} has a lone surrogate, which no UTF-8 text has") from error
    raise DataError(f"{where} must be text")


def strings(value: Any, where: str) -> tuple[str, ...]:
    """Returns `value`, a list of strings."""
    return items(value, where, lambda v, path: _check(v, path, isinstance(v, str), "a string"))


def mapping(value: Any, where: str) -> dict[str, Any]:
    """Returns `value`, an object."""
    return _check(value, where, isinstance(value, dict), "an object")


def loads(
    content: str, is_strict: bool = True, change: Callable[[dict], dict] | None = None
) -> Any:
    """Returns the value of a JSON text.

    Args:
      content: the text.
      is_strict: whether NaN, Infinity and numbers that are too large are errors instead of floats.
      change: applied to each object, innermost first; it may drop fields to save memory.

    Raises:
      DataError: it is not JSON, is nested too deep, has NaN, or repeats a key.
    """

    def to_object(pairs):
        value = _object(pairs)
        return change(value) if change else value

    try:
        return json.loads(
            content,
            object_pairs_hook=to_object,
            parse_int=_parse_int,
            parse_float=_parse_float if is_strict else float,
            parse_constant=_refuse_constant if is_strict else float,
        )
    except RecursionError as error:
        raise DataError("it is nested too deep") from error
    except json.JSONDecodeError as error:
        raise DataError(f"it is not JSON: {error}") from error


def _object(pairs):
    value = dict(pairs)
    if len(value) < len(pairs):
        twice = names.repeated(key for key, _ in pairs)
        raise DataError(f"the key {_shown(twice[0])} is repeated")
    return value


def _parse_int(digits):
    if len(digits) > _MAX_DIGITS:
        raise DataError(f"the number {digits[:_MAX_DIGITS]}... is too large")
    return int(digits)


def _parse_float(digits):
    value = float(digits)
    if not math.isfinite(value):
        raise DataError(f"the number {digits[:_MAX_DIGITS]}... is too large")
    return value


def _refuse_constant(name):
    raise DataError(f"{name} is not a number")


def items(values: Any, where: str, read: Read) -> tuple:
    """Returns `read(value, where)` of each value of a list."""
    _check(values, where, isinstance(values, list), "a list")
    return tuple(read(value, f"{where}[{i}]") for i, value in enumerate(values))


def _check(value, where, is_valid, wanted):
    if not is_valid:
        raise DataError(f"{where or 'the whole'} is {_shown(value)}, and must be {wanted}")
    return value


def _shown(value):
    """Returns a value as JSON, shortened to fit in a one-line error."""
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
