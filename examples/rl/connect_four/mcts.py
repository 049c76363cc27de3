"""Monte Carlo tree search of AlphaZero (Silver et al. 2018, Science 362, 1140-1144), batched.

Every game has a tree; a simulation descends all trees by the PUCT rule, evaluates the leaves of all
games with one call of the network, and adds their values along the paths. Trees are arrays
`[games, nodes, columns]`. A value is from the view of the player to move, in [-1, 1].
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from examples.rl.connect_four import rules

# `mine, theirs` to policy logits, float32 `[n, columns]`, and values, float32 `[n]`.
Evaluate = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]

EXPLORATION = 1.5  # weight of the prior in the PUCT rule
NOISE_ALPHA, NOISE_SHARE = 1.0, 0.25  # Dirichlet noise on the prior of the root, in self-play
_NONE = -1


def uniform(mine: np.ndarray, theirs: np.ndarray):
    """An `Evaluate` that knows nothing: equal logits, values of 0."""
    del theirs
    return np.zeros([len(mine), rules.COLUMNS], np.float32), np.zeros(len(mine), np.float32)


def search(
    evaluate: Evaluate,
    mine: np.ndarray,
    theirs: np.ndarray,
    num_simulations: int,
    random: np.random.Generator | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Searches the best move of each game.

    Args:
      evaluate: the network.
      mine: stones of the player to move, uint64 `[games]`. The games have not ended.
      theirs: stones of the other player.
      num_simulations: evaluated leaves of each game.
      random: adds noise to the prior of the root; None: no noise.

    Returns:
      How often each column was visited, int32 `[games, columns]`, and the mean value of the
      simulations, float32 `[games]`.
    """
    trees = _Trees(mine, theirs, num_simulations)
    trees.expand(evaluate, np.zeros(len(mine), int), 0)
    if random is not None:
        prior, is_legal = trees.prior[:, 0], rules.legal(mine, theirs)
        noise = random.gamma(NOISE_ALPHA, size=prior.shape) * is_legal
        noise /= noise.sum(axis=1, keepdims=True)
        trees.prior[:, 0] = (1 - NOISE_SHARE) * prior + NOISE_SHARE * noise
    for node in range(1, num_simulations + 1):
        path, leaf = trees.descend(node)
        trees.add(path, trees.expand(evaluate, leaf, node))
    return trees.visits[:, 0], trees.total[:, 0].sum(axis=1) / num_simulations


class _Trees:
    """The trees of all games; node 0 is the root, and simulation i adds node i."""

    def __init__(self, mine, theirs, num_simulations):
        games, nodes = len(mine), num_simulations + 1
        self.games = np.arange(games)
        self.mine = np.zeros([games, nodes], np.uint64)
        self.theirs = np.zeros([games, nodes], np.uint64)
        self.mine[:, 0], self.theirs[:, 0] = mine, theirs
        self.is_end = np.zeros([games, nodes], bool)
        shape = [games, nodes, rules.COLUMNS]
        self.child = np.full(shape, _NONE, np.int32)
        self.prior = np.zeros(shape, np.float32)  # 0 of full columns
        self.visits = np.zeros(shape, np.int32)
        self.total = np.zeros(shape, np.float32)  # of the values of the visits

    def descend(self, new):
        """Follows the PUCT rule from every root to a leaf: a new node, or an end of the game.

        Returns:
          The path, `[(games, nodes, columns)]`, int `[k]` with fewer games in each step, and the
          leaf of each game, int `[games]`.
        """
        leaf = np.zeros(len(self.games), int)
        games, path = self.games, []
        while len(games):
            nodes = leaf[games]
            column = self._select(games, nodes)
            path.append((games, nodes, column))
            child = self.child[games, nodes, column]
            is_new = child == _NONE
            if is_new.any():
                self._add_nodes(games[is_new], nodes[is_new], column[is_new], new)
            leaf[games] = np.where(is_new, new, child)
            games = games[~is_new & ~self.is_end[games, leaf[games]]]
        return path, leaf

    def _select(self, games, nodes):
        """Returns the column with the best upper confidence bound, int `[k]`."""
        prior, visits = self.prior[games, nodes], self.visits[games, nodes]
        value = self.total[games, nodes] / np.maximum(visits, 1)
        all_visits = visits.sum(axis=1, keepdims=True)
        bound = value + EXPLORATION * prior * np.sqrt(all_visits + 1) / (1 + visits)
        is_legal = rules.legal(self.mine[games, nodes], self.theirs[games, nodes])
        return np.where(is_legal, bound, -np.inf).argmax(axis=1)

    def _add_nodes(self, games, parents, column, new):
        mine, theirs = rules.play(self.mine[games, parents], self.theirs[games, parents], column)
        self.mine[games, new], self.theirs[games, new] = mine, theirs
        self.is_end[games, new] = rules.has_won(theirs) | rules.is_full(mine, theirs)
        self.child[games, parents, column] = new

    def expand(self, evaluate, leaf, new):
        """Sets the priors of the nodes `new`; returns the value of each leaf, float32 `[games]`.

        The batch always has all games, also those whose leaf is an end: kernels run fastest with
        one batch size.
        """
        mine, theirs = self.mine[self.games, leaf], self.theirs[self.games, leaf]
        logits, value = evaluate(mine, theirs)
        logits = np.where(rules.legal(mine, theirs), logits, -np.inf)
        is_end = self.is_end[self.games, leaf]
        open_games = self.games[(leaf == new) & ~is_end]
        logits = logits[open_games]
        exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
        prior = exponentials / exponentials.sum(axis=1, keepdims=True)
        self.prior[open_games, new] = prior
        # At the end of a game the player to move has lost, or the board is full.
        return np.where(is_end, -rules.has_won(theirs).astype(np.float32), value)

    def add(self, path, value):
        """Adds the values of the leaves to the visits along the path."""
        depth = np.zeros(len(self.games), int)
        for games, _, _ in path:
            depth[games] += 1
        for i, (games, nodes, column) in enumerate(path):
            # The players alternate: an even number of moves later the mover is to move again.
            sign = 1 - 2 * ((depth[games] - i) % 2)
            self.visits[games, nodes, column] += 1
            self.total[games, nodes, column] += sign * value[games]
