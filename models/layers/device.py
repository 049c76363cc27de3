"""The device that layers are built for: a TPU core, a replica of a strategy, or a single device.

`engine.train.forward.infer` enters `scope(params)` before it calls an inference function, so that
layers choose the form that is fast on a TPU and inference functions need no device code:

    # params of the model_fn; TPUEstimator adds use_tpu and context
    with device.scope(params):
        outputs = model.inference(features, params, training)

Outside a scope the device is not a TPU.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla

_GRADIENT = "CrossReplicaSumOverStrategy"
# A tf.distribute strategy builds each replica in a thread, all in one graph.
_THREAD = threading.local()


@dataclasses.dataclass(frozen=True)
class Device:
    """The device of a part of the graph.

    Keep it (`here = device.current()`) for code that runs after the scope has ended, such as the
    gradient function of `tf.custom_gradient`.
    """

    is_tpu: bool = False  # True for a core of a TPU under a TPUEstimator
    tpu_replicas: int = 1  # number of TPU cores that share the global batch; unused elsewhere
    # True if `fusion` compiles parts of the graph: in training and evaluation on a CPU.
    fuses: bool = False

    @property
    def num_replicas(self) -> int:
        """Number of replicas that share the global batch."""
        if self.is_tpu:
            return self.tpu_replicas
        return tf.distribute.get_strategy().num_replicas_in_sync

    @property
    def replica_index(self) -> tf.Tensor:
        """Index of this replica in [0, num_replicas), int32 scalar."""
        if self.num_replicas == 1:
            return tf.constant(0)
        if self.is_tpu:
            return xla.replica_id()
        return tf.convert_to_tensor(
            tf.distribute.get_replica_context().replica_id_in_sync_group, tf.int32
        )

    def cross_replica_concat(self, tensor: tf.Tensor) -> tf.Tensor:
        """Concatenates float tensors `[batch, ...]` of all replicas in their order; differentiable.

        Returns:
          `[num_replicas * batch, ...]`, the same on each replica. An all-gather would need less
          communication, but TensorFlow has none for TPUs.
        """
        if self.num_replicas == 1:
            return tensor
        is_own = tf.equal(tf.range(self.num_replicas), self.replica_index)
        is_own = tf.reshape(is_own, [-1, *[1] * tensor.shape.rank])
        blocks = tf.where(is_own, tensor, tf.zeros_like(tensor))  # [num_replicas, batch, ...]
        return tf.reshape(self.cross_replica_sum(blocks), [-1, *tensor.shape.as_list()[1:]])

    def cross_replica_sum(self, tensor: tf.Tensor) -> tf.Tensor:
        """Returns the sum of a float tensor over all replicas, on each of them; differentiable."""
        if self.num_replicas == 1:
            return tensor
        if self.is_tpu:
            return tf.compat.v1.tpu.cross_replica_sum(tensor)
        (total,) = sum_over_strategy([tensor])
        with tf.compat.v1.get_default_graph().gradient_override_map({"IdentityN": _GRADIENT}):
            return tf.identity_n([tensor, tf.stop_gradient(total)])[1]


def from_params(params: dict[str, Any], fuses: bool = False) -> Device:
    """Returns the device of a model_fn's `params`, in which TPUEstimator sets use_tpu, context.

    Args:
      params: all hyperparameters.
      fuses: True if `fusion` may compile parts of the graph; a TPU and a GPU do without it.
    """
    if params.get("use_tpu"):
        # Tests and tools that build one core's graph have no TPU context.
        return Device(True, params["context"].num_replicas if "context" in params else 1)
    return Device(fuses=fuses and not tf.config.list_physical_devices("GPU"))


@contextlib.contextmanager
def scope(params: dict[str, Any], fuses: bool = False):
    """Builds the layers inside the `with` for a device, see `from_params`."""
    before = current()
    _THREAD.device = from_params(params, fuses)
    try:
        yield
    finally:
        _THREAD.device = before


def current() -> Device:
    """Returns the device of the innermost `scope`."""
    return getattr(_THREAD, "device", Device())


def is_tpu() -> bool:
    """Returns whether layers are being built for a TPU core."""
    return current().is_tpu


def sum_over_strategy(tensors: list[tf.Tensor]) -> list[tf.Tensor]:
    """Returns the sums over the replicas of a `tf.distribute.Strategy`; not differentiable."""

    def add(strategy, *values):
        pairs = [(value, value) for value in values]  # (value, destination)
        return strategy.extended.batch_reduce_to(tf.distribute.ReduceOp.SUM, pairs)

    return list(tf.distribute.get_replica_context().merge_call(add, args=tensors))


@tf.RegisterGradient(_GRADIENT)
def _cross_replica_sum_gradient(op, tensor_gradient, sum_gradient):
    # Each replica's use of the sum contributes to the gradient of every replica's tensor. The
    # replica context's all_reduce does the same, but not in a v1 graph: there it does not find the
    # variables of the other replicas.
    del op
    return tensor_gradient + sum_over_strategy([sum_gradient])[0], None
