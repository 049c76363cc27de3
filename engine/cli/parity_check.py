"""A few steps of training by both wrappers, from the same weights: do they end at the same?"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from engine.checkpoints import find
from engine.cli.run_settings import Job
from engine.hooks.progress import Clock, StepCounter


def largest_difference(
    job: Job, train_on_cpu: Callable[[Job], None], train_on_tpu: Callable[[Job], None], steps: int
) -> tuple[float, str]:
    """Trains in folders that are removed afterwards.

    Args:
      job: the one that is to come.
      train_on_cpu: trains a job with an Estimator.
      train_on_tpu: trains a job with a TPUEstimator, on emulated cores.
      steps: of either training.

    Returns:
      The largest difference of a variable, relative to the largest number in it, and its name.
    """
    with tempfile.TemporaryDirectory() as folder:

        def variant(name, train_steps, start):
            return dataclasses.replace(
                job,
                mode="train",
                model_dir=os.path.join(folder, name),
                train_steps=train_steps,
                save_checkpoints_steps=train_steps,
                iterations_per_loop=1,
                warm_start_from=start,
                warm_start_include=".*",
                graph_seed=job.seed,
                clock=Clock(),
                counter=StepCounter(),
            )

        first = variant("start", 1, None)
        train_on_cpu(first)
        start = find.latest(first.model_dir)
        ends = []
        for name, train in (("cpu", train_on_cpu), ("tpu", train_on_tpu)):
            of_wrapper = variant(name, steps, start)
            train(of_wrapper)
            ends.append(_variables(find.latest(of_wrapper.model_dir)))
    cpu, tpu = ends
    differences = {
        name: float(np.abs(tpu[name] - value).max() / max(np.abs(value).max(), 1e-6))
        for name, value in cpu.items()
    }
    name = max(differences, key=lambda name: np.nan_to_num(differences[name], nan=np.inf))
    return differences[name], name


def _variables(checkpoint):
    names = [name for name, _ in tf.train.list_variables(checkpoint)]
    return {name: tf.train.load_variable(checkpoint, name).astype(np.float64) for name in names}
