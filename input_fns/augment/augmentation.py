"""The words of `--augment`, checked, and what they do to a batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from input_fns import DataError
from input_fns.augment import color, geometry, mixing, randaugment, windows

# Word -> what makes it, and for each argument its name, smallest and largest value.
_WORDS: dict[str, tuple[Callable, tuple]] = {
    "flip": (geometry.Flip, ()),
    "crop": (geometry.Crop, (("PIXELS", 1, 512),)),
    "shift": (geometry.Shift, (("FRACTION", 0, 1),)),
    "rotate": (geometry.Rotate, (("DEGREES", 0, 180),)),
    "resize_crop": (windows.ResizeCrop, (("AREA", 0.01, 1),)),
    "random_crop": (windows.RandomCrop, ()),
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
    cuts = [isinstance(word, (windows.ResizeCrop, windows.RandomCrop)) for word in words]
    if any(cuts[1:]):
        raise DataError(
            f"--augment={text}: resize_crop and random_crop make the size: one of them, and first"
        )
    first, last = sum(cuts), len(words) - sum(mixes)
    return Augmentation(words[0] if any(cuts) else None, words[first:last], words[last:])


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
      window: cuts a random window out of each image, or None.
      words: from images to images of the same size, in order.
      mixers: what mixes neighbours; one of them for each image.
    """

    window: Any = None
    words: tuple[Any, ...] = ()
    mixers: tuple[Any, ...] = ()

    @property
    def mixes(self) -> bool:
        """Whether labels become shares of the classes."""
        return bool(self.mixers)

    def draw(self, count: int, seed) -> tf.Tensor:
        """Returns float32 `[count, numbers]`: what the other methods need for `count` examples.

        Args:
          count: of examples.
          seed: int32 `[2]`; equal seeds give equal numbers.
        """
        # One at least: TensorFlow's parallel batch crashes on rows of no numbers.
        uniform = tf.random.stateless_uniform([count, max(1, sum(self._sizes()))], seed)
        shares = [_beta(count, seed, i, word.alpha) for i, word in enumerate(self.mixers)]
        return tf.concat([uniform, *shares], axis=1)

    def of_window(self, numbers):
        """Returns those of the numbers, `[..., numbers]`, that place windows."""
        return numbers[..., : self._sizes()[0]]

    def apply(self, images, numbers):
        """Returns images like the given ones.

        Args:
          images: uint8 `[batch, height, width, channels]` of a static size.
          numbers: float32 `[batch, numbers]`, what `draw` gave these examples.
        """
        size = images.shape[1:3].as_list()
        column, pending, only_flip = self._sizes()[0], None, None
        for word in self.words:
            own = numbers[:, column : column + word.numbers]
            column += word.numbers
            if hasattr(word, "matrix"):
                only_flip = own if pending is None and isinstance(word, geometry.Flip) else None
                matrix = word.matrix(own, size)
                # From new pixels to old ones: the last word is the first on the way back.
                pending = matrix if pending is None else tf.matmul(pending, matrix)
            else:
                images = word(_moved(images, pending, only_flip), own)
                pending = None
        return _moved(images, pending, only_flip)

    def mix(self, images, labels, numbers):
        """Returns images, and labels as float32 `[batch, num_classes]`, of `mixing.mix`."""
        of_window, of_words, of_mixers = self._sizes()
        first, last = of_window + of_words, of_window + of_words + of_mixers
        return mixing.mix(self.mixers, images, labels, numbers[:, last:], numbers[:, first:last])

    def _sizes(self):
        """How many uniform numbers the window, the words and the mixers take."""
        of_window = self.window.numbers if self.window else 0
        of_mixers = 1 + sum(word.numbers for word in self.mixers) if self.mixers else 0
        return of_window, sum(word.numbers for word in self.words), of_mixers


def _moved(images, matrices, only_flip):
    if matrices is None:
        return images
    if only_flip is not None:
        return geometry.flipped(images, only_flip)
    return geometry.transform(images, matrices, images.shape[1:3].as_list())


def _beta(count, seed, index, alpha):
    """Returns float32 `[count, 1]` by Beta(alpha, alpha), as a ratio of two Gammas."""
    seed = tf.random.experimental.stateless_fold_in(seed, index + 1)
    first, second = tf.unstack(tf.random.stateless_gamma([2, count, 1], seed, alpha))
    # Of small alphas both may be zero.
    return tf.where(first + second > 0, tf.math.divide_no_nan(first, first + second), 0.5)
