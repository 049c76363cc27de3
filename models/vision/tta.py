"""Test-time augmentation: the mean prediction for several views of each image.

The hyperparameter `tta` of every image classifier names the views of evaluation, prediction and
export. They are one batch of the network, whose batch norm uses moving averages, so an example
does not depend on the others; memory and time grow with the number of views.
"""

from __future__ import annotations

import math

import tensorflow as tf

from common.messages import did_you_mean
from models import targets
from models.layers.resize import resize_bilinear
from models.model import ModelError

NONE = "none"
# none; the image and its horizontal flip; its center and corners, scaled to its size; these and
# their flips (Krizhevsky et al. 2012, section 4.1).
_VIEWS = {NONE: 1, "flip": 2, "five_crop": 5, "ten_crop": 10}
_CROP = 7 / 8  # of the sides, as 224 of 256 pixels


def default_params():
    """Returns the hyperparameter `tta`."""
    return {"tta": NONE}


def check_params(params):
    """Raises `ModelError` for an unknown value of `tta`."""
    name = _name(params)
    if name not in _VIEWS:
        raise ModelError(f"tta={name} is unknown.{did_you_mean(name, _VIEWS)}")


def inference(network):
    """Returns the inference function of an image classifier with test-time augmentation.

    Args:
      network: `(features, params, training) -> {"logits": [batch, num_classes], ...}`.
    """

    def infer(features, params, training):
        name = _name(params)
        if training or name == NONE:
            return network(features, params, training)
        with tf.name_scope("views"):
            images = views(features["image"], name)
        logits = network({**features, "image": images}, params, training)["logits"]
        with tf.name_scope("mean_of_views"):
            each = tf.reshape(tf.cast(logits, tf.float32), [_VIEWS[name], -1, logits.shape[-1]])
            return targets.mean_outputs({"logits": each}, params)

    return infer


def views(images, name):
    """Returns the views of each image, `[num_views * batch, height, width, channels]`.

    Args:
      images: uint8 or float32 `[batch, height, width, channels]`, static but for the batch.
      name: value of `tta`.

    Returns:
      All first views, then all second ones, and so on; float32 if they are scaled.
    """
    found = [images]
    if name != "flip":
        height, width = images.shape.as_list()[1:3]
        rows, columns = math.ceil(height * _CROP), math.ceil(width * _CROP)
        bottom, right = height - rows, width - columns
        places = [(0, 0), (0, right), (bottom, 0), (bottom, right), (bottom // 2, right // 2)]
        pixels = tf.cast(images, tf.float32)
        crops = [pixels[:, y : y + rows, x : x + columns] for y, x in places]
        found = [resize_bilinear(crop, height, width) for crop in crops]
    if name != "five_crop":
        found += [tf.reverse(view, axis=[2]) for view in found]
    return tf.concat(found, axis=0)


def _name(params):
    return params.get("tta", NONE)  # a model outside this package may lack it
