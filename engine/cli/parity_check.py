"""Compares both wrappers: weights after a few training steps from the same initial weights."""

from __future__ import annotations

import dataclasses
import os
import tempfile
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from engine.checkpoints import find
from engine.checkpoints.model_dir_lock import ModelDirLock
from engine.hooks.progress import Clock, StepCounter
from engine.run_settings import RunSettings, TrainingState

Train = Callable[[RunSettings, TrainingState], None]


def largest_difference(
    settings: RunSettings, train_on_cpu: Train, train_on_tpu: Train, steps: int
) -> tuple[float, str]:
    """Trains with both wrappers in temporary folders; returns the largest difference.

    Args:
      settings: settings of the run to check.
      train_on_cpu: trains with an Estimator.
      train_on_tpu: trains with a TPUEstimator on emulated cores.
      steps: number of training steps.

    Returns:
      The max abs difference of a variable, relative to its max abs value, and its name.
    """
    with tempfile.TemporaryDirectory() as folder:

        def train(name, train_fn, num_steps, start):
            model_dir = os.path.join(folder, name)
            changed = dataclasses.replace(
                settings,
                mode="train",
                model_dir=model_dir,
                graph_seed=settings.seed,
                train=dataclasses.replace(
                    settings.train,
                    steps=num_steps,
                    save_checkpoints_steps=num_steps,
                    iterations_per_loop=1,
                    warm_start_from=start,
                    warm_start_include=".*",
                ),
            )
            lock = ModelDirLock(model_dir, "train", ())
            train_fn(changed, TrainingState(time.monotonic(), Clock(), StepCounter(), lock))
            return find.latest(model_dir)

        start = train("start", train_on_cpu, 1, None)
        cpu = _variables(train("cpu", train_on_cpu, steps, start))
        tpu = _variables(train("tpu", train_on_tpu, steps, start))
    differences = {
        name: float(np.abs(tpu[name] - value).max() / max(np.abs(value).max(), 1e-6))
        for name, value in cpu.items()
    }
    name = max(differences, key=lambda name: np.nan_to_num(differences[name], nan=np.inf))
    return differences[name], name


def _variables(checkpoint):
    names = [name for name, _ in tf.train.list_variables(checkpoint)]
    return {name: tf.train.load_variable(checkpoint, name).astype(np.float64) for name in names}
