"""Many processes that train one model, asynchronously: what TF_CONFIG says this one is.

The engine is TensorFlow's own: `tf.estimator.train_and_evaluate` with parameter servers. A chief
and workers train, each on batches of its own; parameter servers hold the variables; an evaluator,
which is no part of the cluster, evaluates each checkpoint.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import time

import tensorflow as tf

from common.errors import UsageError
from engine.cli import supervisor

_POLL_SECONDS = 1.0


@dataclasses.dataclass(frozen=True)
class Task:
    """One process of a cluster, or the only one.

    Attributes:
      type: "chief", "worker", "ps" or "evaluator".
      worker: which of those that train; the chief is 0.
      in_cluster: whether there are others.
      in_step: whether all make every step together, by a strategy; otherwise each makes its own.
    """

    type: str = "chief"
    worker: int = 0
    in_cluster: bool = False
    in_step: bool = False

    @property
    def is_chief(self) -> bool:
        """Whether this one saves, repairs and records."""
        return self.type == "chief"

    @property
    def alone(self) -> bool:
        """Whether the global step grows by the steps of this process alone, as far as it sees."""
        return self.in_step or not self.in_cluster

    @property
    def trains(self) -> bool:
        """Whether this one computes steps."""
        return self.type in ("chief", "worker")


def task_of_environment(in_step: bool = False) -> Task:
    """Returns the task that the environment variable TF_CONFIG describes; `in_step` is of the Task.

    Raises:
      UsageError: it describes none.
    """
    if not os.environ.get("TF_CONFIG"):
        return Task()
    try:
        config = tf.estimator.RunConfig()
    except (ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"TF_CONFIG={os.environ['TF_CONFIG']}: {error}") from error
    if config.task_type == "evaluator":
        return Task("evaluator", in_cluster=True)
    if not config.cluster_spec or not config.master:
        return Task()
    if config.task_type == "master":
        raise UsageError("TF_CONFIG: 'master' is of TensorFlow before 1.4; say 'chief'")
    if in_step and config.num_ps_replicas:
        raise UsageError("TF_CONFIG: --strategy=multi_worker_mirrored has no parameter servers")
    if not in_step and not config.num_ps_replicas:
        raise UsageError("TF_CONFIG: no parameter server ('ps') and no --strategy")
    worker = config.task_id + 1 if config.task_type == "worker" else 0
    return Task(config.task_type, worker, in_cluster=True, in_step=in_step)


def train(estimator, input_fn, end_step: int, hooks) -> None:
    """Trains, as a chief or a worker, up to a global step that all of them reach together."""
    tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(input_fn, max_steps=end_step, hooks=hooks),
        tf.estimator.EvalSpec(input_fn),  # an evaluator's; see modes.py
    )


def serve_parameters(config: tf.estimator.RunConfig, end_step: int) -> None:
    """Holds variables until a checkpoint of `end_step` is saved and all that train are gone.

    By itself a parameter server of TensorFlow never ends.
    """
    server = tf.distribute.Server(
        config.cluster_spec,
        job_name="ps",
        task_index=config.task_id,
        config=config.session_config,
        protocol=config.protocol,
    )
    print(f"parameter server {config.task_id}: {server.target}", flush=True)
    trainers = [
        address
        for job in ("chief", "worker")
        if job in config.cluster_spec.jobs
        for address in config.cluster_spec.job_tasks(job)
    ]
    while supervisor.newest_step(config.model_dir) < end_step or any(map(_answers, trainers)):
        time.sleep(_POLL_SECONDS)


def _answers(address):
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1.0):
        return True
    return False
