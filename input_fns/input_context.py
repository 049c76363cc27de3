"""Which rows of a global batch one call of an input_fn delivers."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Deployment:
    """One host's share of the work; hosts take consecutive rows of every global batch.

    Attributes:
      batch_size: examples in one element of the host's data set: those of one core under a
        TPUEstimator on a TPU, of one replica under a strategy, the global batch elsewhere.
      batches_per_step: elements that the host's cores take a step.
      host: index of this host.
      num_hosts: number of hosts.
    """

    batch_size: int
    batches_per_step: int = 1
    host: int = 0
    num_hosts: int = 1

    @property
    def host_batch_size(self) -> int:
        """Examples that this host delivers a step."""
        return self.batch_size * self.batches_per_step

    @property
    def global_batch_size(self) -> int:
        """Examples that all hosts deliver a step."""
        return self.host_batch_size * self.num_hosts


def of_params(params: dict[str, Any]) -> Deployment:
    """Returns the deployment that the `params` of an input_fn describe.

    `params["batch_size"]` is always there; `params["context"]`, a
    `tf.compat.v1.estimator.tpu.TPUContext`, under a TPUEstimator on a TPU;
    `params["input_context"]`, a `tf.distribute.InputContext`, under a strategy, where the batch
    size is the global one.
    """
    if "input_context" in params:
        return _of_strategy(params["batch_size"], params["input_context"])
    if "context" not in params:
        return Deployment(params["batch_size"])
    _, host, num_hosts, batches_per_step = params["context"].current_input_fn_deployment()
    return Deployment(params["batch_size"], batches_per_step, host, num_hosts)


def _of_strategy(global_batch_size, context):
    replicas, hosts = context.num_replicas_in_sync, context.num_input_pipelines
    return Deployment(
        global_batch_size // replicas, replicas // hosts, context.input_pipeline_id, hosts
    )
