"""Numbers, booleans and ids of JSON in the types that tools write, such as "7" or 7.0 for 7."""

from __future__ import annotations

import re
from typing import Any, Union

from common.names import is_line, normalized

Identifier = Union[int, str]
_MAX_INT = 2**63 - 1
_DECIMAL = re.compile(r"0|-?[1-9][0-9]{0,17}")
_BOOLEANS = {"false": False, "true": True, "0": False, "1": True}


def identifier(value: Any) -> Identifier | None:
    """Returns an id to compare: 7 for 7, 7.0 and "7", else a line of text; None of other values."""
    if type(value) is int and abs(value) <= _MAX_INT:  # a file has millions
        return value
    if isinstance(value, str):
        text = normalized(value) if is_line(value) else ""
        return int(text) if _DECIMAL.fullmatch(text) else text or None
    whole = integral(value)
    return whole if whole is None or abs(whole) <= _MAX_INT else str(whole)


def number(value: Any) -> float | None:
    """Returns a number or its text as a float, maybe not finite; None for anything else."""
    if type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    if isinstance(value, str) and "_" in value:
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def integral(value: Any) -> int | None:
    """Returns a whole number or its text as an integer; None for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    found = number(value)
    return None if found is None or not found.is_integer() else int(found)


def boolean(value: Any) -> bool | None:
    """Returns a boolean, 0 or 1, or the text of one; None for anything else."""
    if type(value) is bool:
        return value
    return _BOOLEANS.get(str(value).strip().lower().removesuffix(".0"))
