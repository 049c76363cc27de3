"""Interactions of users and items, such as ratings: MovieLens files, or CSV.

    u.data        user, item, rating, time, separated by tabs (MovieLens 100K)
    ratings.dat   the same, separated by "::" (MovieLens 1M, 10M)
    ratings.csv   with a header line: user or userId, item or movieId, rating, time or timestamp

SOURCE is such a file, or a folder with one of them; also .gz or .xz. Every row is an interaction,
whatever its rating. Ids are any text, times any numbers.

Leave-one-out split: the last interaction of a user is in "test", the one before it in
"validation", the others in "train". Interactions at the same time are in the order of the file. Of
several interactions of one user and item, the last one counts. Users with fewer than 3 items have
all of them in "train". With --validation_fraction=0 there is no split "validation", and its
interactions stay in "train", as in the paper of NeuMF.
"""

from __future__ import annotations

import array
import csv
import dataclasses
import math
import os
from collections.abc import Iterator, Sequence

import numpy as np

from common import folders, names
from input_fns import DataError
from input_fns.convert.files import PACKED, iterate_lines, split_packed
from input_fns.convert.source import Options, RawDataset, Row
from input_fns.convert.writer import content_name
from input_fns.dataset_info import Feature, Ratings

# Negatives of each evaluation row (He et al. 2017, arXiv:1708.05031).
NUM_NEGATIVES = 99
_MIN_ITEMS = 3  # of a user with evaluation rows
_FILES = ("u.data", "ratings.dat", "ratings.csv")
_SEPARATORS = {".data": "\t", ".tsv": "\t", ".dat": "::", ".csv": ","}
_COLUMNS = {
    "user": ("user", "userId", "user_id"),
    "item": ("item", "movieId", "item_id"),
    "rating": ("rating",),
    "time": ("time", "timestamp"),
}
_FEATURES = {"user": Feature("raw", "int32", ()), "item": Feature("raw", "int32", ())}
_DUPLICATES = "earlier interactions of the same user and item"


@dataclasses.dataclass(frozen=True)
class RawRatings:
    """Interactions of one split: int32 `[size]`, indices of users and items."""

    users: np.ndarray
    items: np.ndarray
    labels: None = None
    groups: None = None

    @property
    def num_bytes(self) -> int:
        """Bytes of the indices."""
        return self.users.nbytes + self.items.nbytes

    def __len__(self) -> int:
        return len(self.users)

    def __iter__(self) -> Iterator[Row]:
        for user, item in zip(self.users.astype("<i4"), self.items.astype("<i4")):
            yield Row({"user": user.tobytes(), "item": item.tobytes()}, _FEATURES)

    def take(self, indices: Sequence[int]) -> RawRatings:
        """Returns the split of these interactions, in the order of the indices."""
        return RawRatings(self.users[indices], self.items[indices])


@dataclasses.dataclass(frozen=True)
class Interactions:
    """Rows of a file: int64 indices by first appearance, float64 times, all `[size]`; the ids."""

    users: np.ndarray
    items: np.ndarray
    times: np.ndarray
    user_ids: list[str]
    item_ids: list[str]


def read(options: Options) -> RawDataset:
    """Returns the leave-one-out splits, with the ids, popularities and negatives as files.

    Raises:
      DataError: there is no such file, a row is invalid, or no user has 3 items.
    """
    path = _find(options.source)
    found = read_file(path)
    users, items, num_duplicates = _unique_in_order(found)
    held_out = dict(zip(("test", "validation"), _leave_one_out(users)))
    if options.validation_fraction == 0:
        del held_out["validation"]
    if not held_out["test"].any():
        raise DataError(f"{path}: no user has {_MIN_ITEMS} items, which the splits need")
    train = ~np.logical_or.reduce(list(held_out.values()))
    # Items by decreasing popularity: an index is a rank, and the first items the most popular.
    popularity = np.bincount(items[train], minlength=len(found.item_ids))
    order = np.argsort(-popularity, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    items = rank[items]
    splits = {
        name: RawRatings(users[rows].astype(np.int32), items[rows].astype(np.int32))
        for name, rows in {"train": train, **held_out}.items()
    }
    files = {}

    def add(name, content):
        name = content_name(name, content)
        files[name] = content
        return name

    negatives = {
        name: add(
            f"negatives-{name}.bin",
            draw_negatives(
                users, items, len(order), splits[name].users, (options.seed, stream)
            ).tobytes(),
        )
        for stream, name in enumerate(held_out)
    }
    lines = (f"{found.item_ids[i]}\t{popularity[i]}\n" for i in order)
    ratings = Ratings(
        num_users=len(found.user_ids),
        num_items=len(order),
        num_negatives=NUM_NEGATIVES,
        users=add("users.txt", "".join(f"{name}\n" for name in found.user_ids).encode()),
        items=add("items.txt", "".join(lines).encode()),
        negatives=negatives,
        left_out={_DUPLICATES: num_duplicates} if num_duplicates else {},
    )
    return RawDataset(options.dataset, (), splits, files=files, ratings=ratings)


def read_file(path: str) -> Interactions:
    """Returns the interactions of a file, in its order.

    Raises:
      DataError: a row is invalid; the message has the first such line and their number.
    """
    separator = _SEPARATORS[os.path.splitext(split_packed(path)[0])[1]]
    user_of: dict[str, int] = {}
    item_of: dict[str, int] = {}
    users, items, times = array.array("q"), array.array("q"), array.array("d")
    problem, num_problems = "", 0
    for line, user, item, rating, time in _rows(path, separator):
        reason = line[1] or _find_problem(user, item, rating, time)
        if reason:
            problem = problem or f"{path}, line {line[0]}: {reason}"
            num_problems += 1
            continue
        users.append(user_of.setdefault(user, len(user_of)))
        items.append(item_of.setdefault(item, len(item_of)))
        times.append(float(time))
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


def draw_negatives(
    users: np.ndarray, items: np.ndarray, num_items: int, rows: np.ndarray, seed
) -> np.ndarray:
    """Returns random items that the user of each row has no interaction with.

    Args:
      users: int64 `[interactions]`, of all splits.
      items: the same.
      num_items: number of items.
      rows: `[size]`, the users to draw for.
      seed: seed of `np.random.default_rng`.

    Returns:
      int32 `[size, NUM_NEGATIVES]`, without repetition in a row; -1 at the end of the row of a user
      with fewer items left.
    """
    random = np.random.default_rng(seed)
    order = np.lexsort((items, users))
    users, items = users[order], items[order]
    begins, ends = (np.searchsorted(users, rows, side=side) for side in ("left", "right"))
    found = np.full([len(rows), NUM_NEGATIVES], -1, "<i4")
    for row, begin, end in zip(found, begins, ends):
        positives = items[begin:end]
        num_left = num_items - len(positives)
        numbers = random.choice(num_left, min(NUM_NEGATIVES, num_left), replace=False)
        # Number n is the n-th item that is not a positive.
        skipped = np.searchsorted(positives - np.arange(len(positives)), numbers, side="right")
        row[: len(numbers)] = numbers + skipped
    return found


def _find(source):
    """Returns the path of the file of interactions."""
    if not folders.is_folder(source):
        if os.path.splitext(split_packed(source)[0])[1] not in _SEPARATORS:
            raise DataError(
                f"--source={source} must be a folder, or a file that ends in "
                f"{', '.join(_SEPARATORS)}, plain or with {' or '.join(PACKED)}"
            )
        return source
    found = [name for name in sorted(folders.names(source)) if split_packed(name)[0] in _FILES]
    if len(found) != 1:
        what = f"has {', '.join(found)}: name one of them" if found else "has no file such as"
        raise DataError(f"--source={source} {what}{'' if found else ' ' + ', '.join(_FILES)}")
    return os.path.join(source, found[0])


def _rows(path, separator):
    """Yields `((line, problem or ""), user, item, rating, time)`."""
    lines = iterate_lines(path)
    if separator != ",":
        for number, line in enumerate(lines, start=1):
            values = line.split(separator)
            if len(values) == 4:
                yield (number, ""), *values
            elif line:
                yield _wrong_width(number, values, 4)
        return
    reader = csv.reader(lines, strict=True)
    try:
        header = next(reader, [])
        places = [_place(path, header, column) for column in _COLUMNS]
        for values in reader:
            if len(values) == len(header):
                chosen = ("0" if place is None else values[place] for place in places)
                yield (reader.line_num, ""), *chosen
            elif values:
                yield _wrong_width(reader.line_num, values, len(header))
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: no CSV ({error})") from error


def _wrong_width(number, values, width):
    return (number, f"{len(values)} value{'s' * (len(values) > 1)} instead of {width}"), *4 * ("",)


def _place(path, header, column):
    """Returns the place of a column in the header line; None if there are no ratings."""
    places = [header.index(name) for name in _COLUMNS[column] if name in header]
    if len(places) == 1 and len(set(header)) == len(header):
        return places[0]
    if column == "rating" and not places:
        return None
    raise DataError(
        f"{path}, line 1: the header must have one column {' or '.join(_COLUMNS[column])}; it has "
        f"{', '.join(map(names.shown, header)) or 'none'}"
    )


def _find_problem(user, item, rating, time):
    """Returns what is wrong with the values of a row, or None."""
    for what, value in (("user", user), ("item", item)):
        if not value or not names.is_line(value):
            return f"{names.shown(value)!a} is not a valid {what} id"
    for what, value in (("rating", rating), ("time", time)):
        try:
            is_number = math.isfinite(float(value))
        except ValueError:
            is_number = False
        if not is_number:
            return f"the {what} {names.shown(value)!a} is not a number"
    return None


def _unique_in_order(found):
    """Returns users and items by user and time, without duplicates, and the number of these."""
    # Stable: interactions at the same time stay in the order of the file.
    order = np.lexsort((found.times, found.users))
    users, items = found.users[order], found.items[order]
    pairs = users * len(found.item_ids) + items
    _, last = np.unique(pairs[::-1], return_index=True)
    kept = np.sort(len(pairs) - 1 - last)
    return users[kept], items[kept], len(pairs) - len(kept)


def _leave_one_out(users):
    """Returns bool `[size]` for test and validation; `users` are sorted."""
    is_last = np.append(users[1:] != users[:-1], True)
    has_rows = np.bincount(users)[users] >= _MIN_ITEMS
    test = is_last & has_rows
    return test, np.append(test[1:], False)
