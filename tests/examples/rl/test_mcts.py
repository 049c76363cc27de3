"""The search finds forced wins, and treats each game of a batch alone."""

import numpy as np
import pytest

from examples.rl.connect_four import mcts, rules

# Moves, and the column that the next player must choose.
FORCED = {
    "wins upwards": ("0101016", 1),
    "wins in a row": ("001122", 3),
    "blocks": ("30313", 3),
    "makes two threats": ("3020", 4),  # 2, 3, 4 in the bottom row, both ends free
}


def position(*games):
    """The positions after the moves of each game."""
    boards = []
    for moves in games:
        mine, theirs = rules.start(1)
        for column in moves:
            mine, theirs = rules.play(mine, theirs, np.array([int(column)]))
        boards.append((mine[0], theirs[0]))
    return tuple(np.array(boards, np.uint64).T)


def irregular(mine, theirs):
    """A network that differs between positions."""
    random = [np.random.default_rng([int(a), int(b)]) for a, b in zip(mine, theirs)]
    logits = np.array([r.normal(size=7) for r in random], np.float32)
    return logits, np.array([r.uniform(-1, 1) for r in random], np.float32)


@pytest.mark.parametrize("name", FORCED)
def test_forced_moves_are_found_without_knowledge(name):
    moves, column = FORCED[name]
    visits, _ = mcts.search(mcts.uniform, *position(moves), num_simulations=400)
    assert visits[0].argmax() == column
    assert visits[0, column] > 200


def test_visits_sum_to_the_simulations_and_full_columns_have_none():
    visits, _ = mcts.search(irregular, *position("000000", "1", "33333325"), num_simulations=37)
    assert visits.sum(axis=1).tolist() == [37] * 3
    assert visits[0, 0] == visits[2, 3] == 0


def test_a_game_does_not_depend_on_its_batch():
    games = ["", "3", "01010", "3333", "0101016"]
    together = mcts.search(irregular, *position(*games), num_simulations=50)
    alone = [mcts.search(irregular, *position(game), num_simulations=50) for game in games]
    for batch, rows in zip(together, zip(*alone)):
        np.testing.assert_array_equal(batch, np.concatenate(rows))


def test_search_equals_a_recursive_one():
    mine, theirs = position("3342")
    visits, value = mcts.search(irregular, mine, theirs, num_simulations=120)
    root = Node(mine, theirs)
    root.value()
    values = [root.simulate() for _ in range(120)]
    assert visits[0].tolist() == root.visits.tolist()
    assert value[0] == pytest.approx(np.mean(values), abs=1e-5)


class Node:
    """AlphaZero's search of one game, by recursion."""

    def __init__(self, mine, theirs):
        self.position = mine, theirs
        self.children = {}
        self.visits, self.total = np.zeros(7, int), np.zeros(7, np.float32)

    def value(self):
        if rules.has_won(self.position[1])[0]:
            return -1.0
        if rules.is_full(*self.position)[0]:
            return 0.0
        logits, (value,) = irregular(*self.position)
        prior = np.exp(logits[0]) * rules.legal(*self.position)[0]
        self.prior = prior / prior.sum()
        return value

    def simulate(self):
        """Adds a simulation; returns the value of its leaf for the player to move here."""
        if rules.has_won(self.position[1])[0] or rules.is_full(*self.position)[0]:
            return self.value()
        explored = self.prior * np.sqrt(self.visits.sum() + 1) / (1 + self.visits)
        bound = self.total / np.maximum(self.visits, 1) + mcts.EXPLORATION * explored
        column = np.where(rules.legal(*self.position)[0], bound, -np.inf).argmax()
        if column in self.children:
            value = -self.children[column].simulate()
        else:
            child = Node(*rules.play(*self.position, np.array([column])))
            self.children[column] = child
            value = -child.value()
        self.visits[column] += 1
        self.total[column] += value
        return value


def test_noise_changes_the_search_and_depends_on_the_seed():
    def visits(seed):
        random = np.random.default_rng(seed)
        return mcts.search(mcts.uniform, *position("", "3"), 30, random)[0].tolist()

    assert visits(1) == visits(1)
    assert visits(1) != visits(2)
