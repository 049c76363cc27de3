"""Conditional GAN of residual blocks with spectral normalization of the discriminator.

SNGAN (Miyato et al. 2018, arXiv:1802.05957, appendix B.4) with the projection discriminator of
Miyato and Koyama 2018 (arXiv:1802.05637); the generator has conditional batch norm. As in BigGAN
(Brock et al. 2018, arXiv:1809.11096) the channels double where the sides halve.

    features = {"image": images, "latent": latents, "class_id": classes}
    images = inference(features, params, training=True)["image"]

Scopes: `generator/project`, `generator/block_1` ..., `generator/image`; `discriminator/block_1`
..., `discriminator/logits`, `discriminator/class`.
"""

from __future__ import annotations

import tensorflow as tf

from models.generation import gan
from models.layers import spectral_norm
from models.layers.conditional_batch_norm import conditional_batch_norm
from models.layers.normalization import batch_norm
from models.layers.resize import double
from models.model import check_not_negative, check_positive


def default_params():
    """Returns the hyperparameters."""
    return {
        **gan.default_params(),
        "num_classes": 10,  # set by the data set
        "width": 64,  # channels of the largest feature maps; doubled by each halving of their sides
        "last_blocks": 1,  # of the discriminator, after the last halving
    }


def check_params(params):
    """Raises `ModelError` for a value out of range."""
    gan.check_params(params)
    check_positive(params, "num_classes", "width")
    check_not_negative(params, "last_blocks")


def generate(latents, classes, params, training):
    """Projects latents to small feature maps; each block doubles their sides.

    Args:
      latents: float32 or bfloat16 `[batch, latent_size]`.
      classes: one-hot `[batch, num_classes]`.
      params: see `default_params`.
      training: True lets batch norm use batch statistics and update its moving averages.

    Returns:
      Images in [-1, 1], `[batch, height, width, channels]`.
    """
    *sides, channels = params["image_shape"]
    stages = gan.num_stages(params)
    height, width = (side // 2**stages for side in sides)
    filters = params["width"] * 2**stages
    x = tf.compat.v1.layers.dense(
        latents, height * width * filters, kernel_initializer=_initializer(), name="project"
    )
    x = tf.reshape(x, [-1, height, width, filters])
    for i in range(1, stages + 1):
        filters //= 2
        with tf.compat.v1.variable_scope(f"block_{i}"):
            x = _up(x, classes, filters, params, training)
    with tf.compat.v1.variable_scope("image"):
        x = tf.nn.relu(batch_norm(x, params, training))
        return tf.tanh(_conv2d(x, channels, 3, "conv"))


def _up(x, classes, filters, params, training):
    """Residual block of the generator: `[batch, 2 * height, 2 * width, filters]` (figure 7)."""
    shortcut = double(_conv2d(x, filters, 1, "shortcut"))
    x = conditional_batch_norm(x, classes, params, training, "batch_norm_1")
    x = _conv2d(double(tf.nn.relu(x)), filters, 3, "conv_1")
    x = conditional_batch_norm(x, classes, params, training, "batch_norm_2")
    return shortcut + _conv2d(tf.nn.relu(x), filters, 3, "conv_2")


def discriminate(images, classes, params, training):
    """Blocks that halve the sides, and the logit: that of any class, plus that of the class.

    Args:
      images: float32 or bfloat16 `[batch, height, width, channels]`, in [-1, 1].
      classes: one-hot `[batch, num_classes]`.
      params: see `default_params`.
      training: see `spectral_norm.spectral_norm`.

    Returns:
      `[batch]`.
    """
    x, stages = images, gan.num_stages(params)
    for i in range(stages + params["last_blocks"]):
        filters = params["width"] * 2 ** min(i, stages)
        with tf.compat.v1.variable_scope(f"block_{i + 1}"):
            x = _down(x, filters, training, is_first=i == 0, is_halved=i < stages)
    x = tf.reduce_sum(tf.cast(tf.nn.relu(x), tf.float32), [1, 2])
    x = tf.cast(x, images.dtype)
    logits = spectral_norm.dense(x, 1, training, "logits")[:, 0]
    embedded = spectral_norm.dense(classes, x.shape[-1], training, "class", use_bias=False)
    return logits + tf.reduce_sum(embedded * x, 1)


def _down(x, filters, training, is_first, is_halved):
    """Residual block of the discriminator; the first one sees images, before a ReLU."""

    def conv2d(x, size, name):
        return spectral_norm.conv2d(x, filters, size, training, name)

    def halved(x):
        return tf.nn.avg_pool2d(x, 2, 2, "VALID") if is_halved else x

    # A 1x1 convolution after pooling is that before it, with a fourth of the products.
    has_conv = is_halved or filters != x.shape[-1]
    shortcut = conv2d(halved(x), 1, "shortcut") if has_conv else x
    x = conv2d(x if is_first else tf.nn.relu(x), 3, "conv_1")
    return shortcut + halved(conv2d(tf.nn.relu(x), 3, "conv_2"))


def _conv2d(x, filters, kernel_size, name):
    return tf.compat.v1.layers.conv2d(
        x, filters, kernel_size, padding="same", kernel_initializer=_initializer(), name=name
    )


def _initializer():
    return tf.compat.v1.glorot_uniform_initializer()


MODEL = gan.model(
    "sngan", default_params, generate, discriminate, check_params, is_conditional=True
)
