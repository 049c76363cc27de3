"""The rules of Connect Four against a board of lists, and the published numbers of positions."""

import numpy as np
import pytest

from examples.rl.connect_four import rules

# Positions after n moves, games that have ended not continued: OEIS A212693.
POSITIONS = (1, 7, 49, 238, 1120, 4263, 16422)


class Board:
    """A slow, plain implementation: `cells[row][column]` is 0, 1 or 2."""

    def __init__(self):
        self.cells = [[0] * 7 for _ in range(6)]

    def legal(self):
        return [self.cells[5][column] == 0 for column in range(7)]

    def play(self, player, column):
        row = next(row for row in range(6) if not self.cells[row][column])
        self.cells[row][column] = player

    def has_won(self, player):
        return any(
            all(
                0 <= row + i * down < 6
                and 0 <= column + i * right < 7
                and self.cells[row + i * down][column + i * right] == player
                for i in range(4)
            )
            for row in range(6)
            for column in range(7)
            for down, right in ((0, 1), (1, 0), (1, 1), (1, -1))
        )

    def planes(self, player):
        cells = np.array(self.cells)
        return np.stack([cells == player, cells == 3 - player], axis=-1)


def test_random_games_equal_those_on_a_plain_board():
    random = np.random.default_rng(1)
    results = []
    for _ in range(40):
        board, (mine, theirs) = Board(), rules.start(1)
        for move in range(42):
            player = 1 + move % 2
            np.testing.assert_array_equal(rules.planes(mine, theirs)[0], board.planes(player))
            legal = rules.legal(mine, theirs)[0]
            assert legal.tolist() == board.legal()
            column = random.choice(np.flatnonzero(legal))
            board.play(player, column)
            mine, theirs = rules.play(mine, theirs, np.array([column]))
            assert rules.has_won(theirs)[0] == board.has_won(player)
            if rules.has_won(theirs)[0]:
                results.append(player)
                break
        else:
            assert rules.is_full(mine, theirs)[0]
    assert {1, 2} <= set(results)


def test_number_of_positions_is_the_published_one():
    mine, theirs = rules.start(1)
    for expected in POSITIONS:
        assert len(mine) == expected
        is_open = ~rules.has_won(theirs)
        mine, theirs = mine[is_open], theirs[is_open]
        game, column = np.nonzero(rules.legal(mine, theirs))
        mine, theirs = np.unique(rules.play(mine[game], theirs[game], column), axis=1)


@pytest.mark.parametrize("cells", [[3, 13, 23, 33], [36, 42, 48, 47], [5, 7, 8, 9]])
def test_a_line_does_not_continue_in_the_next_column(cells):
    # Bits, with gaps or across the edge of a column.
    assert not rules.has_won(np.array([sum(1 << bit for bit in cells)], np.uint64))[0]


def test_a_drawn_board_is_full():
    columns = [0b010101, 0b010101, 0b101010, 0b010101, 0b101010, 0b101010, 0b010101]
    mine = np.array([sum(bits << (7 * i) for i, bits in enumerate(columns))], np.uint64)
    full = np.array([sum(0b111111 << (7 * i) for i in range(7))], np.uint64)
    assert rules.is_full(mine, full & ~mine)[0]
    assert not rules.legal(mine, full & ~mine).any()
