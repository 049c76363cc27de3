"""Backbones of detection and segmentation: the feature maps of image classifiers.

Their variables have the names that they have in the classifiers, so that `--warm_start_from` of a
checkpoint of `--model=resnet` or `--model=mobilenet`, or of one that tools/keras_weights.py wrote,
restores them.
"""

from __future__ import annotations

from common.params import Floats
from models.layers import normalization
from models.model import ModelError
from models.vision import classifier, mobilenet, resnet

# Add a new network here. Its module has `BACKBONES`, {name: hyperparameters}, and `feature_maps`.
_NETWORKS = (resnet, mobilenet)
_BACKBONES = {name: (module, own) for module in _NETWORKS for name, own in module.BACKBONES.items()}
NAMES = tuple(_BACKBONES)


def default_params(backbone="resnet50"):
    """Returns the hyperparameters of `feature_maps`."""
    return {
        "backbone": backbone,  # one of NAMES
        "backbone_width": 1.0,  # multiplies the channels of every layer
        "stride_in_1x1": False,  # see resnet; True for weights of tf.keras.applications
        "pixel_mean": Floats(),  # see classifier; []: the default of the backbone as a classifier
        "pixel_scale": 0.0,  # see classifier; 0: the default of the backbone as a classifier
        "precision": classifier.default_params()["precision"],
        **normalization.default_params(momentum=0.99, epsilon=1e-3),
    }


def check_params(params, names=NAMES):
    """Raises `ModelError` for a value of `default_params` out of range.

    Args:
      params: see `default_params`.
      names: valid values of `backbone`.
    """
    if params["backbone"] not in names:
        raise ModelError(f"backbone={params['backbone']} must be one of {', '.join(names)}")
    if not 0.1 <= params["backbone_width"] <= 4:
        raise ModelError(f"backbone_width={params['backbone_width']} must be in [0.1, 4]")
    classifier.check_scaling(scaling(params))
    normalization.check_params(params)


def unused_params(params):
    """Returns the hyperparameters that the backbone does not have; see `Model`."""
    module, own = _BACKBONES[params["backbone"]]
    network = {**module.default_params(), **own}
    used = {"backbone", "backbone_width", *network} - {*module.MODEL.unused_params(network)}
    return dict.fromkeys(default_params().keys() - used, "backbone")


def scaled_images(features, params):
    """Returns `classifier.scaled_images` with the scaling of the backbone; see `scaling`."""
    return classifier.scaled_images(features, {**params, **scaling(params)})


def scaling(params):
    """Returns `pixel_mean` and `pixel_scale`: those of `params`, else of the classifier.

    The weights of a backbone fit the pixels that they were trained on.
    """
    module, _ = _BACKBONES.get(params["backbone"], (classifier, {}))
    own = module.default_params()
    return {name: params[name] or own[name] for name in ("pixel_mean", "pixel_scale")}


def feature_maps(features, params, training, levels, output_stride=32):
    """Computes the feature maps of images at some resolutions.

    Args:
      features: `{"image": uint8 or float32 [batch, height, width, channels]}`.
      params: see `default_params`.
      training: True lets batch norm use batch statistics and update its moving averages.
      levels: which maps to return, of 1 to 5; the network is built up to the last one.
      output_stride: 32, 16 or 8; below 32 the last maps keep their resolution, with dilated
        convolutions (Chen et al. 2017, arXiv:1706.05587).

    Returns:
      `{level: [batch, height / s, width / s, channels]}` of `params["precision"]`, with
      s = min(2**level, output_stride). Sides that s does not divide are rounded up, by
      mobilenet_v1 in part down.
    """
    module, own = _BACKBONES[params["backbone"]]
    network = module.default_params()
    width = network["width"] * params["backbone_width"]
    if isinstance(network["width"], int):
        width = max(1, round(width))
    network.update({**params, **own, "width": width})
    images = scaled_images(features, params)
    return module.feature_maps(images, network, training, levels, output_stride)
