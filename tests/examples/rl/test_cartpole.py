"""Episodes, n-step returns and targets of DQN."""

import sys

import numpy as np
import pytest

from common.errors import UsageError
from examples.rl.cartpole import task


def left_or_right(features):
    """A policy that pushes towards the side where the pole falls."""
    observation = features["observation"]
    falls_right = observation[:, 2] + observation[:, 3] > 0
    return {"q_values": np.stack([~falls_right, falls_right], axis=1).astype(np.float32)}


def test_n_step_returns():
    # Two episodes: 4 steps, truncated; 2 steps, failed. Observations are 10 * episode + step.
    observations = np.float32([[[0], [10]], [[1], [11]], [[2], [12]], [[3], [-1]], [[4], [-1]]])
    actions = np.int32([[0, 1], [1, 0], [0, -1], [1, -1]])
    found = task.n_step_transitions(
        observations, actions, np.array([4, 2]), np.array([False, True]), n_step=3, discount=0.5
    )
    assert found["observation"].tolist() == [[0], [1], [2], [3], [10], [11]]
    assert found["action"].tolist() == [0, 1, 0, 1, 1, 0]
    assert found["reward"].tolist() == [1.75, 1.75, 1.5, 1, 1.5, 1]
    assert found["next_observation"].tolist() == [[3], [4], [4], [4], [12], [12]]
    assert found["discount"].tolist() == [0.125, 0.125, 0.25, 0.5, 0, 0]
    assert {name: array.dtype.name for name, array in found.items()} == {
        "observation": "float32",
        "action": "int32",
        "reward": "float32",
        "next_observation": "float32",
        "discount": "float32",
    }


def test_targets_are_bootstrapped_by_the_target_network():
    experience = {
        "observation": np.zeros([3, 4], np.float32),
        "action": np.int32([0, 1, 0]),
        "reward": np.float32([1, 2, 3]),
        "next_observation": np.float32([[1, 5, 0, 0], [7, 2, 0, 0], [9, 9, 0, 0]]),
        "discount": np.float32([0.5, 0.25, 0]),
    }

    def predict(features):
        return {"q_values": features["observation"][:, :2]}

    targets = task.Task().examples(experience, predict)["target"]
    assert targets.tolist() == [3.5, 3.75, 3]
    assert targets.dtype == np.float32
    assert task.Task().examples(experience, None)["target"].tolist() == [1, 2, 3]


def test_episodes_equal_those_of_single_environments():
    gymnasium = pytest.importorskip("gymnasium", reason="gymnasium is not installed")
    random = np.random.default_rng(1)
    observations, actions, lengths, has_failed = task.play(left_or_right, 3, 0.2, random)
    assert len(actions) == lengths.max()
    for episode in range(3):
        environment = gymnasium.make(task.ENVIRONMENT)
        environment.reset(seed=1)
        for step in range(lengths[episode]):
            environment.unwrapped.state = observations[step, episode].astype(np.float64)
            observation, _, terminated, truncated, _ = environment.step(int(actions[step, episode]))
            # Up to the rounding of a state to a float32 observation.
            np.testing.assert_allclose(observation, observations[step + 1, episode], atol=1e-5)
            assert (terminated or truncated) == (step + 1 == lengths[episode])
        assert terminated == has_failed[episode]


def test_an_episode_of_the_maximum_length_has_not_failed():
    pytest.importorskip("gymnasium", reason="gymnasium is not installed")
    _, _, lengths, has_failed = task.play(left_or_right, 5, 0.0, np.random.default_rng(1))
    assert has_failed.tolist() == (lengths < 500).tolist()
    assert lengths.max() > 100


def test_a_seed_repeats_the_experience():
    pytest.importorskip("gymnasium", reason="gymnasium is not installed")
    first, again, other = (
        task.Task(num_episodes=3).act(left_or_right, np.random.default_rng(seed))
        for seed in (1, 1, 2)
    )
    for name, array in first.items():
        np.testing.assert_array_equal(array, again[name])
    assert len(first["reward"]) != len(other["reward"])


def test_a_missing_gymnasium_is_an_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(UsageError, match="pip install gymnasium"):
        task.play(None, 3, 1.0, np.random.default_rng(1))
