"""Self-play records, matches, and the opponents of an evaluation."""

import numpy as np
import pytest

from examples.rl.connect_four import mcts, opponents, rules, self_play


@pytest.fixture(scope="module")
def games():
    """The records of 13 games."""
    return self_play.self_play(mcts.uniform, 13, 16, 6, np.random.default_rng(1))


def starts(games):
    """The indices of the first positions."""
    return np.flatnonzero(games["board"].sum(axis=(1, 2, 3)) == 0)


def test_shapes_and_dtypes(games):
    size = len(games["value"])
    shapes = {name: (array.dtype.name, array.shape) for name, array in games.items()}
    assert shapes == {
        "board": ("uint8", (size, 6, 7, 2)),
        "policy": ("float32", (size, 7)),
        "value": ("float32", (size,)),
    }
    assert len(starts(games)) == 13


def test_each_position_follows_from_the_one_before_it(games):
    stones = games["board"].sum(axis=(1, 2, 3))
    within = np.flatnonzero(stones > 0)
    np.testing.assert_array_equal(stones[within], stones[within - 1] + 1)
    # The mover's stones of one position are the other's of the next, and one more.
    moved = games["board"][within, ..., 1] - games["board"][within - 1, ..., 0]
    np.testing.assert_array_equal(moved.sum(axis=(1, 2)), 1)
    np.testing.assert_array_equal(
        games["board"][within, ..., 0], games["board"][within - 1, ..., 1]
    )


def test_policies_are_shares_of_the_visits(games):
    np.testing.assert_allclose(games["policy"].sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_array_equal(np.round(games["policy"] * 16), games["policy"] * 16)


def test_values_are_the_mean_of_result_and_searched_value(games, monkeypatch):
    search = mcts.search

    def without_values(*args):
        visits, values = search(*args)
        return visits, 0 * values

    monkeypatch.setattr(mcts, "search", without_values)
    halves = self_play.self_play(mcts.uniform, 13, 16, 6, np.random.default_rng(1))["value"]
    stones = games["board"].sum(axis=(1, 2, 3))
    within = np.flatnonzero(stones > 0)
    np.testing.assert_array_equal(halves[within], -halves[within - 1])
    last = np.append(starts(games)[1:], len(stones)) - 1
    ended_early = stones[last] < 41
    assert ended_early.any()
    np.testing.assert_array_equal(halves[last][ended_early], 0.5)  # the last mover won
    searched = games["value"] - halves
    assert np.abs(searched).max() <= 0.5
    assert searched.any()


def test_a_seed_repeats_the_games(games):
    again = self_play.self_play(mcts.uniform, 13, 16, 6, np.random.default_rng(1))
    for name, array in games.items():
        np.testing.assert_array_equal(again[name], array)


def first_legal(mine, theirs):
    """A player that fills the columns from the left."""
    return rules.legal(mine, theirs).argmax(axis=1)


def last_legal(mine, theirs):
    """A player that fills the columns from the right."""
    return 6 - rules.legal(mine, theirs)[:, ::-1].argmax(axis=1)


@pytest.mark.parametrize(("num_games", "wins"), [(1, 1), (2, 1), (5, 3)])
def test_players_alternate_who_moves_first(num_games, wins):
    # Two columns of four: who moves first wins.
    assert self_play.match(first_legal, last_legal, num_games) == wins / num_games


def plain_minimax(mine, theirs, depth):
    """Score of a position for the player to move, by recursion over single games."""
    if rules.has_won(theirs)[0]:
        return -10_000.0 * (depth + 1)
    if rules.is_full(mine, theirs)[0]:
        return 0.0
    if not depth:
        return -float(opponents._open_lines(theirs, mine)[0])
    columns = np.flatnonzero(rules.legal(mine, theirs)[0])
    return max(
        -plain_minimax(*rules.play(mine, theirs, np.array([column])), depth - 1)
        for column in columns
    )


@pytest.mark.parametrize("depth", [1, 2])
def test_minimax_equals_a_plain_one(depth):
    random = np.random.default_rng(3)
    mine, theirs = rules.start(5)
    for _ in range(11):
        column = opponents.random_player(random)(mine, theirs)
        mine, theirs = rules.play(mine, theirs, column)
    running = ~rules.has_won(theirs) & ~rules.has_won(mine)
    mine, theirs = mine[running], theirs[running]
    assert len(mine) > 1
    scores = opponents._scores(mine, theirs, depth)
    expected = [plain_minimax(mine[i : i + 1], theirs[i : i + 1], depth) for i in range(len(mine))]
    np.testing.assert_array_equal(scores.max(axis=1), expected)


def test_open_lines_are_counted_for_both_players():
    # The stone in the corner is in 3 lines, the one above it in 3 others and the diagonal upwards.
    mine, theirs = (np.array([stones], np.uint64) for stones in (1, 2))
    lines = {"corner": 2, "above": 2}  # without the vertical lines that hold both stones
    assert opponents._open_lines(mine, theirs)[0] == lines["corner"] - (lines["above"] + 1)


def test_minimax_wins_and_blocks():
    player = opponents.minimax_player(np.random.default_rng(1))
    mine, theirs = (np.array(stones, np.uint64) for stones in ([0b111, 0], [0b111 << 7, 0b111]))
    assert player(mine, theirs).tolist() == [0, 0]
