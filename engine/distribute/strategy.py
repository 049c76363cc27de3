"""Training on several devices in step: each computes its part of the global batch."""

from __future__ import annotations

import tensorflow as tf

from common.errors import UsageError


def create(name: str, replicas: int, train_batch_size: int, accumulate_steps: int):
    """Returns the arguments of a `tf.estimator.RunConfig` that train by a strategy.

    Args:
      name: "none", "mirrored" or "multi_worker_mirrored".
      replicas: devices of "mirrored": GPUs or, where there is none, parts of the CPU; 0: all GPUs.
      train_batch_size: global.
      accumulate_steps: must be 1.

    Raises:
      UsageError: there are not so many devices, or the batch cannot be cut.
    """
    if name == "none":
        return {}
    if accumulate_steps > 1:
        raise UsageError(f"--accumulate_steps is not for --strategy={name}")
    if name == "mirrored":
        strategy, session_config = _mirrored(replicas)
    else:
        strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy()
        session_config = None
    count = strategy.num_replicas_in_sync
    if train_batch_size % count:
        below = train_batch_size // count * count
        raise UsageError(
            f"--train_batch_size={train_batch_size} cannot be cut over {count} replicas; "
            f"{below or count} or {below + count} would do"
        )
    print(f"--strategy={name}: {count} replicas, {train_batch_size // count} examples a step each")
    return {"train_distribute": strategy, "session_config": session_config}


def _mirrored(replicas):
    gpus = len(tf.config.list_physical_devices("GPU"))
    if gpus:
        if replicas > gpus:
            raise UsageError(f"--replicas={replicas}, but there are {gpus} GPUs")
        devices = [f"/gpu:{i}" for i in range(replicas or gpus)]
        return tf.distribute.MirroredStrategy(devices), None
    devices = [f"/cpu:{i}" for i in range(replicas or 1)]
    session_config = tf.compat.v1.ConfigProto(
        device_count={"CPU": len(devices)}, allow_soft_placement=True
    )
    return tf.distribute.MirroredStrategy(devices), session_config
