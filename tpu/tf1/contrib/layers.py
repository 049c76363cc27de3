"""tf.contrib.layers: what needs no tf_slim here, the rest from tf_slim."""

from __future__ import annotations

import numbers

import tensorflow as tf

__all__ = [
    "embed_sequence",
    "l1_regularizer",
    "l2_regularizer",
    "layer_norm",
    "variance_scaling_initializer",
    "xavier_initializer",
    "xavier_initializer_conv2d",
]

# Standard deviation of a normal distribution of 1 that is truncated at 2: 2.15 divides by it.
_TRUNCATED = 0.87962566103423978


def variance_scaling_initializer(
    factor=2.0, mode="FAN_IN", uniform=False, seed=None, dtype=tf.float32
):
    """Returns an initializer of He et al. 2015; see `xavier_initializer`.

    Args:
      factor: of the variance, which is `factor / n`.
      mode: "FAN_IN", "FAN_OUT" or "FAN_AVG": what n is.
      uniform: True for a uniform distribution, False for a truncated normal one.
      seed: of the random numbers.
      dtype: of the variables.

    Raises:
      TypeError: the dtype is not floating point.
      ValueError: the mode is not known, or the factor not positive.
    """
    if not tf.as_dtype(dtype).is_floating:
        raise TypeError(f"variance_scaling_initializer: dtype {dtype} is not floating point")
    kind = "uniform" if uniform else "truncated_normal"
    # 1.x makes up for the truncation by a factor of 1.3.
    scale = factor if uniform else 1.3 * factor * _TRUNCATED**2
    return tf.compat.v1.variance_scaling_initializer(scale, mode.lower(), kind, seed, dtype)


def xavier_initializer(uniform=True, seed=None, dtype=tf.float32):
    """Returns an initializer of Glorot and Bengio 2010."""
    return variance_scaling_initializer(1.0, "FAN_AVG", uniform, seed, dtype)


xavier_initializer_conv2d = xavier_initializer


def l1_regularizer(scale, scope=None):
    """Returns a function of a tensor: `scale` times the sum of its absolute values."""
    return _regularizer(scale, scope, "l1_regularizer", lambda x: tf.reduce_sum(tf.abs(x)))


def l2_regularizer(scale, scope=None):
    """Returns a function of a tensor: `scale` times half the sum of its squares."""
    return _regularizer(scale, scope, "l2_regularizer", tf.nn.l2_loss)


def _regularizer(scale, scope, name, loss_of):
    if isinstance(scale, numbers.Integral):
        raise ValueError(f"{name}: the scale {scale} must be a float")
    if isinstance(scale, numbers.Real) and scale < 0:
        raise ValueError(f"{name}: the scale {scale} must not be negative")
    if isinstance(scale, numbers.Real) and scale == 0:
        return lambda _: None

    def regularize(weights):
        with tf.name_scope(scope or name):
            return tf.multiply(tf.cast(scale, weights.dtype.base_dtype), loss_of(weights))

    return regularize


def embed_sequence(
    ids,
    vocab_size=None,
    embed_dim=None,
    unique=False,
    initializer=None,
    regularizer=None,
    trainable=True,
    scope=None,
    reuse=None,
):
    """Returns the embeddings [batch, length, embed_dim] of ids. Variable: `embeddings`.

    Args:
      ids: int tensor, [batch, length].
      vocab_size: number of rows of the variable; may be None if it is reused.
      embed_dim: size of an embedding; may be None if the variable is reused.
      unique: whether to look each id up once. It has no effect: the embeddings are the same, and
        the number of different ids is no static shape.
      initializer: of the variable.
      regularizer: function of the variable, or None.
      trainable: whether the variable is trainable.
      scope: variable scope; default "EmbedSequence".
      reuse: whether to reuse the variable; see tf.variable_scope.

    Raises:
      ValueError: a size is not given, and the variable is not reused.
    """
    if not (reuse or (vocab_size and embed_dim)):
        raise ValueError(
            "embed_sequence: give vocab_size and embed_dim, or reuse the variable; got "
            f"{vocab_size} and {embed_dim}"
        )
    v1 = tf.compat.v1
    with v1.variable_scope(scope, "EmbedSequence", [ids], reuse=reuse):
        embeddings = v1.get_variable(
            "embeddings",
            [vocab_size, embed_dim] if vocab_size and embed_dim else None,
            initializer=initializer,
            regularizer=regularizer,
            trainable=trainable,
            collections=_collections(None, "embeddings"),
        )
        return v1.nn.embedding_lookup(embeddings, ids)


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
