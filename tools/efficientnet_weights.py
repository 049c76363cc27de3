"""EfficientNet's weights of other programs; `keras_weights` is the command.

Both programs scale each color channel of the pixels by another number, this package all by one. The
rest of the factor is part of the first kernel.
"""

from __future__ import annotations

import re

import numpy as np
import tensorflow as tf

from common.errors import UsageError
from common.params import Floats
from engine.checkpoints import ema
from models.vision import efficientnet

# Keras layer -> variable scope. Keras names a block by the stage and a letter.
KERAS_LAYERS = (
    (r"stem_conv", "stem/conv"),
    (r"stem_bn", "stem/batch_norm"),
    (r"block([0-9][a-z])_expand_conv", "block_{0}/expand"),
    (r"block([0-9][a-z])_expand_bn", "block_{0}/expand_norm"),
    (r"block([0-9][a-z])_dwconv2?", "block_{0}/depthwise"),
    (r"block([0-9][a-z])_bn", "block_{0}/depthwise_norm"),
    (r"block([0-9][a-z])_se_(reduce|expand)", "block_{0}/squeeze_excite/{1}"),
    (r"block([0-9][a-z])_project_conv", "block_{0}/project"),
    (r"block([0-9][a-z])_project_bn", "block_{0}/project_norm"),
    (r"top_conv", "head/conv"),
    (r"top_bn", "head/batch_norm"),
    (r"normalization(?:_[0-9]{1,3})?", "normalization"),
    (r"predictions", "logits"),
)
# Layers of tensorflow/tpu outside of the blocks; a block numbers its layers of a kind.
_GOOGLE_LAYERS = {
    "stem/conv2d": "stem/conv",
    "stem/batch_normalization": "stem/batch_norm",
    "head/conv2d": "head/conv",
    "head/batch_normalization": "head/batch_norm",
    "head/dense": "logits",
}
_GOOGLE_VARIABLE = re.compile(
    r"efficientnet-\w+/(.+)/(kernel|bias|depthwise_kernel|gamma|beta|moving_mean|moving_variance)"
)
# Of the pixels of ImageNet, divided by 255.
_MEANS, _DEVIATIONS = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


def from_keras(variables):
    """Returns `({variable name: array}, {hyperparameter: value})`.

    Args:
      variables: of an EfficientNet of `tf.keras.applications`, by the scopes of `KERAS_LAYERS`.

    Raises:
      UsageError: a network of other channels or numbers of blocks.
    """
    blocks = sorted({name.split("/")[0] for name in variables if name.startswith("block_")})
    numbers = {block: f"block_{i}" for i, block in enumerate(blocks, start=1)}
    found = {}
    for name, array in variables.items():
        block, _, rest = name.partition("/")
        found[f"{numbers.get(block, block)}/{rest}"] = array
    normalization = [found.pop(f"normalization/{key}", None) for key in ("mean", "variance")]
    found.pop("normalization/count", None)
    params = _size_params(found)
    if params["stages"] in ("v2s", "v2m", "v2l"):
        return _without_pixels(found), params
    if params["stages"] == "v2b":
        return _with_scaling(found, params, _MEANS, _DEVIATIONS)
    if any(array is None or array.size != 3 for array in normalization):
        raise UsageError("the layer normalization has no mean and variance of three colors")
    mean, variance = (array.reshape(-1).astype(np.float64) for array in normalization)
    # Keras' files with ImageNet weights have deviations in place of variances; its networks with
    # weights="imagenet" have another layer that makes up for that.
    is_deviation = np.allclose(variance, _DEVIATIONS, rtol=1e-3)
    return _with_scaling(found, params, mean, variance if is_deviation else variance**0.5)


def is_google_checkpoint(path: str) -> bool:
    """Returns whether `path` is a checkpoint of tensorflow/tpu's EfficientNet, or its folder."""
    try:
        return any(map(_GOOGLE_VARIABLE.fullmatch, _reader(path).get_variable_to_shape_map()))
    except (ValueError, tf.errors.OpError):
        return False


def from_google(path: str):
    """Returns `({variable name: array}, {hyperparameter: value})`, of the EMA if there is one.

    Args:
      path: see `is_google_checkpoint`.

    Raises:
      UsageError: a network of other channels or numbers of blocks.
    """
    reader = _reader(path)
    shapes = reader.get_variable_to_shape_map()
    found = {}
    for match in filter(None, map(_GOOGLE_VARIABLE.fullmatch, shapes)):
        average = ema.average_name(match[0])
        name = f"{_google_scope(match[1], match[0], shapes)}/{match[2]}"
        found[name] = reader.get_tensor(average if average in shapes else match[0])
    params = _size_params(found)
    if "logits/kernel" in found:
        params["num_classes"] = found["logits/kernel"].shape[-1]
    return _with_scaling(found, params, _MEANS, _DEVIATIONS)


def _reader(path):
    prefix = tf.train.latest_checkpoint(path) if tf.io.gfile.isdir(path) else path
    return tf.train.load_checkpoint(prefix or path)


def _google_scope(layer, name, names):
    """Returns the scope of a layer such as `blocks_3/tpu_batch_normalization_2`.

    Args:
      layer: its name in the network.
      name: of one of its variables.
      names: of all variables.
    """
    layer = layer.replace("tpu_batch", "batch")
    block, _, rest = layer.partition("/")
    if not block.startswith("blocks_"):
        return _GOOGLE_LAYERS.get(layer, layer)
    expands = f"{name.partition('/')[0]}/{block}/conv2d_1/kernel" in names
    parts = ["expand"] * expands + ["depthwise", "project"]
    convs = {f"conv2d_{i}": part for i, part in enumerate(["expand"] * expands + ["project"])}
    norms = {f"batch_normalization_{i}": f"{part}_norm" for i, part in enumerate(parts)}
    squeeze = {"se/conv2d_0": "squeeze_excite/reduce", "se/conv2d_1": "squeeze_excite/expand"}
    scopes = {**convs, **norms, **squeeze, "depthwise_conv2d_0": "depthwise"}
    numbered = rest if re.search(r"_\d+$", rest) else f"{rest}_0"
    return f"block_{int(block[7:]) + 1}/{scopes.get(numbered, rest)}"


def _size_params(variables):
    """Returns the hyperparameters of the size with these channels."""
    names = (name for name in variables if re.fullmatch(r"block_\d+/project/kernel", name))
    kernels = sorted(names, key=lambda name: int(name.split("/")[0][6:]))
    channels = [variables[name].shape[-1] if variables[name].ndim else 0 for name in kernels]
    for size, params in efficientnet.SIZES.items():
        if channels == [block.channels for block in efficientnet.blocks(params)]:
            return {"size": size, **params}
    raise UsageError(
        f"an EfficientNet with {len(channels)} blocks of {channels} channels is unsupported. "
        f"Valid sizes: {', '.join(efficientnet.SIZES)}"
    )


def _with_scaling(variables, params, means, deviations):
    """Returns variables and hyperparameters for pixels that another program normalizes.

    Args:
      variables: `{name: array}`.
      params: hyperparameters.
      means: float64 `[3]`, of pixels from 0 to 1.
      deviations: float64 `[3]`, by which it divides the difference.
    """
    scale = 1 / (255 * np.mean(deviations))
    params = {**params, "pixel_mean": Floats((255 * means).tolist()), "pixel_scale": float(scale)}
    name = "stem/conv/kernel"
    if name in variables and variables[name].ndim == 4 and variables[name].shape[2] == 3:
        kernel = variables[name]
        factors = (np.mean(deviations) / deviations).astype(kernel.dtype)
        variables = {**variables, name: kernel * factors[:, np.newaxis]}
    return _without_pixels(variables), params


def _without_pixels(variables):
    """Returns the variables with dense kernels of squeeze and excitation, instead of 1x1 ones."""
    return {
        name: array[0, 0] if _is_1x1_dense(name, array) else array
        for name, array in variables.items()
    }


def _is_1x1_dense(name, array):
    return "/squeeze_excite/" in name and array.ndim == 4 and array.shape[:2] == (1, 1)
