"""Synchronous data parallelism by a tf.distribute strategy (--strategy)."""

from __future__ import annotations

import tensorflow as tf

from common.errors import UsageError


def run_config_args(name: str, replicas: int, train_batch_size: int, accumulate_steps: int):
    """Returns the arguments of `tf.estimator.RunConfig` that train with a strategy, as a dict.

    Args:
      name: "none", "mirrored" or "multi_worker_mirrored".
      replicas: GPUs of "mirrored", 0 for all; without a GPU, virtual CPU devices.
      train_batch_size: global.
      accumulate_steps: must be 1.

    Raises:
      UsageError: there are fewer GPUs, the batch is not divisible, or accumulate_steps is above 1.
    """
    if name == "none":
        return {}
    if accumulate_steps > 1:
        raise UsageError(
            f"--accumulate_steps={accumulate_steps} cannot be combined with --strategy={name}. "
            "Remove one of them"
        )
    session_config = None
    if name == "multi_worker_mirrored":
        strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy()
    elif gpus := len(tf.config.list_physical_devices("GPU")):
        if replicas > gpus:
            raise UsageError(f"--replicas={replicas}, but this machine has {gpus} GPUs")
        strategy = tf.distribute.MirroredStrategy([f"/gpu:{i}" for i in range(replicas or gpus)])
    else:
        devices = [f"/cpu:{i}" for i in range(replicas or 1)]
        session_config = tf.compat.v1.ConfigProto(
            device_count={"CPU": len(devices)}, allow_soft_placement=True
        )
        strategy = tf.distribute.MirroredStrategy(devices)
    count = strategy.num_replicas_in_sync
    if train_batch_size % count:
        below = train_batch_size // count * count
        raise UsageError(
            f"--train_batch_size={train_batch_size} is not divisible by {count} replicas. Use "
            f"{f'{below} or ' if below else ''}{below + count}"
        )
    print(
        f"--strategy={name}: {count} replicas, {train_batch_size // count} examples per step each"
    )
    return {"train_distribute": strategy, "session_config": session_config}
