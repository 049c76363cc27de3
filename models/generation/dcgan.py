"""DCGAN (Radford et al. 2015, arXiv:1511.06434), without classes.

    images = inference({"image": images, "latent": latents}, params, training=True)["image"]

Scopes: `generator/project`, `generator/up_1` ..., `discriminator/down_1` ..., `logits`.
"""

from __future__ import annotations

import tensorflow as tf

from models.generation import gan
from models.layers.normalization import batch_norm
from models.layers.strided_convolution import doubling_conv2d, halving_conv2d
from models.model import ModelError, check_positive

_SLOPE = 0.2  # of leaky ReLU


def default_params():
    """Returns the hyperparameters."""
    return {
        **gan.default_params(),
        "gan_loss": "non_saturating",
        "width": 64,  # channels of the largest feature maps; doubled by each halving of their sides
        # 5 in the paper's code; a multiple of the stride gives each pixel equally many terms.
        "kernel_size": 4,
        "discriminator_batch_norm": True,
    }


def check_params(params):
    """Raises `ModelError` for a value out of range."""
    gan.check_params(params)
    check_positive(params, "width", "kernel_size")
    if not gan.num_stages(params):
        raise ModelError(
            f"image_shape={params['image_shape']}: height and width must be at least 8. Set "
            "--image_size, or use sngan"
        )
    if params["gan_loss"] == "wasserstein_gp" and params["discriminator_batch_norm"]:
        raise ModelError(
            "gan_loss=wasserstein_gp needs discriminator_batch_norm=false: the gradient penalty "
            "is that of single examples"
        )


def generate(latents, classes, params, training):
    """Projects latents to small feature maps and doubles their sides by transposed convolutions.

    Args:
      latents: float32 or bfloat16 `[batch, latent_size]`.
      classes: None.
      params: see `default_params`.
      training: True lets batch norm use batch statistics and update its moving averages.

    Returns:
      Images in [-1, 1], `[batch, height, width, channels]`.
    """
    del classes
    *sides, channels = params["image_shape"]
    stages = gan.num_stages(params)
    height, width = (side // 2**stages for side in sides)
    filters = params["width"] * 2 ** (stages - 1)
    with tf.compat.v1.variable_scope("project"):
        x = _dense(latents, height * width * filters)
        x = tf.reshape(x, [-1, height, width, filters])
        x = tf.nn.relu(batch_norm(x, params, training))
    for i in range(1, stages):
        filters //= 2
        with tf.compat.v1.variable_scope(f"up_{i}"):
            x = _convolved(doubling_conv2d, x, filters, params, use_bias=False)
            x = tf.nn.relu(batch_norm(x, params, training))
    with tf.compat.v1.variable_scope(f"up_{stages}"):
        return tf.tanh(_convolved(doubling_conv2d, x, channels, params))


def discriminate(images, classes, params, training):
    """Halves the sides by convolutions with strides of 2; a dense layer gives the logit.

    Args:
      images: float32 or bfloat16 `[batch, height, width, channels]`, in [-1, 1].
      classes: None.
      params: see `default_params`.
      training: see `generate`.

    Returns:
      `[batch]`.
    """
    del classes
    x = images
    for i in range(gan.num_stages(params)):
        # The first layer sees the images without batch norm (section 3).
        has_norm = i > 0 and params["discriminator_batch_norm"]
        with tf.compat.v1.variable_scope(f"down_{i + 1}"):
            filters = params["width"] * 2**i
            x = _convolved(halving_conv2d, x, filters, params, use_bias=not has_norm)
            if has_norm:
                x = batch_norm(x, params, training)
            x = tf.nn.leaky_relu(x, _SLOPE)
    with tf.compat.v1.variable_scope("logits"):
        features = tf.reshape(x, [-1, x.shape[1:].num_elements()])
        return _dense(features, 1)[:, 0]


def _dense(x, units):
    return tf.compat.v1.layers.dense(x, units, kernel_initializer=_initializer(), name="dense")


def _convolved(convolution, x, filters, params, use_bias=True):
    """Applies `halving_conv2d` or `doubling_conv2d` with the kernel and bias of scope `conv`."""
    channels, size = [x.shape.as_list()[-1], filters], params["kernel_size"]
    if convolution is doubling_conv2d:
        channels.reverse()
    with tf.compat.v1.variable_scope("conv"):
        kernel = tf.compat.v1.get_variable(
            "kernel", [size, size, *channels], x.dtype, initializer=_initializer()
        )
        y = convolution(x, kernel)
        if not use_bias:
            return y
        zeros = tf.zeros_initializer()
        bias = tf.compat.v1.get_variable("bias", [filters], x.dtype, initializer=zeros)
        return tf.nn.bias_add(y, bias)


def _initializer():
    return tf.compat.v1.random_normal_initializer(stddev=0.02)


MODEL = gan.model("dcgan", default_params, generate, discriminate, check_params)
