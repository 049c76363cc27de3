"""Ratings of tensorflow-datasets, such as MovieLens. See `convert.tfds`."""

from __future__ import annotations

import numpy as np

from input_fns import DataError
from input_fns.convert.source import RawDataset, numbered
from input_fns.convert.tfds import Reader
from input_fns.tables.sources import ratings
from input_fns.tables.sources.ratings_table import Interactions

_ROLES = {"user": "user_id", "item": "movie_id", "time": "timestamp"}


def _find(features, options):
    del options
    return _ROLES if all(name in features for name in _ROLES.values()) else None


def _read(tables, roles, options) -> RawDataset:
    if list(tables.splits) != ["train"]:
        raise DataError(f"{options.dataset} should have the split train only")
    users, items, times = tables.columns("train", list(roles.values()))
    found = Interactions(
        *(numbered(column, len(column)) for column in (users, items)),
        np.array(times, float),
        *([_text(each) for each in dict.fromkeys(column)] for column in (users, items)),
    )
    return ratings.to_dataset(found, options, options.dataset)


def _text(value):
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


READERS = (
    Reader(
        *("classification", "ratings", f"{', '.join(_ROLES.values())}"),
        *("", _find, _read),
    ),
)
