"""Parses `--augment` and applies it to batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from input_fns import DataError
from input_fns.image.augment import color, geometry, mixing, mosaic, placement, randaugment, windows


class Operation(NamedTuple):
    """An operation of `--augment`, and in a run the values of its arguments.

    A geometric operation has `matrix` only, which moves image, mask and boxes; a photometric one
    `function` only; one that does both, such as RandAugment, `function` and `matrices`. Each takes
    the values of the arguments at last.

    Attributes:
      numbers: how many uniform random numbers it needs for each example; in a table also a function
        of the values that returns this.
      arguments: (name, minimum, maximum) of each argument.
      function: `(uint8 [batch, height, width, channels], float32 [batch, numbers])` to images;
        other parts of `Augmentation` and other kinds of data have other functions.
      matrix: `(float32 [batch, numbers], (height, width))` to affine matrices; see `geometry`.
      matrices: the same, to a list of matrices for mask and boxes.
      part: field of `Augmentation`.
      name: its name in `--augment`.
      values: values of the arguments.
    """

    numbers: int | Callable[..., int]
    arguments: tuple[tuple[str, float, float], ...] = ()
    function: Callable | None = None
    matrix: Callable | None = None
    matrices: Callable | None = None
    part: str = "operations"
    name: str = ""
    values: tuple[float, ...] = ()

    def __call__(self, *inputs: Any) -> Any:
        """Returns `function` of the inputs and of the values of the arguments."""
        return self.function(*inputs, *self.values)


_OPERATIONS = {
    "flip": Operation(1, matrix=geometry.flip_matrix),
    "crop": Operation(2, (("PIXELS", 1, 512),), geometry.crop, matrices=geometry.crop_matrices),
    "shift": Operation(2, (("FRACTION", 0, 1),), matrix=geometry.shift_matrix),
    "rotate": Operation(1, (("DEGREES", 0, 180),), matrix=geometry.rotate_matrix),
    "shear": Operation(1, (("DEGREES", 0, 60),), matrix=geometry.shear_matrix),
    "scale": Operation(1, (("FRACTION", 0, 0.9),), matrix=geometry.scale_matrix),
    "resize_crop": Operation(4, (("AREA", 0.01, 1),), windows.resize_crop, part="window"),
    "random_crop": Operation(2, (), windows.random_crop, part="window"),
    "box_crop": Operation(
        windows.BOX_CROP_NUMBERS,
        (("PROBABILITY", 0, 1), ("OVERLAP", 0.01, 1)),
        windows.box_crop,
        part="box_crop",
    ),
    "scale_jitter": Operation(
        3, (("LOW", 0.1, 10), ("HIGH", 0.1, 10)), windows.scale_jitter, part="scale_jitter"
    ),
    "jitter": Operation(3, (("STRENGTH", 0, 1),), color.jitter),
    "erase": Operation(5, (("PROBABILITY", 0, 1),), color.erase),
    "randaugment": Operation(
        lambda count, level: 2 * count,
        (("N", 1, 8), ("LEVEL", 0, 10)),
        randaugment.randaugment,
        matrices=randaugment.region_matrices,
    ),
    "mixup": Operation(0, (("ALPHA", 0.01, 10),), mixing.mixup, part="mixers"),
    "cutmix": Operation(2, (("ALPHA", 0.01, 10),), mixing.cutmix, part="mixers"),
    "mosaic": Operation(3, (("PROBABILITY", 0, 1),), mosaic.mosaic, part="mosaic"),
}
# Parts in the order in which a word of `--augment` must name them; those of several operations.
_PARTS = ("window", "box_crop", "scale_jitter", "operations", "mosaic", "mixers")
_MANY = ("operations", "mixers")
_INTEGERS = ("PIXELS", "N")  # names of integer arguments
# Boxes of which a smaller fraction remains in the image become invalid.
MIN_VISIBLE = 0.25


def parse(text: str) -> Augmentation:
    """Returns the augmentation that a value of `--augment` describes.

    Raises:
      DataError: an operation is unknown, or its arguments or its position are invalid.
    """
    operations = [make_operation(word, _OPERATIONS) for word in text.split()]
    ranks = [_PARTS.index(operation.part) for operation in operations]
    if ranks != sorted(ranks):
        raise DataError(
            f"--augment={text}: put resize_crop, random_crop, box_crop and scale_jitter first, in "
            "this order, and mosaic, mixup and cutmix last"
        )
    parts: dict[str, Any] = {}
    for part in _PARTS:
        used = tuple(operation for operation in operations if operation.part == part)
        if len(used) > 1 and part not in _MANY:
            names = {operation.name for operation in used}
            found = " and ".join(name for name in _OPERATIONS if name in names)
            raise DataError(f"--augment={text}: {found} cannot be combined or repeated")
        parts[part] = used if part in _MANY else next(iter(used), None)
    return Augmentation(**parts)


def make_operation(text: str, operations: Mapping[str, Operation]) -> Operation:
    """Returns the operation that a word of `--augment` describes.

    Args:
      text: such as "crop:4".
      operations: `{name: operation}`.

    Raises:
      DataError: the operation is unknown, or its arguments are invalid.
    """
    name, *words = text.split(":")
    if name not in operations:
        raise DataError(f"--augment: '{name}' is unknown; valid are {', '.join(operations)}")
    operation = operations[name]
    if len(words) != len(operation.arguments):
        usage = ":".join([name, *(argument for argument, _, _ in operation.arguments)])
        raise DataError(f"--augment: '{text}' must be {usage}")
    values = tuple(
        _number(text, word, *argument) for word, argument in zip(words, operation.arguments)
    )
    is_range = [argument for argument, _, _ in operation.arguments] == ["LOW", "HIGH"]
    if is_range and values[0] > values[1]:
        raise DataError(f"--augment: '{text}': LOW must not be above HIGH")
    numbers = operation.numbers(*values) if callable(operation.numbers) else operation.numbers
    return operation._replace(name=name, values=values, numbers=numbers)


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
      mixers: mixup and cutmix; each image gets one of them, and labels become probabilities.
      box_crop: random crop that keeps a box, or None.
      scale_jitter: random scale of the image on the canvas of the model, or None.
      mosaic: mosaic of four images with boxes, or None.
    """

    window: Any = None
    operations: tuple[Any, ...] = ()
    mixers: tuple[Any, ...] = ()
    box_crop: Any = None
    scale_jitter: Any = None
    mosaic: Any = None

    def draw(self, count: int, seed) -> tf.Tensor:
        """Returns float32 `[count, numbers]`, the random numbers of `count` examples.

        Args:
          count: number of examples.
          seed: int32 `[2]`; equal seeds give equal numbers.
        """
        # One at least: tf.data's parallel batch crashes on tensors without elements.
        needed = self._columns()["mixers"].stop
        uniform = tf.random.stateless_uniform([count, max(1, needed)], seed)
        betas = [_beta(count, seed, i, mixer.values[0]) for i, mixer in enumerate(self.mixers)]
        return tf.concat([uniform, *betas], axis=1)

    def window_numbers(self, numbers):
        """Returns the columns of `[..., numbers]` that the random window uses."""
        return numbers[..., self._columns()["window"]]

    def place(self, example, numbers, canvas, keep_aspect_ratio):
        """Returns one example on the canvas of the model; see `placement`.

        Args:
          example: as in `apply`, without the batch dimension; the image may have any size.
          numbers: float32 `[numbers]` of `draw`; None for evaluation, without randomness.
          canvas: `(height, width)`, ints.
          keep_aspect_ratio: see `placement.fit`.

        Returns:
          The example, and its `placement.Placement`.
        """
        size, regions = tf.shape(example["image"])[:2], _regions(example)
        fills_canvas = example["image"].shape.as_list()[:2] == list(canvas)
        is_random = numbers is not None and (self.box_crop or self.scale_jitter)
        if numbers is None:
            where = placement.fit(size, canvas, keep_aspect_ratio)
        else:
            boxes = None
            if "boxes" in regions:
                boxes = tf.boolean_mask(regions["boxes"], regions["visible"] > 0)
            random = numbers[self._columns()["placing"]], size, boxes, canvas, keep_aspect_ratio
            where = placement.sample(*random, self.box_crop, self.scale_jitter)
        image = example["image"]
        if is_random or not fills_canvas:
            image = placement.place_image(image, where)
            if "mask" in regions:
                regions["mask"] = placement.place_mask(regions["mask"], where)
        if "boxes" in regions:
            regions["boxes"], visible = placement.place_boxes(regions["boxes"], where)
            regions["visible"] *= visible
        return {**example, "image": image, **_valid_regions(regions)}, where

    def apply(self, examples, numbers):
        """Returns augmented examples; geometric operations move image, mask and boxes alike.

        Args:
          examples: `"image"`, uint8 `[batch, height, width, channels]` of static size; optionally
            `"mask"`, uint8 `[batch, height, width]`; `"boxes"`, float32 `[batch, n, 4]`, y0, x0,
            y1, x1 in pixels; `"valid"`, bool `[batch, n]`; `"masks"`, `[batch, n, m, m]`, and
            `"mask_frames"`, float32 `[batch, n, 4]`, which are moved along the axes only, and not
            clipped. Others are returned unchanged.
          numbers: float32 `[batch, numbers]` of `draw`.

        Returns:
          The same. Mask pixels from outside of the image are `IGNORED_CLASS`, 255. Boxes are
          clipped; `"valid"` is False, and the box 0, for padding (boxes without area), for boxes
          that were invalid, and if less than `MIN_VISIBLE` of the area remains in the image.
        """
        image, regions = examples["image"], _regions(examples)
        size = image.shape[1:3].as_list()
        column, pending, only_flip = self._columns()["operations"].start, None, None
        for operation in self.operations:
            own = numbers[:, column : column + operation.numbers]
            column += operation.numbers
            if operation.matrix:
                is_flip = pending is None and operation.name == "flip"
                only_flip = own if is_flip else None
                matrix = operation.matrix(own, size, *operation.values)
                # Matrices map new pixels to old ones: the last operation comes first.
                pending = matrix if pending is None else tf.matmul(pending, matrix)
                continue
            image = operation(_move(image, pending, only_flip), own)
            regions = _move_regions(regions, pending, only_flip, size)
            if regions and operation.matrices:
                for matrices in operation.matrices(own, size, *operation.values):
                    regions = _move_regions(regions, matrices, None, size)
            pending, only_flip = None, None
        image = _move(image, pending, only_flip)
        regions = _move_regions(regions, pending, only_flip, size)
        return {**examples, "image": image, **_valid_regions(regions)}

    def combine(self, image, rows, valid, numbers):
        """Returns mosaics if there is `mosaic`.

        Args:
          image: uint8 `[batch, height, width, channels]`.
          rows: `{"boxes": float32 [batch, n, 4], ...}` and other tensors `[batch, n, ...]` of the
            boxes, such as their classes.
          valid: bool `[batch, n]`, False for padding.
          numbers: float32 `[batch, numbers]` of `draw`.

        Returns:
          Images, rows and valid; with `mosaic` `[batch, 4 n, ...]` instead of `[batch, n, ...]`.

        Raises:
          DataError: the batch is not a multiple of four.
        """
        if self.mosaic is None:
            return image, rows, valid
        own = numbers[:, self._columns()["mosaic"]]
        image, rows, visible = self.mosaic(image, {**rows, "valid": valid}, own)
        visible *= tf.cast(rows.pop("valid"), tf.float32)
        found = _valid_regions({"boxes": rows["boxes"], "visible": visible})
        return image, {**rows, "boxes": found["boxes"]}, found["valid"]

    def mix(self, images, labels, numbers):
        """Returns images, and labels as float32 `[batch, num_classes]`, of `mixing.mix`."""
        own = self._columns()["mixers"]
        return mixing.mix(self.mixers, images, labels, numbers[:, own.stop :], numbers[:, own])

    def _columns(self):
        """Returns the columns of the uniform numbers, `{part: slice}`; "mixers" are the last."""
        parts = {
            "window": [self.window],
            "placing": [self.box_crop, self.scale_jitter],
            "operations": self.operations,
            "mosaic": [self.mosaic],
            "mixers": self.mixers,
        }
        columns, start = {}, 0
        for name, used in parts.items():
            end = start + sum(operation.numbers for operation in used if operation)
            end += int(name == "mixers" and bool(used))  # which one
            columns[name], start = slice(start, end), end
        return columns


def _move(images, matrices, only_flip):
    if matrices is None:
        return images
    if only_flip is not None:
        return geometry.flip(images, only_flip)
    return geometry.transform(images, matrices, images.shape[1:3].as_list())


def _regions(examples):
    """Returns the mask and the boxes, with the visible fraction of each box."""
    names = ("mask", "boxes", "masks", "mask_frames")
    regions = {name: examples[name] for name in names if name in examples}
    if "boxes" in regions:
        valid = examples.get("valid", tf.ones(tf.shape(regions["boxes"])[:-1], tf.bool))
        regions["visible"] = tf.cast(valid, tf.float32)
    return regions


def _move_regions(regions, matrices, only_flip, size):
    if matrices is None or not regions:
        return regions
    if only_flip is None or "mask" not in regions:
        return geometry.move_regions(regions, matrices, size)
    mask = geometry.flip(regions["mask"][..., tf.newaxis], only_flip)[..., 0]
    others = {name: region for name, region in regions.items() if name != "mask"}
    return {**geometry.move_regions(others, matrices, size), "mask": mask}


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
