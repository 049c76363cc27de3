"""Rematerialization: less memory for activations, for a second forward pass (arXiv:1604.06174)."""

from __future__ import annotations

import contextlib

import tensorflow as tf

from models.layers import device, dropout


def recompute(block, x, params):
    """Returns `block(x)`, and computes it again in the backward pass.

    Only `x` is kept until then, not the activations of the block. `tf.recompute_grad` would build
    the block again without its variable scope, device and dropout seeds; and in a graph without
    TensorFlow 2 behavior XLA would merge the second forward pass with the first.

    Args:
      block: function of a tensor that returns a tensor. It gets variables by
        `tf.compat.v1.get_variable` and random numbers by `dropout` only.
      x: float32 or bfloat16 `[batch, ...]`.
      params: params of the model_fn.
    """
    scope, seeds = tf.compat.v1.get_variable_scope(), dropout.next_seeds()
    graph = tf.compat.v1.get_default_graph()
    overrides = dict(graph._gradient_override_map)  # has no public reader

    @tf.custom_gradient
    def run(x):
        y = block(x)

        def gradient(upstream, variables=()):
            with contextlib.ExitStack() as stack:
                stack.enter_context(tf.compat.v1.variable_scope(scope, reuse=True))
                stack.enter_context(graph.gradient_override_map(overrides))
                stack.enter_context(device.scope(params, fuses=True))
                stack.enter_context(dropout.replayed(seeds))
                x_again = _after(upstream, x)
                y_again = block(x_again)
            # The variables are reachable through x_again too, which depends on upstream.
            gradients = tf.gradients(
                y_again, [x_again, *variables], upstream, stop_gradients=[x_again]
            )
            return gradients[0], gradients[1:]

        return y, gradient

    return run(x)


def _after(upstream, x):
    """Returns `x` as a value that depends on `upstream`, because XLA ignores control inputs."""
    first = tf.reshape(upstream, [-1])[0]
    # XLA cannot know that this is 0.
    zero = tf.where(tf.math.is_nan(first), first, tf.zeros_like(first))
    return x + tf.cast(zero, x.dtype)
