"""Games of two players in parallel: self-play for the learner, matches for the evaluation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from examples.rl import replay
from examples.rl.connect_four import mcts, rules

# `mine, theirs` of games to the column that each player chooses, int `[n]`.
Player = Callable[[np.ndarray, np.ndarray], np.ndarray]


def self_play(
    evaluate: mcts.Evaluate,
    num_games: int,
    num_simulations: int,
    sampled_moves: int,
    random: np.random.Generator,
) -> replay.Arrays:
    """Plays games against itself, with noise.

    Args:
      evaluate: the network.
      num_games: number of games.
      num_simulations: of the search of each move.
      sampled_moves: first moves that are drawn in proportion to their visits; later ones are the
        most visited.
      random: random numbers.

    Returns:
      Every position of every game, game by game: `board`, uint8 `[n, rows, columns, 2]`, `policy`,
      float32 `[n, columns]`, shares of the visits, and `value`, float32 `[n]`: the mean of the
      result (1 if the player to move won the game, -1 if the other did, 0 for a draw) and of the
      value of the search, which has less noise (Willemsen et al. 2021,
      doi:10.1007/s00521-021-05928-5).
    """
    mine, theirs = rules.start(num_games)
    games = np.arange(num_games)  # that have not ended
    result = np.zeros(num_games, np.float32)  # of the player who moves first
    moves = []
    while len(games):
        visits, searched = mcts.search(evaluate, mine, theirs, num_simulations, random)
        policy = np.float32(visits / visits.sum(axis=1, keepdims=True))
        is_sampled = len(moves) < sampled_moves
        column = _draw(policy, random) if is_sampled else policy.argmax(axis=1)
        player = 1 - 2 * (len(moves) % 2)  # 1: the first
        moves.append((games, rules.planes(mine, theirs), policy, searched, player))
        mine, theirs = rules.play(mine, theirs, column)
        won = rules.has_won(theirs)
        result[games[won]] = player
        running = ~won & ~rules.is_full(mine, theirs)
        games, mine, theirs = games[running], mine[running], theirs[running]
    game = np.concatenate([games for games, *_ in moves])
    searched = np.concatenate([searched for *_, searched, _ in moves])
    player = np.concatenate([np.full(len(games), player) for games, *_, player in moves])
    in_order = np.argsort(game, kind="stable")
    return {
        "board": np.concatenate([boards for _, boards, *_ in moves])[in_order],
        "policy": np.concatenate([policy for *_, policy, _, _ in moves])[in_order],
        "value": np.float32((result[game] * player + searched) / 2)[in_order],
    }


def _draw(policy, random):
    """Returns a random column for each row of probabilities, int `[n]`."""
    bounds = policy.cumsum(axis=1)
    return (random.random([len(policy), 1]) * bounds[:, -1:] >= bounds).sum(axis=1)


def searching(evaluate: mcts.Evaluate, num_simulations: int) -> Player:
    """Returns a player that chooses the most visited column of a search without noise."""

    def choose(mine, theirs):
        visits, _ = mcts.search(evaluate, mine, theirs, num_simulations)
        return visits.argmax(axis=1)

    return choose


def match(player: Player, opponent: Player, num_games: int) -> float:
    """Returns the fraction of games that `player` wins; each moves first in half of them."""
    wins = 0
    for players, count in (
        ((player, opponent), (num_games + 1) // 2),
        ((opponent, player), num_games // 2),
    ):
        mine, theirs = rules.start(count)
        turn = 0
        while len(mine):
            mover = players[turn % 2]
            mine, theirs = rules.play(mine, theirs, mover(mine, theirs))
            won = rules.has_won(theirs)
            wins += won.sum() * (mover is player)
            running = ~won & ~rules.is_full(mine, theirs)
            mine, theirs = mine[running], theirs[running]
            turn += 1
    return float(wins / num_games)
