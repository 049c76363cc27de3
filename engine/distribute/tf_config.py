"""Training on a cluster described by TF_CONFIG, with `tf.estimator.train_and_evaluate`.

With parameter servers training is asynchronous: the chief and the workers each train on their own
batches, and the parameter servers hold the variables. With --strategy=multi_worker_mirrored it is
synchronous. The evaluator evaluates each checkpoint; it is not in the cluster spec.
"""

from __future__ import annotations

import dataclasses
import json
import os
import threading
import time

import tensorflow as tf

from common import network
from common.errors import UsageError
from engine.checkpoints import checkpoint_files

_POLL_SECONDS = 1.0


@dataclasses.dataclass(frozen=True)
class Task:
    """The role of this process in a cluster; the default is a process without a cluster."""

    type: str = "chief"  # "chief", "worker", "ps" or "evaluator"
    worker: int = 0  # index among the processes that train; 0 for the chief
    in_cluster: bool = False  # True if TF_CONFIG describes other processes
    # True if all workers make each step together: by a tf.distribute strategy, or on PJRT devices.
    is_synchronous: bool = False
    num_ps: int = 0  # number of parameter servers

    @property
    def is_chief(self) -> bool:
        """True if this process saves checkpoints and writes records."""
        return self.type == "chief"

    @property
    def alone(self) -> bool:
        """True if no other process advances global_step between two steps of this one."""
        return self.is_synchronous or not self.in_cluster

    @property
    def trains(self) -> bool:
        """True if this process computes training steps."""
        return self.type in ("chief", "worker")

    @property
    def table_partitioner(self):
        """The partitioner of embedding tables, over the parameter servers; None without them."""
        if not self.num_ps:
            return None
        return tf.compat.v1.min_max_variable_partitioner(self.num_ps)


def from_environment(strategy: str = "none") -> Task:
    """Returns the task of this process from the environment variable TF_CONFIG.

    Rewrites TF_CONFIG of Kubeflow and Vertex AI as TensorFlow expects it, for the RunConfigs that
    follow.

    Args:
      strategy: value of --strategy.

    Raises:
      UsageError: TF_CONFIG is invalid, or describes a cluster that the strategy does not support.
    """
    is_synchronous = strategy == "multi_worker_mirrored"
    if not os.environ.get("TF_CONFIG"):
        return Task()
    os.environ["TF_CONFIG"] = _normalize(os.environ["TF_CONFIG"], is_synchronous)
    try:
        config = tf.estimator.RunConfig()
    except (ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"TF_CONFIG={os.environ['TF_CONFIG']}: {error}") from error
    if strategy == "mirrored" and _num_processes() > 1:
        raise UsageError(
            "TF_CONFIG describes a cluster, but --strategy=mirrored trains on one machine. Use "
            "--strategy=multi_worker_mirrored without parameter servers ('ps'), and no --strategy "
            "with them"
        )
    if config.task_type == "evaluator":
        return Task("evaluator", in_cluster=True)
    if not config.cluster_spec or not config.master:
        return Task()
    if is_synchronous and config.num_ps_replicas:
        raise UsageError(
            "TF_CONFIG: --strategy=multi_worker_mirrored has no parameter servers. Remove 'ps'"
        )
    if not is_synchronous and not config.num_ps_replicas:
        raise UsageError(
            "TF_CONFIG: no parameter server ('ps'). Add one, or use "
            "--strategy=multi_worker_mirrored"
        )
    worker = config.task_id + 1 if config.task_type == "worker" else 0
    return Task(config.task_type, worker, True, is_synchronous, config.num_ps_replicas)


def _num_processes():
    """Returns the number of processes in the cluster of a valid TF_CONFIG, without evaluators."""
    cluster = tf.train.ClusterSpec(json.loads(os.environ["TF_CONFIG"]).get("cluster", {}))
    return sum(map(cluster.num_tasks, cluster.jobs))


def of_host(process_id: int, num_processes: int) -> Task:
    """Returns the task of one of the processes that train together on PJRT devices."""
    return Task("worker" if process_id else "chief", process_id, is_synchronous=num_processes > 1)


def refuse_cluster() -> None:
    """Raises `UsageError` if TF_CONFIG describes a cluster."""
    if from_environment().in_cluster:
        raise UsageError(
            "TF_CONFIG describes a cluster, which only run_cpu.py supports. Unset TF_CONFIG: the "
            "hosts of a TPU do not need it"
        )


def _normalize(text, is_synchronous):
    """Returns TF_CONFIG with a "chief", and without the evaluator in the cluster.

    Kubeflow's training operator lists the evaluator, which is not a member of TensorFlow's cluster.
    Kubeflow and Vertex AI may call the chief "master", with which RunConfig allows no evaluator.
    TensorFlow's guide to MultiWorkerMirroredStrategy has only workers, of which the first is the
    chief. An index may be a string, as scripts take it from the environment.
    """
    try:
        config = json.loads(text)
        cluster, task = dict(config["cluster"]), dict(config["task"])
    except (ValueError, TypeError, KeyError):
        return text  # RunConfig reports what is wrong
    index = task.get("index")
    if isinstance(index, str) and index.isdecimal():
        task["index"] = int(index)
    cluster.pop("evaluator", None)
    if "chief" not in cluster and "master" in cluster:
        cluster["chief"] = cluster.pop("master")
        if task.get("type") == "master":
            task["type"] = "chief"
    workers = cluster.get("worker")
    if is_synchronous and "chief" not in cluster and isinstance(workers, list) and workers:
        cluster.update(chief=workers[:1], worker=workers[1:])
        if task.get("type") == "worker":
            index = task.get("index")
            if not isinstance(index, int) or not 0 <= index < len(workers):
                raise UsageError(
                    f"TF_CONFIG: the task is worker {index}, but the cluster has {len(workers)} "
                    "workers, from 0 on"
                )
            task = {**task, "type": "worker", "index": index - 1}
            if index == 0:
                task.update(type="chief", index=0)
    cluster = {job: addresses for job, addresses in cluster.items() if addresses}
    return json.dumps({**config, "cluster": cluster, "task": task})


def train(estimator, input_fn, end_step: int, hooks) -> None:
    """Trains as the chief or a worker, until the global step of the cluster is `end_step`.

    Prints which processes it waits for.
    """
    hooks = [*hooks, WaitReportHook(_needed())]
    tf.estimator.train_and_evaluate(
        estimator,
        tf.estimator.TrainSpec(input_fn, max_steps=end_step, hooks=hooks),
        tf.estimator.EvalSpec(input_fn),  # unused: engine/cli/modes.py runs the evaluator
    )


def _needed():
    """Returns `{name: address}` of the processes that the session of this one needs."""
    config = json.loads(os.environ["TF_CONFIG"])
    cluster, task = tf.train.ClusterSpec(config["cluster"]), config["task"]
    this = f"{task['type']} {task['index']}"
    # A parameter server holds the variables, which the chief initializes.
    needed = ("ps", "chief") if "ps" in cluster.jobs else ("chief", "worker")
    addresses = {
        f"{job} {index}": address
        for job in needed
        if job in cluster.jobs
        for index, address in enumerate(cluster.job_tasks(job))
    }
    return {name: address for name, address in addresses.items() if name != this}


def serve_parameters(config: tf.estimator.RunConfig, end_step: int) -> None:
    """Runs a parameter server until step `end_step` is saved and chief and workers have exited.

    TensorFlow's own parameter server never exits.
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
    while checkpoint_files.newest_step(config.model_dir) < end_step or any(
        map(network.accepts_connections, trainers)
    ):
        time.sleep(_POLL_SECONDS)


@dataclasses.dataclass(eq=False)
class WaitReportHook(tf.estimator.SessionRunHook):
    """Prints which processes do not answer, until the session is created.

    TensorFlow creates the session of a cluster when all processes that it needs are there, and logs
    nothing that the wrappers show.
    """

    addresses: dict[str, str]  # {name: "host:port"} of the processes that the session needs
    first: float = 10.0  # seconds before the first line
    every: float = 60.0  # seconds between lines

    def __post_init__(self):
        """Starts before the session is created."""
        self._created = threading.Event()

    def begin(self):
        """Starts the thread that prints."""
        threading.Thread(target=self._report, daemon=True).start()

    def after_create_session(self, session, coord):
        """Ends the thread."""
        self._created.set()

    def end(self, session):
        """Ends the thread."""
        self._created.set()

    def _report(self):
        started = time.monotonic()
        seconds = self.first
        while not self._created.wait(seconds):
            seconds = _POLL_SECONDS
            silent = [
                f"{name} ({address})"
                for name, address in self.addresses.items()
                if not network.accepts_connections(address)
            ]
            if silent and not self._created.is_set():
                waited = time.monotonic() - started
                print(f"waiting for {', '.join(silent)}: no answer for {waited:.0f} s", flush=True)
                seconds = self.every
