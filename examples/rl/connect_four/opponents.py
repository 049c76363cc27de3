"""Opponents of an evaluation: random moves, and minimax of depth 2."""

from __future__ import annotations

import numpy as np

from examples.rl.connect_four import rules

_WIN = 10_000.0
_SCORES = np.array([0, 1, 10, 50, 0], np.float32)  # of 0 to 4 stones in a line without others


def random_player(random: np.random.Generator):
    """Returns a player that chooses any legal column with equal probability."""

    def choose(mine, theirs):
        return _argmax(rules.legal(mine, theirs), random)

    return choose


def minimax_player(random: np.random.Generator, depth: int = 2):
    """Returns a player that searches `depth` moves and then counts the open lines.

    It chooses at random between equal moves.
    """

    def choose(mine, theirs):
        return _argmax(_scores(mine, theirs, depth), random)

    return choose


def _argmax(scores, random):
    """Returns one of the columns with the highest score, int `[n]`."""
    is_best = scores == scores.max(axis=1, keepdims=True)
    return (is_best * (1 + random.random(scores.shape))).argmax(axis=1)


def _scores(mine, theirs, depth):
    """Returns the minimax score of each column for the player to move; -inf if it is full."""
    scores = np.full([len(mine), rules.COLUMNS], -np.inf)
    game, column = np.nonzero(rules.legal(mine, theirs))
    mine, theirs = rules.play(mine[game], theirs[game], column)
    value = np.where(rules.has_won(theirs), _WIN * depth, 0)  # sooner is better
    is_open = ~rules.has_won(theirs) & ~rules.is_full(mine, theirs)
    if depth > 1:
        value[is_open] = -_scores(mine[is_open], theirs[is_open], depth - 1).max(axis=1)
    else:
        value[is_open] = _open_lines(theirs[is_open], mine[is_open])
    scores[game, column] = value
    return scores


def _open_lines(mine, theirs):
    """Returns the score of my lines of four without stones of the other, less theirs."""
    planes = rules.planes(mine, theirs).astype(np.int8)
    score = np.zeros(len(mine), np.float32)
    for line in _lines(planes):
        counts = line.sum(axis=1)  # [n, 2]
        score += np.where(counts[:, 1] == 0, _SCORES[counts[:, 0]], 0)
        score -= np.where(counts[:, 0] == 0, _SCORES[counts[:, 1]], 0)
    return score


def _lines(planes):
    """Yields the cells of each line of four, `[n, 4, 2]`."""
    steps = np.arange(4)
    for row in range(rules.ROWS):
        for column in range(rules.COLUMNS):
            for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
                rows, columns = row + down * steps, column + right * steps
                if rows[-1] < rules.ROWS and 0 <= columns[-1] < rules.COLUMNS:
                    yield planes[:, rows, columns]
