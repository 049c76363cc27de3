"""Interactions of users and items, such as ratings: MovieLens files, or CSV.

    u.data        user, item, rating, time, separated by tabs (MovieLens 100K)
    ratings.dat   the same, separated by "::" (MovieLens 1M, 10M)
    ratings.csv   with a header line

SOURCE is such a file, another .data, .tsv, .dat or .csv, or a folder with one of them; also .gz or
.xz. Columns are found by their names, or flags name them; see `ratings_table`. Every row is an
interaction, whatever its rating. Ids are any text, times any numbers or dates.

Leave-one-out split: the last interaction of a user is in "test", the one before it in
"validation", the others in "train". Interactions at the same time are in the order of the file. Of
several interactions of one user and item, the last one counts. Users with fewer than 3 items have
all of them in "train". With --validation_fraction=0 there is no split "validation", and its
interactions stay in "train", as in the paper of NeuMF.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from input_fns import DataError
from input_fns.convert.options import Options
from input_fns.convert.source import RawDataset, RawSplit, Row, content_name
from input_fns.dataset_info import Feature
from input_fns.tables.ratings_kind import EVALUATION_NEGATIVES, Ratings
from input_fns.tables.sources import ratings_table
from input_fns.tables.sources.ratings_table import Interactions

_MIN_ITEMS = 3  # of a user with evaluation rows
_FEATURES = {"user": Feature("raw", "int32", ()), "item": Feature("raw", "int32", ())}
_DUPLICATES = "earlier interactions of the same user and item"


@dataclasses.dataclass(frozen=True)
class RawRatings(RawSplit):
    """Interactions of one split: int32 `[size]`, indices of users and items."""

    KEYS = ("users", "items")

    users: np.ndarray
    items: np.ndarray

    def read(self, i: int) -> Row:
        """Returns the row of an interaction."""
        user, item = (values[i].astype("<i4").tobytes() for values in (self.users, self.items))
        return Row({"user": user, "item": item}, _FEATURES)


def read(options: Options) -> RawDataset:
    """Returns the leave-one-out splits, with the ids, popularities and negatives as files.

    Raises:
      DataError: there is no such file, a row is invalid, or no user has 3 items.
    """
    path = ratings_table.find_file(options)
    return to_dataset(ratings_table.read(path, options), options, path)


def to_dataset(found: Interactions, options: Options, where: str) -> RawDataset:
    """Returns the data set of interactions; `where` they are from, for errors. See `read`."""
    users, items, num_duplicates = _unique_in_order(found)
    held_out = dict(zip(("test", "validation"), _leave_one_out(users)))
    if options.validation_fraction == 0:
        del held_out["validation"]
    if not held_out["test"].any():
        raise DataError(f"{where}: no user has {_MIN_ITEMS} items, which the splits need")
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
        num_negatives=EVALUATION_NEGATIVES,
        users=add("users.txt", "".join(f"{name}\n" for name in found.user_ids).encode()),
        items=add("items.txt", "".join(lines).encode()),
        negatives=negatives,
        left_out={_DUPLICATES: num_duplicates} if num_duplicates else {},
    )
    return RawDataset(options.dataset, (), splits, files=files, kind=ratings)


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
      int32 `[size, EVALUATION_NEGATIVES]`, without repetition in a row; -1 at the end of the row of
      a user with fewer items left.
    """
    random = np.random.default_rng(seed)
    order = np.lexsort((items, users))
    users, items = users[order], items[order]
    begins, ends = (np.searchsorted(users, rows, side=side) for side in ("left", "right"))
    found = np.full([len(rows), EVALUATION_NEGATIVES], -1, "<i4")
    for row, begin, end in zip(found, begins, ends):
        positives = items[begin:end]
        num_left = num_items - len(positives)
        numbers = random.choice(num_left, min(EVALUATION_NEGATIVES, num_left), replace=False)
        # Number n is the n-th item that is not a positive.
        skipped = np.searchsorted(positives - np.arange(len(positives)), numbers, side="right")
        row[: len(numbers)] = numbers + skipped
    return found


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
