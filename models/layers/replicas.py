"""How many devices share a global batch, and sums over all of them.

The cores of a TPU under a TPUEstimator, the devices of a `tf.distribute.Strategy` under an
Estimator; otherwise there is one.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

_GRADIENT = "SumOverReplicas"


def count(params: dict[str, Any]) -> int:
    """Returns how many share the global batch; `params` are those of the model_fn."""
    if params.get("use_tpu"):
        return params["context"].num_replicas
    return tf.distribute.get_strategy().num_replicas_in_sync


def total(tensor: tf.Tensor, params: dict[str, Any]) -> tf.Tensor:
    """Returns the sum of a tensor over all devices, on each of them; it has a gradient."""
    if count(params) == 1:
        return tensor
    if params.get("use_tpu"):
        return tf.compat.v1.tpu.cross_replica_sum(tensor)
    (summed,) = sum_over_strategy([tensor])
    with tf.compat.v1.get_default_graph().gradient_override_map({"IdentityN": _GRADIENT}):
        return tf.identity_n([tensor, tf.stop_gradient(summed)])[1]


def sum_over_strategy(tensors: list[tf.Tensor]) -> list[tf.Tensor]:
    """Returns the sums over the replicas of a strategy; they have no gradient of use."""

    def add(strategy, *values):
        pairs = [(value, value) for value in values]  # the sum goes where the value was
        return strategy.extended.batch_reduce_to(tf.distribute.ReduceOp.SUM, pairs)

    return list(tf.distribute.get_replica_context().merge_call(add, args=tensors))


@tf.RegisterGradient(_GRADIENT)
def _gradient(op, of_tensor, of_sum):
    # What any replica makes of the sum depends on the tensor of each. The context's own all_reduce
    # knows, too, but in a version 1 graph it does not find the other replicas' variables.
    del op
    return of_tensor + sum_over_strategy([of_sum])[0], None
