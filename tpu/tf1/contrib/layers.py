"""tf.contrib.layers: what needs no tf_slim here, the rest from tf_slim."""

from __future__ import annotations

import tensorflow as tf

__all__ = ["layer_norm"]


def layer_norm(
    inputs,
    center=True,
    scale=True,
    activation_fn=None,
    reuse=None,
    variables_collections=None,
    outputs_collections=None,
    trainable=True,
    begin_norm_axis=1,
    begin_params_axis=-1,
    scope=None,
):
    """Returns the layer normalization of a tensor. Variables: `beta` and `gamma`.

    Args:
      inputs: float tensor, [batch, ...].
      center: whether to add `beta`.
      scale: whether to multiply by `gamma`.
      activation_fn: function of the result, or None.
      reuse: whether to reuse the variables; see tf.variable_scope.
      variables_collections: collections of the variables, or {"beta": collections, ...}.
      outputs_collections: collections of the result.
      trainable: whether the variables are trainable.
      begin_norm_axis: the first axis of those over which mean and variance are computed.
      begin_params_axis: the first axis of `beta` and `gamma`.
      scope: variable scope; default "LayerNorm".
    """
    v1 = tf.compat.v1
    with v1.variable_scope(scope, "LayerNorm", [inputs], reuse=reuse):
        inputs = tf.convert_to_tensor(inputs)
        rank = inputs.shape.rank
        if rank is None:
            raise ValueError(f"layer_norm of {inputs.name}: its rank is unknown")
        first_norm = begin_norm_axis % rank if begin_norm_axis < 0 else begin_norm_axis
        if begin_params_axis >= rank or first_norm >= rank:
            raise ValueError(
                f"layer_norm of {inputs.name}: begin_params_axis {begin_params_axis} and "
                f"begin_norm_axis {begin_norm_axis} must be less than the rank {rank}"
            )
        shape = inputs.shape[begin_params_axis:]
        if not shape.is_fully_defined():
            raise ValueError(f"layer_norm of {inputs.name}: {shape} is not fully defined")

        def variable(name, initializer):
            return v1.get_variable(
                name,
                shape,
                inputs.dtype.base_dtype,
                initializer,
                trainable=trainable,
                collections=_collections(variables_collections, name),
            )

        beta = variable("beta", v1.zeros_initializer()) if center else None
        gamma = variable("gamma", v1.ones_initializer()) if scale else None
        mean, variance = tf.nn.moments(inputs, list(range(first_norm, rank)), keepdims=True)
        # The smallest float16 number is 6e-8.
        epsilon = 1e-3 if inputs.dtype == tf.float16 else 1e-12
        outputs = tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, epsilon)
        outputs.set_shape(inputs.shape)
        outputs = activation_fn(outputs) if activation_fn else outputs
        for collection in _as_list(outputs_collections):
            v1.add_to_collection(collection, outputs)
        return outputs


def _collections(variables_collections, name):
    keys = tf.compat.v1.GraphKeys
    if isinstance(variables_collections, dict):
        variables_collections = variables_collections.get(name)
    default = [keys.GLOBAL_VARIABLES, keys.MODEL_VARIABLES]
    return [*default, *_as_list(variables_collections)]


def _as_list(value):
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple, set)) else [value]
