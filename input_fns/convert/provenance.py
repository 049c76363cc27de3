"""The options that a data set was prepared with, to detect a run with other ones."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from typing import Any

from common import folders
from input_fns.convert.files import read_bytes
from input_fns.convert.options import Options

_FOLDERS = ("source", "vocabulary")
# The content of a CSV file is compared, not its path; the name when the data set is loaded.
_NOT_COMPARED = ("csv", "name")
_CONTENT = "content of csv"


def from_options(options: Options, num_shards: int) -> dict[str, Any]:
    """Returns the options that differ from their defaults and a hash of the CSV file, for JSON."""
    given = {}
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if field.name in _NOT_COMPARED or value == field.default:
            continue
        if field.name in _FOLDERS:
            value = value.rstrip("/") if "://" in value else os.path.abspath(value)
        given[field.name] = list(value) if isinstance(value, tuple) else value
    if num_shards:
        given["shards"] = num_shards
    if options.csv and folders.exists(options.csv):
        given[_CONTENT] = hashlib.sha256(read_bytes(options.csv)).hexdigest()[:12]
    return given


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Returns one text per option that changed; a CSV file may have been removed."""
    names = dict.fromkeys([*before, *now])
    if _CONTENT not in before or _CONTENT not in now:
        names.pop(_CONTENT, None)
    return [
        f"{name} was {before.get(name, 'not given')}, is {now.get(name, 'not given')}"
        for name in names
        if before.get(name) != now.get(name)
    ]
