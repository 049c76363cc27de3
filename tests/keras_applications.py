"""Applications of Keras with random weights that give their images different activations."""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
import tensorflow as tf

from input_fns.convert import writer
from input_fns.convert.options import Options
from input_fns.convert.source import RawArrays
from input_fns.image.sources import digits
from models.layers import traced
from tests import variable_values
from tools import keras_network

NAME = "tf.keras.applications."


@dataclasses.dataclass(frozen=True)
class Application:
    """An application at its smallest size.

    Attributes:
      size: height and width of the images.
      terms: of its longest sum, for `numerics`.
      depth: consecutive rounded results: operations of its layers.
    """

    size: int
    terms: int
    depth: int

    @property
    def arithmetic(self) -> dict[str, int]:
        """The arguments of `numerics.assert_close`, with preprocessing and the last layer."""
        return {"terms": self.terms, "depth": self.depth + 3 + 4}


# A convolution with batch norm has three operations, swish five, GELU five, layer norm six.
APPLICATIONS = {
    # Stem, head and 16 blocks of three convolutions, and squeeze-and-excitation with two layers.
    "EfficientNetB0": Application(32, 1152, 18 * 3 * 8 + 16 * 12),
    "EfficientNetV2B0": Application(32, 1280, 23 * 3 * 8 + 16 * 12),
    "DenseNet121": Application(32, 3 * 3 * 128, 121 * 4),
    "Xception": Application(71, 1536, 40 * 5 + 12),  # 40 separable convolutions, 12 shortcuts
    # 18 blocks of a convolution and two dense layers with bias, a scale and a shortcut.
    "ConvNeXtTiny": Application(32, 3072, 18 * (3 * 2 + 6 + 5 + 2) + 4 * (2 + 6)),
    "ResNet50V2": Application(32, 3 * 3 * 512, 53 * 5 + 16),
}


def write_digits(folder) -> None:
    """Writes the data set "digits" in colors."""
    raw = digits.read(Options("digits"))
    splits = {
        name: RawArrays(np.repeat(split.images, 3, axis=-1), split.labels)
        for name, split in raw.splits.items()
    }
    writer.write(dataclasses.replace(raw, splits=splits), str(folder))


def write_weights(name: str, folder) -> None:
    """Writes the checkpoint `start` of an application whose batch norm fits the digits."""
    folder.mkdir()
    size = APPLICATIONS[name].size
    function = getattr(tf.keras.applications, name)
    with traced.tensorflow_2():
        tf.keras.backend.reset_uids()
        network = function(include_top=False, weights=None, input_shape=(size, size, 3))
        for variable in network.variables:
            value = variable_values.random_value(variable)
            variable.assign(tf.cast(value, variable.dtype))
        for layer in network.layers:
            layer.momentum = 0.0  # of batch norm: the moving averages are those of the images
        images = digits.read(Options("digits")).splits["train"].images[:100]
        images = tf.image.resize(np.repeat(images, 3, axis=-1), (size, size))
        network(sys.modules[function.__module__].preprocess_input(images), training=True)
        network.save_weights(f"{folder}/weights.h5")
    keras_network.to_checkpoint(
        f"{NAME}{name}", f"{folder}/weights.h5", f"{folder}/start", f"{size}x{size}x3"
    )
