"""The words of `--augment`, checked, and what they do to a batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from input_fns import DataError
from input_fns.augment import color, geometry, mixing, randaugment

# Word -> what makes it, and for each argument its name, smallest and largest value.
_WORDS: dict[str, tuple[Callable, tuple]] = {
    "flip": (geometry.Flip, ()),
    "crop": (geometry.Crop, (("PIXELS", 1, 512),)),
    "shift": (geometry.Shift, (("FRACTION", 0, 1),)),
    "rotate": (geometry.Rotate, (("DEGREES", 0, 180),)),
    "resize_crop": (geometry.ResizeCrop, (("AREA", 0.01, 1),)),
    "jitter": (color.Jitter, (("STRENGTH", 0, 1),)),
    "erase": (color.Erase, (("PROBABILITY", 0, 1),)),
    "randaugment": (randaugment.RandAugment, (("N", 1, 8), ("LEVEL", 0, 10))),
    "mixup": (mixing.Mixup, (("ALPHA", 0.01, 10),)),
    "cutmix": (mixing.CutMix, (("ALPHA", 0.01, 10),)),
}
_WHOLE = ("PIXELS", "N")


def parse(text: str) -> Augmentation:
    """Returns the augmentation that the words of `--augment` describe.

    Raises:
      DataError: a word is unknown, its arguments are wrong, or it stands where it cannot.
    """
    words = tuple(_word(word) for word in text.split())
    mixes = [isinstance(word, (mixing.Mixup, mixing.CutMix)) for word in words]
    if mixes != sorted(mixes):
        raise DataError(f"--augment={text}: mixup and cutmix mix whole batches: they come last")
    if any(isinstance(word, geometry.ResizeCrop) for word in words[1:]):
        raise DataError(f"--augment={text}: resize_crop makes the size: it comes first, and once")
    first_mixer = len(words) - sum(mixes)
    return Augmentation(words[:first_mixer], words[first_mixer:])


def _word(text):
    name, *values = text.split(":")
    if name not in _WORDS:
        raise DataError(f"--augment: '{name}' is unknown; there are {', '.join(_WORDS)}")
    make, arguments = _WORDS[name]
    usage = ":".join([name, *(argument for argument, _, _ in arguments)])
    if len(values) != len(arguments):
        raise DataError(f"--augment: '{text}' should be {usage}")
    return make(*(_number(text, value, *argument) for value, argument in zip(values, arguments)))


def _number(text, value, name, low, high):
    try:
        number = int(value) if name in _WHOLE else float(value)
        if low <= number <= high:
            return number
    except ValueError:
        pass
    kind = "whole number" if name in _WHOLE else "number"
    raise DataError(f"--augment: '{text}': {name} must be a {kind} from {low} to {high}")


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """What is done to the images of a training batch.

    Attributes:
      words: from images to images, in order.
      mixers: what mixes neighbours; one of them for each image.
    """

    words: tuple[Any, ...] = ()
    mixers: tuple[Any, ...] = ()

    @property
    def window(self) -> geometry.ResizeCrop | None:
        """The word that cuts a random window and so makes the size, if there is one."""
        first = self.words[0] if self.words else None
        return first if isinstance(first, geometry.ResizeCrop) else None

    @property
    def without_window(self) -> Augmentation:
        """What is left to do when the window was cut in decoding."""
        return Augmentation(self.words[1:], self.mixers) if self.window else self

    @property
    def mixes(self) -> bool:
        """Whether labels become shares of the classes."""
        return bool(self.mixers)

    @property
    def _uniform(self):
        of_mixers = 1 + sum(word.numbers for word in self.mixers) if self.mixers else 0
        return sum(word.numbers for word in self.words) + of_mixers

    def draw(self, count: int, seed) -> tf.Tensor:
        """Returns float32 `[count, numbers]`: what `apply` needs for `count` examples.

        Args:
          count: of examples.
          seed: int32 `[2]`; equal seeds give equal numbers.
        """
        uniform = tf.random.stateless_uniform([count, self._uniform], seed)
        shares = [_beta(count, seed, i, word.alpha) for i, word in enumerate(self.mixers)]
        return tf.concat([uniform, *shares], axis=1)

    def apply(self, images, numbers, size):
        """Returns uint8 `[batch, *size, channels]`.

        Args:
          images: uint8 `[batch, height, width, channels]` of a static size.
          numbers: float32 `[batch, ...]`, what `draw` gave these examples.
          size: `(height, width)` of the result: that of the images unless `window` makes another.
        """
        column, pending, pending_size = 0, None, images.shape[1:3].as_list()
        only_flip = None
        for word in self.words:
            own = numbers[:, column : column + word.numbers]
            column += word.numbers
            if hasattr(word, "matrix"):
                if word is self.window:
                    matrix, pending_size = word.matrix(own, pending_size, size), size
                else:
                    matrix = word.matrix(own, pending_size)
                only_flip = own if pending is None and isinstance(word, geometry.Flip) else None
                # From new pixels to old ones: the last word is the first on the way back.
                pending = matrix if pending is None else tf.matmul(pending, matrix)
                continue
            images, pending = self._moved(images, pending, pending_size, only_flip), None
            images = word(images, own)
        return self._moved(images, pending, pending_size, only_flip)

    def _moved(self, images, matrices, size, only_flip):
        if matrices is None:
            return images
        if only_flip is not None:
            return geometry.flipped(images, only_flip)
        return geometry.transform(images, matrices, size)

    def mix(self, images, labels, numbers):
        """Returns images, and labels as float32 `[batch, num_classes]`, of `mixing.mix`."""
        first = sum(word.numbers for word in self.words)
        uniform, shares = numbers[:, first : self._uniform], numbers[:, self._uniform :]
        return mixing.mix(self.mixers, images, labels, shares, uniform)


def _beta(count, seed, index, alpha):
    """Returns float32 `[count, 1]` by Beta(alpha, alpha), as a ratio of two Gammas."""
    seed = tf.random.experimental.stateless_fold_in(seed, index + 1)
    first, second = tf.unstack(tf.random.stateless_gamma([2, count, 1], seed, alpha))
    # Of small alphas both may be zero.
    return tf.where(first + second > 0, tf.math.divide_no_nan(first, first + second), 0.5)
