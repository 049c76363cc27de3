"""Our networks in PyTorch, trained on arrays in memory; `train_speed` runs this.

Needs a separate environment, because PyTorch and TensorFlow 2.15 need different versions of the
same packages:

    python3.11 -m venv torch && torch/bin/pip install torch==2.13.0 numpy
"""

from __future__ import annotations

import contextlib
import json
import sys
import time

import numpy as np
import torch
from torch import nn

DEPTHS = {10: (1, 1, 1, 1), 18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}


def build(params, shape):
    """Returns the network with the hyperparameters of our mlp, convnet or resnet (basic blocks).

    Args:
      params: all hyperparameters.
      shape: `(channels, height, width)`.
    """
    if "depth" in params:
        if params["depth"] not in DEPTHS or params["stem"] != "cifar":
            sys.exit(f"no twin has depth={params['depth']} with stem={params['stem']}")
        layers = _resnet(params, shape[0])
    elif "hidden_units" in params:
        layers = [nn.Flatten()]
        for units in params["hidden_units"]:
            layers += [nn.LazyLinear(units), nn.ReLU(), nn.Dropout(params["dropout"])]
    elif "layers" in params:
        words = params["layers"]
        layers = [
            _layer(word.split(":"), "batch_norm" not in words[i + 1 : i + 2], params)
            for i, word in enumerate(words)
        ]
    else:
        sys.exit("PyTorch's twins are of mlp, convnet and resnet")
    network = nn.Sequential(_Scale(params), *layers, nn.LazyLinear(params["num_classes"]))
    network(torch.zeros(2, *shape, dtype=torch.uint8))  # initializes the lazy layers
    return network


class _Scale(nn.Module):
    def __init__(self, params):
        super().__init__()
        self.register_buffer("mean", torch.tensor(params["pixel_mean"]).reshape(1, -1, 1, 1))
        self.scale = params["pixel_scale"]

    def forward(self, images):
        return (images.float() - self.mean) * self.scale


class _Block(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(self, params, channels, filters, strides):
        super().__init__()
        self.body = nn.Sequential(
            *_conv(params, channels, filters, 3, strides),
            nn.ReLU(inplace=True),
            *_conv(params, filters, filters, 3),
        )
        same = strides == 1 and channels == filters
        shortcut = [] if same else _conv(params, channels, filters, 1, strides)
        self.shortcut = nn.Sequential(*shortcut)

    def forward(self, x):
        return torch.relu_(self.body(x) + self.shortcut(x))


def _resnet(params, channels):
    width = params["width"]
    layers = [*_conv(params, channels, width, 3), nn.ReLU(inplace=True)]
    channels = width
    for stage, count in enumerate(DEPTHS[params["depth"]]):
        for i in range(count):
            strides = 2 if stage and not i else 1
            layers.append(_Block(params, channels, width * 2**stage, strides))
            channels = width * 2**stage
    return [*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()]


def _conv(params, channels, filters, size, strides=1):
    conv = nn.Conv2d(channels, filters, size, strides, size // 2, bias=False)
    return conv, _norm(nn.BatchNorm2d, params, filters)


def _norm(layer, params, *filters):
    momentum = 1 - params["batch_norm_momentum"]
    return layer(*filters, eps=params["batch_norm_epsilon"], momentum=momentum)


def _layer(word, bias, params):
    kind, arguments = word[0], word[1:]
    if kind == "conv":
        filters, size, padding = [*arguments, "same"][:3]
        return nn.LazyConv2d(int(filters), int(size), padding=padding, bias=bias)
    if kind == "batch_norm":
        return _norm(nn.LazyBatchNorm2d, params)
    if kind == "dense":
        return nn.LazyLinear(int(arguments[0]), bias=bias)
    if kind == "pool":
        return nn.MaxPool2d(int(arguments[0]))
    if kind == "dropout":
        return nn.Dropout(float(arguments[0]))
    if kind == "global_pool":
        return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return {"relu": nn.ReLU, "flatten": nn.Flatten}[kind]()


def _optimizer(parameters, params):
    rate = params["learning_rate"]
    if params["optimizer"] == "momentum":
        momentum, nesterov = params["momentum"], params["nesterov"]
        return torch.optim.SGD(parameters, rate, momentum, nesterov=nesterov)
    if params["optimizer"] not in ("adam", "adamw"):
        sys.exit(f"no twin has optimizer={params['optimizer']}")
    betas = params["beta1"], params["beta2"]
    if params["optimizer"] == "adamw":
        decay = params["weight_decay"]
        return torch.optim.AdamW(parameters, rate, betas, params["epsilon"], decay)
    return torch.optim.Adam(parameters, rate, betas, params["epsilon"])


def main(path, settings):
    """Trains, and prints the seconds to the first step and the examples/s after it."""
    used, batch_size = settings["used"], settings["batch_size"]
    layout = torch.channels_last if settings["channels_last"] else torch.contiguous_format
    with np.load(path) as arrays:
        images = torch.from_numpy(arrays["images"][:used]).permute(0, 3, 1, 2)
        labels = torch.from_numpy(arrays["labels"][:used])
    images = images.contiguous(memory_format=layout)
    network = build(settings["params"], images.shape[1:]).to(memory_format=layout)
    optimizer = _optimizer(network.parameters(), settings["params"])
    cross_entropy = nn.CrossEntropyLoss()
    forward = torch.compile(network) if settings["compiled"] else network
    precision = contextlib.nullcontext()
    if settings["precision"] == "bfloat16":
        precision = torch.autocast("cpu", torch.bfloat16)

    def train(chosen):
        optimizer.zero_grad()
        with precision:
            loss = cross_entropy(forward(images[chosen]), labels[chosen])
        loss.backward()
        optimizer.step()

    train(torch.arange(batch_size))
    first = time.time()
    whole = used // batch_size * batch_size
    for _ in range(settings["epochs"]):
        for chosen in torch.randperm(used)[:whole].split(batch_size):
            train(chosen)
    rate = settings["epochs"] * whole / (time.time() - first)
    print(json.dumps([first - settings["started"], rate]))
