"""Rows of tables in JSON: an object on each line, or a list of objects."""

from __future__ import annotations

import json
from collections.abc import Sequence

from common.names import normalized, repeated
from input_fns import DataError
from input_fns.convert.delimited import require_values
from input_fns.convert.files import read_text
from input_fns.core import json_fields

_MAX_SHOWN = 60  # characters of a key in an error


def read(
    path: str, encoding: str | None
) -> tuple[tuple[str, ...], list[Sequence[str | None]], list[int], str]:
    """Returns the names of the columns, the rows, their numbers and what these count.

    Raises:
      DataError: the file is missing or not JSON, or an item is not an object.
    """
    text = read_text(path, encoding)
    unit, found = "line", []
    if text.lstrip().startswith("["):
        unit, found = "item", list(enumerate(_loads(text, path), start=1))
    else:
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                found.append((number, _loads(line, f"{path}, line {number}")))
    if len(found) == 1 and isinstance(found[0][1], dict):
        _check_one_row(found[0][1], path)
    for number, item in found:
        _check_object(item, f"{path}, {unit} {number}")
    columns: dict[str, str] = {}  # {key: name}
    for _, item in found:
        columns.update((key, normalized(key)) for key in item if key not in columns)
    twice = repeated(columns.values())
    if twice:
        raise DataError(f"{path} has more than one key '{twice[0]}'")
    require_values(path, len(found), len(columns), sum(len(item) for _, item in found))
    rows = [[_text(item.get(key)) for key in columns] for _, item in found]
    return tuple(columns.values()), rows, [number for number, _ in found], unit


def _loads(text, where):
    try:
        return json_fields.loads(text)
    except DataError as error:
        raise DataError(
            f"{where}: {error}. Write a list of objects, or one object per line"
        ) from error


def _check_one_row(item, path):
    """Checks that the only object is a row, and not columns or a list under a key."""
    if item and all(isinstance(value, (dict, list)) for value in item.values()):
        raise DataError(
            f"{path} is one object with {', '.join(list(item)[:10])}, each of many values. Write "
            "a list of objects, such as by to_json(orient='records') of pandas, or one "
            "object per line"
        )


def _check_object(item, where):
    if not isinstance(item, dict):
        raise DataError(f"{where}: a JSON {type(item).__name__} instead of an object")
    for name, value in item.items():
        for text in (name, _text(value)) if isinstance(value, (str, list, dict)) else (name,):
            json_fields.utf8_text(text, f"{where}: {name[:_MAX_SHOWN]!a}")


def _text(value):
    """Returns a JSON value as text, lists and objects as JSON; None for null."""
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, (bool, int, float)):
        return str(value).lower() if isinstance(value, bool) else str(value)
    return value if isinstance(value, str) else None
