"""What a data set was prepared with: asked for anything else, prepare_data.py says so."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from typing import Any

import tensorflow as tf

from input_fns.convert.files import read_bytes
from input_fns.convert.source import Options

_FOLDERS = ("source", "vocabulary")
# A CSV file is its content; the name of a data set is compared where it is loaded.
_NOT_COMPARED = ("csv", "name", "workers")
_CONTENT = "content of csv"


def of(options: Options, num_shards: int) -> dict[str, Any]:
    """Returns the options that are not as by default, and what is in a CSV file, fit for JSON."""
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
    if options.csv and tf.io.gfile.exists(options.csv):
        given[_CONTENT] = hashlib.sha256(read_bytes(options.csv)).hexdigest()[:12]
    return given


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Returns a text for each option that is not what it was; a CSV file may be gone by now."""
    names = dict.fromkeys([*before, *now])
    if _CONTENT not in before or _CONTENT not in now:
        names.pop(_CONTENT, None)
    return [
        f"{name} was {before.get(name, 'not given')}, is {now.get(name, 'not given')}"
        for name in names
        if before.get(name) != now.get(name)
    ]
