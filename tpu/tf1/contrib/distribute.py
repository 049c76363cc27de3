"""tf.contrib.distribute: strategies that programs use without a TPU."""

from __future__ import annotations

import tensorflow as tf

__all__ = ["MirroredStrategy"]


class MirroredStrategy(tf.compat.v1.distribute.MirroredStrategy):
    """tf.distribute.MirroredStrategy with the old ways to name the devices."""

    def __init__(
        self,
        devices=None,
        num_gpus=None,
        num_gpus_per_worker=None,
        cross_device_ops=None,
        auto_shard_dataset=False,
        cross_tower_ops=None,
    ):
        del auto_shard_dataset
        count = num_gpus if num_gpus is not None else num_gpus_per_worker
        if devices is None and count is not None:
            available = len(tf.config.list_physical_devices("GPU"))
            devices = [f"/gpu:{i}" for i in range(min(count, available))] or ["/cpu:0"]
        super().__init__(devices, cross_device_ops or cross_tower_ops)
