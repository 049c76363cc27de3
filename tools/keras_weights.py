"""Converts weights of `tf.keras.applications` to a checkpoint for --warm_start_from.

python -m tools.keras_weights SOURCE CHECKPOINT [rgb|bgr]

SOURCE is an .h5 file that was written by `model.save_weights` or `model.save` of Keras 2, with or
without top, from ResNet50, ResNet101, ResNet152, MobileNet or MobileNetV2 of any width,
EfficientNet or EfficientNetV2; or a checkpoint of tensorflow/tpu's EfficientNet, such as
efficientnet-b0/model.ckpt, whose moving averages are taken. Prints the flags of the model for the
checkpoint. ResNets of Keras expect BGR images, so their first kernel is converted to RGB; `rgb`
turns this off.
"""

from __future__ import annotations

import math
import os
import re
import sys
import zipfile

from engine.cli import startup

if __name__ == "__main__":
    startup.hide_logs()
    startup.check(startup.check_environment)

import h5py
import numpy as np
import tensorflow as tf

from common.errors import UsageError
from common.names import printable, repeated
from common.params import Floats
from engine.checkpoints import writer
from engine.cli import runtime
from models import registry
from models.model import ModelError
from models.vision import backbones, mobilenet, resnet
from tools import efficientnet_weights

# Keras layer -> variable scope. The first entry of a table identifies the model.
_RESNET = (
    (r"conv1_conv", "stem/conv"),
    (r"conv1_bn", "stem/batch_norm"),
    (r"conv([0-9])_block([0-9]{1,3})_0_conv", "stage_{0}/block_{1}/shortcut/conv"),
    (r"conv([0-9])_block([0-9]{1,3})_0_bn", "stage_{0}/block_{1}/shortcut/batch_norm"),
    (r"conv([0-9])_block([0-9]{1,3})_([123])_conv", "stage_{0}/block_{1}/conv_{2}"),
    (r"conv([0-9])_block([0-9]{1,3})_([123])_bn", "stage_{0}/block_{1}/batch_norm_{2}"),
    (r"predictions|probs|fc1000", "logits"),
)
_MOBILENET_V1 = (
    (r"conv1", "stem/conv"),
    (r"conv1_bn", "stem/batch_norm"),
    (r"conv_dw_([0-9]{1,3})", "block_{0}/depthwise"),
    (r"conv_dw_([0-9]{1,3})_bn", "block_{0}/depthwise_norm"),
    (r"conv_pw_([0-9]{1,3})", "block_{0}/pointwise"),
    (r"conv_pw_([0-9]{1,3})_bn", "block_{0}/pointwise_norm"),
    (r"conv_preds", "logits"),
)
_MOBILENET_V2 = (
    (r"Conv1", "stem/conv"),
    (r"bn_Conv1", "stem/batch_norm"),
    (r"expanded_conv_(depthwise|project)", "block_1/{0}"),
    (r"expanded_conv_(depthwise|project)_BN", "block_1/{0}_norm"),
    (r"block_([0-9]{1,3})_(expand|depthwise|project)", "block_{0}/{1}"),
    (r"block_([0-9]{1,3})_(expand|depthwise|project)_BN", "block_{0}/{1}_norm"),
    (r"Conv_1", "head/conv"),
    (r"Conv_1_bn", "head/batch_norm"),
    (r"predictions|Logits", "logits"),
)
# Keras counts the stages of a ResNet from the stem, and the blocks of MobileNetV2 from 0.
_MAX_BYTES, _MAX_OBJECTS = 4 << 30, 100_000  # eight times those of ResNet152 in float64
_MODELS = {
    "resnet": (_RESNET, -1),
    "v1": (_MOBILENET_V1, 0),
    "v2": (_MOBILENET_V2, 1),
    "efficientnet": (efficientnet_weights.KERAS_LAYERS, 0),
}


def main(source: str, checkpoint: str, channels: str = "bgr") -> None:
    """Converts the file, writes the checkpoint and prints the flags to use it."""
    if channels not in ("bgr", "rgb"):
        raise UsageError(f"'{channels}' must be bgr or rgb")
    runtime.prepare()
    if efficientnet_weights.is_google_checkpoint(source):
        variables, params = efficientnet_weights.from_google(source)
        model = "efficientnet"
    else:
        variables, model, params = convert(read(source), channels)
    _check(variables, model, params)
    writer.write(checkpoint, variables)
    top = f"{params['num_classes']} classes" if "num_classes" in params else "without top"
    print(f"{len(variables)} variables, {top}: {checkpoint}")
    name = f"{model}_{params['size']}" if "size" in params else model
    flag = _params_flag(_changed(name, params))
    print(" ".join(filter(None, (f"--model={name}", flag, f"--warm_start_from={checkpoint}"))))
    backbone = backbone_params(model, params)
    if backbone["backbone"] in backbones.NAMES:
        print(f"as a backbone: {_params_flag(backbone)} --warm_start_from={checkpoint}")


def read(path: str) -> dict[tuple[str, str], np.ndarray]:
    """Returns `{(layer, weight): array}` of a Keras 2 .h5 file.

    Arrays of layers of other networks are not read: they are empty.

    Raises:
      UsageError: a missing or invalid file, or one with more than the weights of a network, such as
        links and data in other files.
    """
    if not os.path.isfile(path):
        raise UsageError(f"{path} cannot be read as HDF5: it is not a file")
    if zipfile.is_zipfile(path):
        raise UsageError(
            f"{path} cannot be read as HDF5: it is an archive, such as a .keras file of Keras 3. "
            "Save the weights with Keras 2, as weights.h5"
        )
    arrays, num_bytes = {}, 0
    try:
        with h5py.File(path, "r") as file:
            for name, dataset in _datasets(path, file):
                *groups, weight = name.split("/")
                if not groups or "optimizer_weights" in groups:
                    continue
                key = groups[-1], weight.split(":")[0]
                is_supported = _is_supported(*key)
                if is_supported and key in arrays:
                    raise UsageError(f"{path}: {'/'.join(map(printable, key))} is there twice")
                arrays[key] = np.zeros(0)
                if is_supported:
                    num_bytes += _checked_size(f"{path}: {printable(name)}", dataset)
                    if num_bytes > _MAX_BYTES:
                        raise UsageError(
                            f"{path} declares more than {_MAX_BYTES >> 30} GiB of weights at "
                            f"{printable(name)}: no supported network has as many"
                        )
                    arrays[key] = dataset[()]
                    if not np.isfinite(arrays[key]).all():
                        raise UsageError(
                            f"{path}: {printable(name)} has values that are not finite"
                        )
    except UsageError:
        raise
    # h5py raises built-in exceptions for a damaged file.
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, MemoryError) as error:
        raise UsageError(f"{path} cannot be read as HDF5: {error}") from error
    return arrays


def _datasets(path, file):
    """Yields (name, dataset) of a file, each once.

    Raises:
      UsageError: it has a link, whose target may be any file, or too many objects.
    """
    waiting, seen = [("", file)], set()
    while waiting:
        prefix, group = waiting.pop()
        for name in group:
            full_name = f"{prefix}{name}"
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise UsageError(
                    f"{path}: {printable(full_name)} is a link. Save the weights again"
                )
            node = group[name]
            address = h5py.h5o.get_info(node.id).addr
            if address in seen:
                continue
            seen.add(address)
            if len(seen) > _MAX_OBJECTS:
                raise UsageError(f"{path} has more than {_MAX_OBJECTS} objects")
            if isinstance(node, h5py.Group):
                waiting.append((f"{full_name}/", node))
            elif isinstance(node, h5py.Dataset):
                yield full_name, node


def _checked_size(place, dataset):
    """Returns the size of a dataset in memory, in bytes.

    Raises:
      UsageError: it is not an array of floats, or it is in another file.
    """
    if dataset.external or dataset.is_virtual:
        raise UsageError(f"{place} is stored in another file. Save the weights again")
    if dataset.dtype.kind != "f" or dataset.shape is None:
        kind = "empty" if dataset.shape is None else f"of type {dataset.dtype}"
        raise UsageError(f"{place} is {kind}, not an array of floats")
    return math.prod(dataset.shape) * dataset.dtype.itemsize


def _is_supported(layer, weight):
    is_known = any(_scope(layer, *model) is not None for model in _MODELS.values())
    return is_known and weight != "count"  # of the images that a layer normalization has seen


def convert(arrays, channels: str = "bgr"):
    """Returns `({variable name: array}, --model, {hyperparameter: value})`.

    Args:
      arrays: the result of `read`.
      channels: order of the input channels of a ResNet, "bgr" or "rgb".

    Raises:
      UsageError: an unsupported network.
    """
    layers = {layer for layer, _ in arrays}
    kind = next((kind for kind, (names, _) in _MODELS.items() if names[0][0] in layers), None)
    if kind is None:
        raise UsageError(
            "not a ResNet, MobileNet or MobileNetV2 of tf.keras.applications, saved by Keras 2: "
            f"its layers are {', '.join(map(printable, sorted(layers)[:5])) or 'none'} ..."
        )
    if any(layer.endswith("_preact_bn") for layer in layers):
        raise UsageError("ResNet V2 (pre-activation) is unsupported. Use ResNet V1 weights")
    scopes = {layer: _scope(layer, *_MODELS[kind]) for layer in layers}
    left_out = sorted(layer for layer, scope in scopes.items() if scope is None)
    if left_out:
        print(f"ignored layers: {', '.join(map(printable, left_out[:5]))}")
    for scope in repeated(scope for scope in scopes.values() if scope):
        same = sorted(layer for layer in layers if scopes[layer] == scope)
        raise UsageError(f"the layers {' and '.join(same)} are the same layer of {kind}")
    variables = {
        f"{scopes[layer]}/{weight}": array
        for (layer, weight), array in arrays.items()
        if scopes[layer] is not None
    }
    if kind == "resnet":
        variables = _without_biases(variables)
        _out_channels(variables, "stem/conv/kernel")
        if channels == "bgr":
            variables["stem/conv/kernel"] = variables["stem/conv/kernel"][:, :, ::-1]
        model, params = "resnet", _resnet_params(variables)
    elif kind == "efficientnet":
        variables, params = efficientnet_weights.from_keras(variables)
        model = "efficientnet"
    else:
        model, params = "mobilenet", _mobilenet_params(variables, kind)
    if "logits/kernel" in variables:
        kernel = variables["logits/kernel"]  # MobileNet's is a 1x1 convolution
        if kernel.ndim < 2 or kernel.size != math.prod(kernel.shape[-2:]):
            raise UsageError(f"the last layer has a kernel of the shape {kernel.shape}, not 1x1")
        variables["logits/kernel"] = kernel.reshape(kernel.shape[-2:])
        params["num_classes"] = kernel.shape[-1]
    return variables, model, params


def _scope(layer, names, first_number):
    for pattern, scope in names:
        match = re.fullmatch(pattern, layer)
        if match:
            numbers = list(match.groups())
            if numbers and numbers[0].isdigit():
                numbers[0] = int(numbers[0]) + first_number
            return scope.format(*numbers)
    return None


def _without_biases(variables):
    """Folds biases before batch norm into its mean: conv + b - mean = conv - (mean - b)."""
    variables = dict(variables)
    for name in [name for name in variables if name.endswith("/bias") and "logits" not in name]:
        bias = variables.pop(name)
        scope, conv = name.split("/")[:-2], name.split("/")[-2]
        norm = "/".join([*scope, conv.replace("conv", "batch_norm"), "moving_mean"])
        if variables.get(norm, np.zeros(0)).shape != bias.shape:
            raise UsageError(f"{name} has no batch norm of its shape {bias.shape} after it")
        variables[norm] = variables[norm] - bias
    return variables


def _resnet_params(variables):
    counts = [
        len({name.split("/")[1] for name in variables if name.startswith(f"stage_{stage}/")})
        for stage in (1, 2, 3, 4)
    ]
    found = [
        depth for depth, (blocks, bottleneck) in resnet.DEPTHS.items()
        if bottleneck and list(blocks) == counts
    ]  # fmt: skip
    if not found:
        raise UsageError(f"a ResNet with {counts} blocks is unsupported by models/vision/resnet.py")
    return {
        "depth": found[0],
        "stride_in_1x1": True,
        "batch_norm_momentum": 0.99,
        "batch_norm_epsilon": 1.001e-5,
        "pixel_mean": Floats([123.68, 116.779, 103.939]),
        "pixel_scale": 1.0,
    }


def _mobilenet_params(variables, kind):
    block, last = (13, "pointwise") if kind == "v1" else (17, "project")
    name = f"block_{block}/{last}/kernel"
    if name not in variables:
        raise UsageError(f"a MobileNet without block {block} is unsupported")
    if kind == "v1":  # all channels are rounded down the same way
        params = {
            "version": 1,
            "width": _out_channels(variables, name) / 1024,
            "batch_norm_momentum": 0.99,
        }
    else:
        params = {"version": 2, "width": _v2_width(variables), "batch_norm_momentum": 0.999}
    return {
        **params,
        "batch_norm_epsilon": 1e-3,
        "pixel_mean": Floats([127.5]),
        "pixel_scale": 1 / 127.5,
    }


def _out_channels(variables, name):
    """Returns the output channels of a convolution."""
    shape = variables[name].shape if name in variables else ()
    if len(shape) != 4:
        raise UsageError(f"{name} has the shape {shape}, not the 4 dimensions of a convolution")
    return shape[-1]


def _v2_width(variables):
    """Returns the width of a MobileNetV2 with these channels that has the fewest decimals."""
    blocks = [f"block_{i}/project" for i in range(1, 18)]
    names = [f"{name}/kernel" for name in ("stem/conv", *blocks, "head/conv")]
    channels = [_out_channels(variables, name) if name in variables else None for name in names]
    nearest = channels[-2] / 320  # from block 17, whose channels are rounded
    for decimals in (2, 3, 4):
        steps = 10**decimals
        widths = [step / steps for step in range(steps // 10, 4 * steps + 1)]
        for width in sorted(widths, key=lambda width: abs(width - nearest)):
            if mobilenet.v2_channels(width) == channels:
                return width
    return nearest  # `_check` raises the error


def backbone_params(model, params):
    """Returns the hyperparameters of `models.vision.backbones` for those of a classifier."""
    shared = {key: value for key, value in params.items() if key in backbones.default_params()}
    if model == "efficientnet":
        return {"backbone": f"efficientnet_{params['size']}", **shared}
    name = f"resnet{params['depth']}" if model == "resnet" else f"mobilenet_v{params['version']}"
    return {"backbone": name, "backbone_width": params.get("width", 1.0), **shared}


def _changed(name, params):
    """Returns the hyperparameters; of a model with a preset, those that the preset does not set."""
    preset = registry.find(name).default_params() if "size" in params else {}
    return {key: value for key, value in params.items() if preset.get(key) != value}


def _params_flag(params):
    """Returns --params for the shell, without the number of classes, which the data set has."""
    pairs = [f"{key}={value}" for key, value in params.items() if key != "num_classes"]
    return f"'--params={','.join(pairs)}'" if pairs else ""


def _check(variables, name, params):
    """Raises `UsageError` if variables do not match those of the model."""
    model = registry.find(name)
    params = {**model.default_params(), **params}
    try:
        model.check_params(params)
    except ModelError as error:
        raise UsageError(f"the weights do not fit --model={name}: {error}") from error
    with tf.Graph().as_default():
        model.inference({"image": tf.zeros([1, 64, 64, 3])}, params, training=False)
        expected = {v.op.name: tuple(v.shape.as_list()) for v in tf.compat.v1.global_variables()}
    if "logits/kernel" not in variables:
        expected = {name: shape for name, shape in expected.items() if "logits" not in name}
    found = {name: array.shape for name, array in variables.items()}
    wrong = sorted(
        name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)
    )
    if wrong:
        lines = [
            f"{printable(name)}: {found.get(name)} in the file, {expected.get(name)} in the model"
            for name in wrong
        ]
        raise UsageError(f"the weights do not fit --model={name}: {'; '.join(lines[:5])}")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    startup.run(lambda: main(*sys.argv[1:]))
