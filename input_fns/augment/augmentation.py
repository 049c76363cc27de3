"""Parses `--augment` and applies it to batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

import tensorflow as tf

from input_fns import DataError, images
from input_fns.augment import color, geometry, mixing, randaugment, windows


class Operation(Protocol):
    """One operation of `--augment`: a class whose constructor takes the arguments of the word.

    A geometric operation has a method `matrix(numbers, size)` instead of `__call__`: affine
    matrices (see `geometry`), which are applied to image, mask and boxes. A
    photometric operation has `__call__` only. One that does both, such as RandAugment, also has
    `region_matrices(numbers, size)`, the matrices for mask and boxes.

    Attributes:
      numbers: how many uniform random numbers it needs for each example.
    """

    numbers: int

    def __call__(self, images: tf.Tensor, numbers: tf.Tensor) -> tf.Tensor:
        """Returns the augmented images.

        Args:
          images: uint8 `[batch, height, width, channels]`.
          numbers: float32 `[batch, numbers]`, uniform in [0, 1).
        """


# Name -> class, and (name, minimum, maximum) of each argument.
_OPERATIONS: dict[str, tuple[Callable, tuple]] = {
    "flip": (geometry.Flip, ()),
    "crop": (geometry.Crop, (("PIXELS", 1, 512),)),
    "shift": (geometry.Shift, (("FRACTION", 0, 1),)),
    "rotate": (geometry.Rotate, (("DEGREES", 0, 180),)),
    "shear": (geometry.Shear, (("DEGREES", 0, 60),)),
    "scale": (geometry.Scale, (("FRACTION", 0, 0.9),)),
    "resize_crop": (windows.ResizeCrop, (("AREA", 0.01, 1),)),
    "random_crop": (windows.RandomCrop, ()),
    "jitter": (color.Jitter, (("STRENGTH", 0, 1),)),
    "erase": (color.Erase, (("PROBABILITY", 0, 1),)),
    "randaugment": (randaugment.RandAugment, (("N", 1, 8), ("LEVEL", 0, 10))),
    "mixup": (mixing.Mixup, (("ALPHA", 0.01, 10),)),
    "cutmix": (mixing.CutMix, (("ALPHA", 0.01, 10),)),
}
_INTEGERS = ("PIXELS", "N")  # names of integer arguments
# Boxes of which a smaller fraction remains in the image become invalid.
MIN_VISIBLE = 0.25


def parse(text: str) -> Augmentation:
    """Returns the augmentation that a value of `--augment` describes.

    Raises:
      DataError: an operation is unknown, or its arguments or its position are invalid.
    """
    operations = tuple(_operation(word) for word in text.split())
    mixes = [isinstance(op, (mixing.Mixup, mixing.CutMix)) for op in operations]
    if mixes != sorted(mixes):
        raise DataError(f"--augment={text}: put mixup and cutmix last, they mix whole batches")
    crops = [isinstance(op, (windows.ResizeCrop, windows.RandomCrop)) for op in operations]
    if any(crops[1:]):
        raise DataError(
            f"--augment={text}: use one of resize_crop and random_crop, and put it first"
        )
    first, last = sum(crops), len(operations) - sum(mixes)
    window = operations[0] if any(crops) else None
    return Augmentation(window, operations[first:last], operations[last:])


def _operation(text):
    name, *values = text.split(":")
    if name not in _OPERATIONS:
        raise DataError(f"--augment: '{name}' is unknown; valid are {', '.join(_OPERATIONS)}")
    make, arguments = _OPERATIONS[name]
    usage = ":".join([name, *(argument for argument, _, _ in arguments)])
    if len(values) != len(arguments):
        raise DataError(f"--augment: '{text}' must be {usage}")
    return make(*(_number(text, value, *argument) for value, argument in zip(values, arguments)))


def _number(text, value, name, low, high):
    try:
        number = int(value) if name in _INTEGERS else float(value)
        if low <= number <= high:
            return number
    except ValueError:
        pass
    kind = "an integer" if name in _INTEGERS else "a number"
    raise DataError(f"--augment: '{text}': {name} must be {kind} from {low} to {high}")


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """Augmentation of training examples; a function of their random numbers (`draw`).

    Attributes:
      window: random crop of each image, resized to the model's size, or None.
      operations: operations on images of one size, in order.
      mixers: mixup and cutmix; each image gets one of them.
    """

    window: Any = None
    operations: tuple[Any, ...] = ()
    mixers: tuple[Any, ...] = ()

    @property
    def mixes(self) -> bool:
        """Whether labels become probabilities of the classes."""
        return bool(self.mixers)

    def draw(self, count: int, seed) -> tf.Tensor:
        """Returns float32 `[count, numbers]`, the random numbers of `count` examples.

        Args:
          count: number of examples.
          seed: int32 `[2]`; equal seeds give equal numbers.
        """
        # One at least: tf.data's parallel batch crashes on tensors without elements.
        uniform = tf.random.stateless_uniform([count, max(1, sum(self._sizes()))], seed)
        betas = [_beta(count, seed, i, mixer.alpha) for i, mixer in enumerate(self.mixers)]
        return tf.concat([uniform, *betas], axis=1)

    def window_numbers(self, numbers):
        """Returns the columns of `[..., numbers]` that the random window uses."""
        return numbers[..., : self._sizes()[0]]

    def crop(self, example, window, size):
        """Returns one example cropped and resized.

        Args:
          example: as in `apply`, without the batch dimension.
          window: int32 `[4]`: y, x, height, width.
          size: `(height, width)` of the result, ints.
        """
        cropped = images.resize(images.crop(example["image"], window), size)
        regions = {name: value[tf.newaxis] for name, value in _regions(example).items()}
        if regions:
            matrices = geometry.window_matrices(window[tf.newaxis], size)
            regions = geometry.move_regions(regions, matrices, size)
            regions = {name: value[0] for name, value in regions.items()}
        return {**example, "image": cropped, **_valid_regions(regions)}

    def apply(self, examples, numbers):
        """Returns augmented examples; geometric operations move image, mask and boxes alike.

        Args:
          examples: `"image"`, uint8 `[batch, height, width, channels]` of static size; optionally
            `"mask"`, uint8 `[batch, height, width]`; `"boxes"`, float32 `[batch, n, 4]`, y0, x0,
            y1, x1 in pixels; `"valid"`, bool `[batch, n]`. Others are returned unchanged.
          numbers: float32 `[batch, numbers]` of `draw`.

        Returns:
          The same. Mask pixels from outside of the image are `IGNORED_CLASS`, 255. Boxes are
          clipped; `"valid"` is False, and the box 0, for padding (boxes without area), for boxes
          that were invalid, and if less than `MIN_VISIBLE` of the area remains in the image.
        """
        image, regions = examples["image"], _regions(examples)
        size = image.shape[1:3].as_list()
        column, pending, only_flip = self._sizes()[0], None, None
        for operation in self.operations:
            own = numbers[:, column : column + operation.numbers]
            column += operation.numbers
            if hasattr(operation, "matrix"):
                is_flip = pending is None and isinstance(operation, geometry.Flip)
                only_flip = own if is_flip else None
                matrix = operation.matrix(own, size)
                # Matrices map new pixels to old ones: the last operation comes first.
                pending = matrix if pending is None else tf.matmul(pending, matrix)
                continue
            moves = [] if pending is None else [pending]
            image = operation(_move(image, pending, only_flip), own)
            if regions and hasattr(operation, "region_matrices"):
                moves += operation.region_matrices(own, size)
            regions = _move_regions(regions, moves, size)
            pending = None
        image = _move(image, pending, only_flip)
        regions = _move_regions(regions, [] if pending is None else [pending], size)
        return {**examples, "image": image, **_valid_regions(regions)}

    def mix(self, images, labels, numbers):
        """Returns images, and labels as float32 `[batch, num_classes]`, of `mixing.mix`."""
        of_window, of_operations, of_mixers = self._sizes()
        first, last = of_window + of_operations, of_window + of_operations + of_mixers
        return mixing.mix(self.mixers, images, labels, numbers[:, last:], numbers[:, first:last])

    def _sizes(self):
        """Returns how many uniform numbers the window, the operations and the mixers use."""
        of_window = self.window.numbers if self.window else 0
        of_mixers = 1 + sum(mixer.numbers for mixer in self.mixers) if self.mixers else 0
        return of_window, sum(op.numbers for op in self.operations), of_mixers


def _move(images, matrices, only_flip):
    if matrices is None:
        return images
    if only_flip is not None:
        return geometry.flip(images, only_flip)
    return geometry.transform(images, matrices, images.shape[1:3].as_list())


def _regions(examples):
    """Returns the mask and the boxes, with the visible fraction of each box."""
    regions = {name: examples[name] for name in ("mask", "boxes") if name in examples}
    if "boxes" in regions:
        valid = examples.get("valid", tf.ones(tf.shape(regions["boxes"])[:-1], tf.bool))
        regions["visible"] = tf.cast(valid, tf.float32)
    return regions


def _move_regions(regions, moves, size):
    for matrices in moves if regions else ():
        regions = geometry.move_regions(regions, matrices, size)
    return regions


def _valid_regions(regions):
    """Returns the regions with `"valid"` instead of the visible fractions."""
    regions = dict(regions)
    if "boxes" in regions:
        boxes = regions["boxes"]
        has_area = tf.reduce_all(boxes[..., 2:] > boxes[..., :2], axis=-1)
        regions["valid"] = (regions.pop("visible") >= MIN_VISIBLE) & has_area
        regions["boxes"] = tf.where(regions["valid"][..., tf.newaxis], boxes, 0.0)
    return regions


def _beta(count, seed, index, alpha):
    """Returns float32 `[count, 1]` samples of Beta(alpha, alpha), a ratio of two Gammas."""
    seed = tf.random.experimental.stateless_fold_in(seed, index + 1)
    first, second = tf.unstack(tf.random.stateless_gamma([2, count, 1], seed, alpha))
    # With a small alpha both may be 0.
    return tf.where(first + second > 0, tf.math.divide_no_nan(first, first + second), 0.5)
