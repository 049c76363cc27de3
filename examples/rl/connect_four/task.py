"""AlphaZero on Connect Four: self-play, the replay buffer, matches."""

from __future__ import annotations

import dataclasses

import numpy as np

from examples.rl import replay
from examples.rl.connect_four import data, mcts, opponents, rules, self_play
from examples.rl.policy import Predict


@dataclasses.dataclass(frozen=True)
class Task:
    """Hyperparameters of AlphaZero.

    Attributes:
      iterations: maximum number of iterations.
      steps: learner's steps of an iteration.
      window: number of iterations in the replay buffer.
      num_games: games of an iteration, played in parallel.
      num_simulations: of the search of each move.
      sampled_moves: first moves of a game that are drawn by their visits.
      eval_games: games of a match after each iteration; each moves first in half of them.
      final_games: games of a match of the final evaluation.
      eval_simulations: simulations of the search in a match.
      solved: fraction of games won against each opponent at which the driver stops.
    """

    iterations: int = 40
    steps: int = 600
    window: int = 4
    num_games: int = 512
    num_simulations: int = 64
    sampled_moves: int = 10
    eval_games: int = 20
    final_games: int = 200
    eval_simulations: int = 64
    solved: float = 1.0

    name = data.NAME
    labels = ("policy", "value")
    flags = (
        "--model=examples.rl.connect_four.model:MODEL",
        "--dataset=examples.rl.connect_four.data:make_pipeline",
        "--train_batch_size=256",
        "--eval_batch_size=256",
        "--params=learning_rate=0.002,weight_decay=0.0001",
    )

    def act(self, predict: Predict | None, random: np.random.Generator) -> replay.Arrays:
        """Plays games against itself; see `self_play.self_play`."""
        return self_play.self_play(
            network(predict), self.num_games, self.num_simulations, self.sampled_moves, random
        )

    def examples(self, experience: replay.Arrays, predict: Predict | None) -> replay.Arrays:
        """Returns the experience: its labels do not depend on the newest network."""
        del predict
        return experience

    def evaluate(
        self, predict: Predict, random: np.random.Generator, is_final: bool = False
    ) -> dict[str, float]:
        """Returns the fractions of games won against random moves and minimax of depth 2."""
        num_games = self.final_games if is_final else self.eval_games
        player = self_play.searching(network(predict), self.eval_simulations)
        others = {
            "wins_against_random": opponents.random_player(random),
            "wins_against_minimax": opponents.minimax_player(random),
        }
        return {
            name: self_play.match(player, opponent, num_games) for name, opponent in others.items()
        }

    def is_solved(self, metrics: dict[str, float]) -> bool:
        """Returns whether the driver may stop."""
        return min(value for name, value in metrics.items() if "wins" in name) >= self.solved


def network(predict: Predict | None) -> mcts.Evaluate:
    """Returns the function that evaluates positions; `mcts.uniform` without an export."""
    if predict is None:
        return mcts.uniform

    def evaluate(mine, theirs):
        predicted = predict({"board": rules.planes(mine, theirs)})
        return predicted["logits"], predicted["value"]

    return evaluate
