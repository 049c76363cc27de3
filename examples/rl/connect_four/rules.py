"""The rules of Connect Four on bitboards: NumPy, many games at once.

A player's stones are a uint64. Bit `7 * column + row` is row 0 (the bottom) to 5 of a column; bit 6
of each column stays 0, so that a shifted line of stones does not continue in the next column. A
position is `mine, theirs`, both uint64 `[n]`: the stones of the player to move, and of the other.
"""

from __future__ import annotations

import numpy as np

ROWS, COLUMNS = 6, 7
_HEIGHT = np.uint64(ROWS + 1)
_BOTTOM = np.uint64(1) << np.arange(COLUMNS, dtype=np.uint64) * _HEIGHT  # [columns]
_TOP = _BOTTOM << np.uint64(ROWS - 1)
_COLUMN = _BOTTOM * np.uint64(2**ROWS - 1)  # every row of a column
_ALL = np.bitwise_or.reduce(_COLUMN)
_DIRECTIONS = tuple(map(np.uint64, (1, 7, 6, 8)))  # vertical, horizontal, both diagonals


def start(num_games: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns `num_games` empty boards."""
    return np.zeros(num_games, np.uint64), np.zeros(num_games, np.uint64)


def legal(mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Returns the columns that are not full, bool `[n, columns]`."""
    return ((mine | theirs)[:, np.newaxis] & _TOP) == 0


def play(mine: np.ndarray, theirs: np.ndarray, column: np.ndarray):
    """Drops a stone into a legal column, int `[n]`; returns the position of the other player."""
    stones = mine | theirs
    # The lowest empty bit of the column: adding its bottom bit carries over the stones.
    stone = (stones + _BOTTOM[column]) & _COLUMN[column]
    return theirs, mine | (stone & ~stones)


def has_won(stones: np.ndarray) -> np.ndarray:
    """Returns whether a player's stones have four in a line, bool of the shape of `stones`."""
    won = np.zeros(stones.shape, bool)
    for shift in _DIRECTIONS:
        pairs = stones & (stones >> shift)
        won |= (pairs & (pairs >> (shift + shift))) != 0
    return won


def is_full(mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Returns whether no move is left, bool `[n]`."""
    return (mine | theirs) == _ALL


def planes(mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Returns the network's input, uint8 `[n, rows, columns, 2]`: my stones and theirs."""
    rows = np.arange(ROWS, dtype=np.uint64)[:, np.newaxis]
    bits = rows + np.arange(COLUMNS, dtype=np.uint64) * _HEIGHT  # [rows, columns]
    stones = np.stack([mine, theirs], axis=-1)[:, np.newaxis, np.newaxis, :]
    return ((stones >> bits[..., np.newaxis]) & np.uint64(1)).astype(np.uint8)
