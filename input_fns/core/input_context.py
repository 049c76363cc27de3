"""The rows of each global batch that one call of an input_fn delivers."""

from __future__ import annotations

import dataclasses
from typing import Any

DATA_WORKER = "data_worker"


@dataclasses.dataclass(frozen=True)
class HostShard:
    """The consecutive rows of every global batch that one host delivers.

    Attributes:
      batch_size: rows of one element of the host's `tf.data.Dataset`: the per-core batch under a
        TPUEstimator on a TPU, the per-replica batch under a strategy, else the global batch.
      batches_per_step: elements that the host's cores consume per step.
      host: index of the host.
      num_hosts: number of hosts.
      worker: index of the worker of a tf.data service; see `core.data_service`. In training it
        delivers the elements `worker`, `worker + num_workers`, ... of the host's.
      num_workers: number of such workers; 1 without a service.
    """

    batch_size: int
    batches_per_step: int = 1
    host: int = 0
    num_hosts: int = 1
    worker: int = 0
    num_workers: int = 1

    @property
    def host_batch_size(self) -> int:
        """Rows that this host delivers per step."""
        return self.batch_size * self.batches_per_step

    @property
    def global_batch_size(self) -> int:
        """Rows that all hosts deliver per step."""
        return self.host_batch_size * self.num_hosts


def from_params(params: dict[str, Any]) -> HostShard:
    """Returns the host shard that the `params` of an input_fn describe.

    Args:
      params: `"batch_size"`, always; `"context"`, a `tf.compat.v1.estimator.tpu.TPUContext`, under
        a TPUEstimator on a TPU; `"input_context"`, a `tf.distribute.InputContext`, under a
        strategy, in which case the batch size is the global one; `DATA_WORKER`, `(worker,
        num_workers)`, in training from a tf.data service.
    """
    batch_size, workers = params["batch_size"], params.get(DATA_WORKER, (0, 1))
    if "input_context" in params:
        context = params["input_context"]
        replicas, hosts = context.num_replicas_in_sync, context.num_input_pipelines
        return HostShard(
            batch_size // replicas, replicas // hosts, context.input_pipeline_id, hosts, *workers
        )
    if "context" not in params:
        return HostShard(batch_size, 1, 0, 1, *workers)
    _, host, num_hosts, batches_per_step = params["context"].current_input_fn_deployment()
    return HostShard(batch_size, batches_per_step, host, num_hosts, *workers)
