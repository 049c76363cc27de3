"""DQN on CartPole-v1: episodes, n-step returns and targets.

The target network of DQN is the newest export. It is frozen while the learner trains, so its values
are computed once, here, and stored as labels: `target = return + discount * max_a Q(next, a)`. An
iteration of the driver is one period of the target network.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from common.errors import UsageError
from examples.rl import replay
from examples.rl.policy import Predict

ENVIRONMENT, NUM_ACTIONS = "CartPole-v1", 2


@dataclasses.dataclass(frozen=True)
class Task:
    """Hyperparameters of DQN.

    Attributes:
      iterations: maximum number of iterations.
      steps: learner's steps of an iteration, the period of the target network.
      window: number of iterations in the replay buffer.
      num_episodes: episodes of an iteration, played in parallel.
      epsilon: fraction of random actions.
      discount: discount of future rewards for each step.
      n_step: rewards of a return, before it is bootstrapped.
      eval_episodes: greedy episodes of an evaluation.
      solved: mean return of an evaluation at which the driver stops.
    """

    iterations: int = 40
    steps: int = 2000
    window: int = 4
    num_episodes: int = 32
    epsilon: float = 0.1
    discount: float = 0.99
    n_step: int = 20
    eval_episodes: int = 100
    solved: float = 490.0

    name = "cartpole"
    labels = ("action", "target")
    flags = (
        "--model=examples.rl.cartpole.model:MODEL",
        "--dataset=cartpole",
        "--train_batch_size=128",
        "--eval_batch_size=1024",
        "--params=learning_rate=0.001",
    )

    def act(self, predict: Predict | None, random: np.random.Generator) -> replay.Arrays:
        """Plays epsilon-greedy episodes; at random without a policy.

        Returns:
          Transitions of n steps: `observation` and `next_observation`, float32 `[n, 4]`, `action`,
          int32 `[n]`, `reward`, float32 `[n]`, the discounted sum, and `discount`, float32 `[n]`,
          of the value of the next observation: 0 if the episode has ended there.
        """
        epsilon = self.epsilon if predict else 1.0
        episodes = play(predict, self.num_episodes, epsilon, random)
        return n_step_transitions(*episodes, self.n_step, self.discount)

    def examples(self, experience: replay.Arrays, predict: Predict | None) -> replay.Arrays:
        """Returns observations with the values that the target network gives their actions."""
        value = np.zeros_like(experience["reward"])
        if predict:
            observations = {"observation": experience["next_observation"]}
            value = predict(observations)["q_values"].max(axis=1)
        return {
            "observation": experience["observation"],
            "action": experience["action"],
            "target": experience["reward"] + experience["discount"] * value,
        }

    def evaluate(
        self, predict: Predict, random: np.random.Generator, is_final: bool = False
    ) -> dict[str, float]:
        """Returns the mean and the minimum return of greedy episodes."""
        del is_final
        _, _, lengths, _ = play(predict, self.eval_episodes, 0.0, random)
        return {"mean_return": float(lengths.mean()), "min_return": float(lengths.min())}

    def is_solved(self, metrics: dict[str, float]) -> bool:
        """Returns whether the driver may stop."""
        return metrics["mean_return"] >= self.solved


def play(predict: Predict | None, num_episodes: int, epsilon: float, random: np.random.Generator):
    """Plays episodes in parallel, until all have ended.

    Returns:
      Observations, float32 `[steps + 1, num_episodes, 4]`, actions, int32 `[steps, num_episodes]`,
      the length of each episode, and whether it failed, bool `[num_episodes]`. An episode of the
      maximum length is only truncated.
    """
    environment = _make(num_episodes)
    observation, _ = environment.reset(seed=int(random.integers(2**31)))
    observations, actions = [observation], []
    is_running = np.ones(num_episodes, bool)
    has_failed = np.zeros(num_episodes, bool)
    lengths = np.zeros(num_episodes, int)
    while is_running.any():
        action = random.integers(NUM_ACTIONS, size=num_episodes)
        if epsilon < 1:
            greedy = predict({"observation": observation})["q_values"].argmax(axis=1)
            action = np.where(random.random(num_episodes) < epsilon, action, greedy)
        observation, _, terminated, truncated, _ = environment.step(action)
        observations.append(observation)
        actions.append(action)
        lengths += is_running
        has_failed |= is_running & terminated
        is_running &= ~(terminated | truncated)  # an ended environment starts again: ignored
    environment.close()
    return np.stack(observations), np.stack(actions).astype(np.int32), lengths, has_failed


def n_step_transitions(observations, actions, lengths, has_failed, n_step, discount):
    """Returns the transitions of `play`'s episodes; see `Task.act`. The reward of a step is 1."""
    in_episode = np.arange(len(actions))[:, np.newaxis] < lengths
    episode, start = np.nonzero(in_episode.T)
    end = np.minimum(start + n_step, lengths[episode])
    ends_failed = has_failed[episode] & (end == lengths[episode])
    power = discount ** (end - start)
    is_discounted = discount < 1
    return {
        "observation": observations[start, episode],
        "action": actions[start, episode],
        "reward": np.float32((1 - power) / (1 - discount) if is_discounted else end - start),
        "next_observation": observations[end, episode],
        "discount": np.float32(np.where(ends_failed, 0, power)),
    }


def _make(num_episodes):
    try:
        import gymnasium
    except ImportError as error:
        raise UsageError("gymnasium is not installed: pip install gymnasium") from error
    # Steps all environments at once, in NumPy.
    return gymnasium.make_vec(
        ENVIRONMENT, num_envs=num_episodes, vectorization_mode="vector_entry_point"
    )
