"""Reads interactions of users and items from a file, line by line."""

from __future__ import annotations

import array
import dataclasses
import datetime
import itertools
import math
import os
import re
from collections.abc import Sequence

import numpy as np

from common import folders, names
from common.names import normalized, shown
from input_fns import DataError
from input_fns.convert import columns, delimited, inventory
from input_fns.convert.files import PACKED, note, split_packed
from input_fns.convert.options import Options
from input_fns.convert.tables import listed

_FILES = ("u.data", "ratings.dat", "ratings.csv")
_LIKELY = re.compile("rating|interaction|review", re.IGNORECASE)
_DELIMITERS = {".data": "\t", ".tsv": "\t", ".dat": "::", ".csv": ","}
_ITEMS = (
    *("item", "movie", "product", "book", "asin", "isbn", "parentasin", "business", "artist"),
    *("track", "song", "game", "app", "anime", "article", "news", "video", "recipe", "beer"),
)
# Usual names of the columns; see `columns.find`.
_USUAL = {
    "user": [f"{n}{i}" for n in ("user", "reviewer", "customer", "visitor") for i in ("", "id")],
    "item": [f"{name}{i}" for name in _ITEMS for i in ("", "id")],
    "rating": ["rating", "overall", "score", "stars", "bookrating"],
    "time": ["timestamp", "time", "unixreviewtime", "unixtime", "ts", "datetime", "date"],
}
_LAYOUT = tuple(_USUAL)  # of MovieLens and Amazon
_AMAZON_USER = re.compile(r"A[0-9A-Z]{5,}")
_EARLIEST = 10**8  # seconds since 1970: a smaller number may be another value
_LARGEST_RATING = 100
# Of files without a header line.
_MOVIELENS = (".data", ".dat", ".tsv")
_SAMPLE = 1000  # rows


@dataclasses.dataclass(frozen=True)
class Interactions:
    """Rows of a file: int64 indices by first appearance, float64 times, all `[size]`; the ids."""

    users: np.ndarray
    items: np.ndarray
    times: np.ndarray
    user_ids: list[str]
    item_ids: list[str]


def find_file(options: Options) -> str:
    """Returns the path of the file of interactions of --source.

    Raises:
      DataError: there is none, or there are several.
    """
    source = options.source
    kinds = f"{', '.join(_DELIMITERS)}, plain or with {' or '.join(PACKED)}"
    if not folders.is_folder(source):
        if not options.delimiter and _extension(source) not in _DELIMITERS:
            raise DataError(
                f"--source={source} must be a folder, or a file that ends in {kinds}; for another "
                "table set --delimiter"
            )
        return source
    found = [
        name
        for name in inventory.names(source, options)
        if _extension(name) in _DELIMITERS and folders.is_file(os.path.join(source, name))
    ]
    usual = [name for name in found if split_packed(name)[0].lower() in _FILES]
    chosen = usual or found
    if not chosen:
        hint = inventory.hint_of_folder(options, lambda path: _extension(path) in _DELIMITERS)
        raise DataError(
            f"--source={source} has no file such as {', '.join(_FILES)}, or another that ends in "
            f"{kinds}{hint}"
        )
    if len(chosen) > 1:
        example = next(filter(_LIKELY.search, chosen), chosen[0])
        raise DataError(
            f"--source={source} has {', '.join(chosen[:10])}: name one of them, such as "
            f"--source={os.path.join(source, example)}"
        )
    return os.path.join(source, chosen[0])


def _extension(path):
    return os.path.splitext(split_packed(path)[0])[1].lower()


def read(path: str, options: Options) -> Interactions:
    """Returns the interactions of a file, in its order.

    Args:
      path: local or gs://.
      options: `columns`, `delimiter`, `encoding` and the names of the columns are used.

    Raises:
      DataError: a column is missing, or a row is invalid; the message has the first such line and
        their number.
    """
    default = _DELIMITERS.get(_extension(path), "")
    rows = delimited.iterate(
        path, options.delimiter, default, bool(options.columns), options.encoding
    )
    start = list(itertools.islice(rows, _SAMPLE))
    header, has_header = _header(path, start, options)
    places = _places(path, header, options)
    if places["time"] is None:
        note(f"{path}: without a column of times, interactions are in the order of the file")
    parse_time = _time_parser(start[has_header:], places["time"], len(header))
    user_of: dict[str, int] = {}
    item_of: dict[str, int] = {}
    users, items, times = array.array("q"), array.array("q"), array.array("d")
    problem, num_problems = "", 0
    for number, values in itertools.chain(start[has_header:], rows):
        try:
            user, item, time = _parse(values, len(header), places, parse_time)
        except ValueError as error:
            problem = problem or f"{path}, line {number}: {error}"
            num_problems += 1
            continue
        users.append(user_of.setdefault(user, len(user_of)))
        items.append(item_of.setdefault(item, len(item_of)))
        times.append(time)
    if problem:
        more = f" ({num_problems} such lines)" if num_problems > 1 else ""
        raise DataError(f"{problem}{more}. Correct or remove them")
    if not users:
        raise DataError(f"{path} has no interactions")
    return Interactions(
        np.frombuffer(users, np.int64),
        np.frombuffer(items, np.int64),
        np.frombuffer(times, np.float64),
        list(user_of),
        list(item_of),
    )


def _header(path, start, options):
    """Returns the names of the columns, and whether they are the first line."""
    if options.columns:
        return [normalized(name) for name in options.columns], False
    if not start:
        raise DataError(f"{path} has no interactions")
    first = [normalized(value) for value in start[0][1]]
    twice = names.repeated(filter(None, first))
    found = [_find(path, first, name, options) for name in ("user", "item")]
    if all(found) or any(getattr(options, f"{name}_column") for name in _LAYOUT):
        if twice:
            raise DataError(f"{path}, line 1: more than one column '{shown(twice[0])}'")
        return first, True
    rows = [values for _, values in start]
    is_named = all(math.isnan(_number(value)) for value in first)
    if _extension(path) in _MOVIELENS and not is_named and any(map(_is_interaction, rows)):
        return _LAYOUT, False
    layout = _layout(rows)
    if layout:
        note(f"{path} has no header line: its columns are read as {', '.join(layout)}")
        return layout, False
    raise DataError(
        f"{path}, line 1: the header must have a column of users and one of items, such as "
        f"user_id and item_id; it has {shown(listed(first))}. Name them with --user_column and "
        "--item_column or, if there is no header line, name all columns, such as "
        f"--columns={','.join(_LAYOUT)}"
    )


def _find(path, header, name, options):
    flag = f"{name}_column"
    return columns.find(path, header, _USUAL[name], flag, getattr(options, flag))


def _is_interaction(values, earliest=-math.inf):
    """Whether a row may be user, item, rating and time."""
    if len(values) != len(_LAYOUT):
        return False
    return abs(_number(values[2])) <= _LARGEST_RATING and _number(values[3]) >= earliest


def _layout(rows: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Returns the columns of a file of Amazon or MovieLens without a header, () for another."""
    if not all(_is_interaction(values, _EARLIEST) for values in rows):
        return ()
    is_user = [all(_AMAZON_USER.fullmatch(values[place]) for values in rows) for place in range(2)]
    # The ratings of 2018 have the item first; a user's id begins with A, that of an item does not.
    return ("item", "user", "rating", "time") if is_user == [False, True] else _LAYOUT


def _places(path, header, options):
    """Returns the place of each column, None for times or ratings that are not there."""
    header, places = list(header), {}
    for name in _LAYOUT:
        flag = f"{name}_column"
        if name in ("user", "item"):
            given = getattr(options, flag)
            column = columns.require(path, header, _USUAL[name], flag, given)
        elif name == "rating" and not options.rating_column:  # checked, but not used
            column = next((c for c in header if c.lower() in _USUAL[name]), None)
        else:
            column = _find(path, header, name, options)
        places[name] = None if column is None else header.index(column)
    return places


def _time_parser(rows, place, width):
    """Returns the function of the text of a time: all are numbers, or all are ISO 8601."""
    has_time = (v for _, v in rows if place is not None and len(v) == width and v[place])
    value = next((v[place] for v in has_time), "")
    return _parse_date if value and math.isnan(_number(value)) else _parse_number


def _parse_number(text):
    value = _number(text)
    if not math.isfinite(value):
        raise ValueError(f"the time {shown(text)!a} is not a number")
    return value


def _parse_date(text):
    """Returns the seconds since 1970 of a date such as 2005-04-02 23:53:47, UTC by default."""
    try:
        found = datetime.datetime.fromisoformat(text.removesuffix("Z"))
    except ValueError as error:
        raise ValueError(
            f"the time {shown(text)!a} is neither a number nor a date such as 2005-04-02 23:53:47"
        ) from error
    return (found if found.tzinfo else found.replace(tzinfo=datetime.timezone.utc)).timestamp()


def _number(text):
    """Returns a number, NaN for other text."""
    try:
        return math.nan if "_" in text else float(text)
    except ValueError:
        return math.nan


def _parse(values, width, places, parse_time):
    """Returns user, item and time of a row.

    Raises:
      ValueError: a value is invalid.
    """
    if len(values) != width and (len(values) < width or any(values[width:])):
        raise ValueError(f"{len(values)} value{'s' * (len(values) > 1)} instead of {width}")
    user, item = values[places["user"]], values[places["item"]]
    for what, value in (("user", user), ("item", item)):
        if not value or not names.is_line(value):
            raise ValueError(f"{shown(value)!a} is not a valid {what} id")
    if places["rating"] is not None and not math.isfinite(_number(values[places["rating"]])):
        raise ValueError(f"the rating {shown(values[places['rating']])!a} is not a number")
    return user, item, 0.0 if places["time"] is None else parse_time(values[places["time"]])
