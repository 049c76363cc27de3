"""Losses of generator and discriminator.

    of_discriminator, of_generator = LOSSES["hinge"]

All take logits of a discriminator, float32 `[batch]`, which are high for real examples, and return
a loss per example.
"""

from __future__ import annotations

import tensorflow as tf

_EPSILON = 1e-12  # of a square root, whose gradient at 0 is infinite


def non_saturating_discriminator(real, generated):
    """Cross-entropy of real and generated (Goodfellow et al. 2014, arXiv:1406.2661)."""
    return tf.nn.softplus(-real) + tf.nn.softplus(generated)


def non_saturating_generator(generated):
    """Cross-entropy of the wrong answer, "real" (section 3 there)."""
    return tf.nn.softplus(-generated)


def hinge_discriminator(real, generated):
    """Hinge loss (Lim and Ye 2017, arXiv:1705.02894; Miyato et al. 2018, equation 16)."""
    return tf.nn.relu(1 - real) + tf.nn.relu(1 + generated)


def wasserstein_discriminator(real, generated):
    """Difference of the scores (Arjovsky et al. 2017, arXiv:1701.07875)."""
    return generated - real


def score_generator(generated):
    """The score itself, which the generator raises: with hinge and Wasserstein loss."""
    return -generated


def gradient_penalty(score, real, generated, mix):
    """Penalty of gradients whose norm is not 1 (Gulrajani et al. 2017, arXiv:1704.00028).

    Args:
      score: function from images to logits `[batch]`, without batch norm: the gradient of an
        example must not depend on others.
      real: `[batch, height, width, channels]`.
      generated: like `real`.
      mix: float32 `[batch]` in [0, 1), where the gradient is taken between both; uniform random
        numbers.

    Returns:
      float32 `[batch]`, `(|gradient| - 1)^2` at `mix * real + (1 - mix) * generated`.
    """
    mix = tf.cast(mix, real.dtype)[:, tf.newaxis, tf.newaxis, tf.newaxis]
    between = generated + mix * (real - generated)
    (gradient,) = tf.gradients(score(between), between)
    squares = tf.square(tf.cast(gradient, tf.float32))
    return tf.square(tf.sqrt(tf.reduce_sum(squares, [1, 2, 3]) + _EPSILON) - 1)


# Name -> losses of the discriminator and of the generator.
LOSSES = {
    "non_saturating": (non_saturating_discriminator, non_saturating_generator),
    "hinge": (hinge_discriminator, score_generator),
    "wasserstein_gp": (wasserstein_discriminator, score_generator),
}
