"""Checks and statistics of stored boxes and masks, for inspection."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from common.constants import IGNORED_CLASS
from input_fns.dataset_info import DatasetInfo
from input_fns.image import images

# Sides of the areas that COCO calls small and medium.
_SMALL, _MEDIUM = 32, 96
_BAR = 30


class Statistics:
    """Sums up the annotations of a split."""

    decodes_images = True  # in `facts`

    def __init__(self, data: DatasetInfo):
        """Starts with no example."""
        self._data, self._annotations = data, data.kind
        self._sizes: list[np.ndarray] = []
        self._boxes: list[np.ndarray] = []
        self._labels: list[np.ndarray] = []
        self._per_image: list[int] = []
        self._num_crowd = 0
        self._pixels = np.zeros([256], np.int64)
        self._images_with = np.zeros([256], np.int64)

    def facts(self, stored: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns tensors to check of a batch; decodes every image and mask.

        Args:
          stored: `{feature: string [batch]}`.

        Returns:
          "size", int32 `[batch, 2]`, and the labels; a mask as "mask_size", int32 `[batch, 2]`, and
          "mask_counts", the pixels of each value, int32 `[batch, 256]`.
        """
        data = self._data

        def size_of_image(encoded):
            pixels = images.decode(encoded, data.features["image"])
            # A function of the pixels, or TensorFlow would not decode them.
            is_there = tf.cast(tf.reduce_max(pixels) >= 0, tf.int32)
            return tf.shape(pixels)[:2] * is_there

        def mask_facts(encoded):
            pixels = tf.cast(images.decode(encoded, data.features["mask"]), tf.int32)
            counts = tf.math.bincount(pixels, minlength=256, maxlength=256)
            return tf.shape(pixels)[:2], counts

        found = {"size": tf.map_fn(size_of_image, stored["image"], fn_output_signature=tf.int32)}
        for name in data.labels:
            if name == "mask":
                signature = (tf.int32, tf.int32)
                found["mask_size"], found["mask_counts"] = tf.map_fn(
                    mask_facts, stored[name], fn_output_signature=signature
                )
            else:
                found[name] = images.decode_raw(stored[name], data.features[name])
        return found

    def find_problem(self, example: Mapping[str, np.ndarray]) -> str | None:
        """Returns what is wrong with the `facts` of one example; None if nothing is."""
        annotations = self._annotations
        height, width = example["size"].tolist()
        if not annotations.has_boxes:
            mask_height, mask_width = example["mask_size"].tolist()
            if (mask_height, mask_width) != (height, width):
                return (
                    f"its mask has {mask_width} x {mask_height} pixels, and its image "
                    f"{width} x {height}"
                )
            unknown = np.flatnonzero(example["mask_counts"][:IGNORED_CLASS])
            unknown = unknown[unknown >= annotations.num_classes]
            if len(unknown):
                return f"its mask has the value {unknown[0]}, and {annotations.num_classes} classes"
            return None
        boxes, classes = example["boxes"], example["classes"]
        is_box = classes >= 0
        if (classes < -1).any() or (classes >= annotations.num_classes).any():
            return f"'classes' has values outside of -1 to {annotations.num_classes - 1}"
        if (np.diff(is_box.astype(int)) > 0).any() or boxes[~is_box].any():
            return "its boxes do not end with rows of zeros for class -1"
        y0, x0, y1, x1 = boxes[is_box].T
        is_valid = (y0 >= 0) & (x0 >= 0) & (y0 < y1) & (x0 < x1) & (y1 <= height) & (x1 <= width)
        if not is_valid.all():
            wrong = boxes[is_box][~is_valid][0].tolist()
            return f"the box {wrong} (y0, x0, y1, x1) is not in its image of {width} x {height}"
        areas = example["areas"][is_box]
        if not (np.isfinite(areas) & (areas > 0)).all() or (example["is_crowd"] > 1).any():
            return "'areas' or 'is_crowd' has invalid values"
        if "outlines" in example:
            # Damaged bytes of run lengths are found by the checksums of the records.
            size, *masks = example["outlines"].tobytes().rstrip(b"\0").split(b"\n")
            if size != b"%d %d" % (height, width) or len(masks) != is_box.sum():
                return (
                    f"'outlines' has {len(masks)} masks and begins with {size[:20]!a}, and the "
                    f"image has {is_box.sum()} boxes and the size {height} {width}"
                )
        return None

    def problems(self, split_name: str) -> list[str]:
        """Returns how the counts differ from those in dataset.json."""
        described = self._annotations.splits.get(split_name)
        if not described or described.counts == self.counts:
            return []
        return [
            f"split '{split_name}' has {list(self.counts)} boxes or pixels of the classes, not "
            f"{list(described.counts)} as dataset.json says"
        ]

    def add(self, batch: Mapping[str, np.ndarray]) -> None:
        """Adds the `facts` of a batch.

        Raises:
          ValueError: an example is invalid.
        """
        for i in range(len(batch["size"])):
            example = {name: values[i] for name, values in batch.items()}
            problem = self.find_problem(example)
            if problem:
                raise ValueError(problem)
            self._sizes.append(example["size"])
            if not self._annotations.has_boxes:
                self._pixels += example["mask_counts"]
                self._images_with += example["mask_counts"] > 0
                continue
            is_box = example["classes"] >= 0
            self._boxes.append(example["boxes"][is_box])
            self._labels.append(example["classes"][is_box])
            self._per_image.append(int(is_box.sum()))
            self._num_crowd += int(example["is_crowd"][is_box].sum())

    @property
    def counts(self) -> tuple[int, ...]:
        """Boxes or pixels of each class."""
        number = self._annotations.num_classes
        if not self._annotations.has_boxes:
            return tuple(self._pixels[:number].tolist())
        labels = np.concatenate([np.zeros([0], np.int32), *self._labels])
        return tuple(np.bincount(labels, minlength=number).tolist())

    def lines(self) -> list[str]:
        """Returns lines to print: sizes, and the objects of each class."""
        if not self._sizes:
            return []
        sizes = np.array(self._sizes)
        sides = [
            f"{name} {low}" if low == high else f"{name} {low} to {high} (median {median:g})"
            for name, low, high, median in zip(
                ("height", "width"), sizes.min(0), sizes.max(0), np.median(sizes, axis=0)
            )
        ]
        found = [f"  images: {', '.join(sides)}"]
        if not self._annotations.has_boxes:
            return found + self._lines_of_masks()
        return found + self._lines_of_boxes()

    def _lines_of_boxes(self):
        boxes, labels = np.concatenate(self._boxes), np.concatenate(self._labels)
        sides = boxes[:, 2:] - boxes[:, :2]
        small, medium = ((sides.prod(axis=1) < side**2).sum() for side in (_SMALL, _MEDIUM))
        total = max(1, len(boxes))
        found = [
            f"  boxes: up to {max(self._per_image)} in an image, median "
            f"{np.median(self._per_image):g}, {self._per_image.count(0)} images without; "
            f"{self._num_crowd} crowd or difficult",
            f"  areas: {small / total:.0%} below {_SMALL} x {_SMALL}, "
            f"{(medium - small) / total:.0%} below {_MEDIUM} x {_MEDIUM}, "
            f"{(len(boxes) - medium) / total:.0%} larger",
        ]
        counts = self.counts
        for label, bar in self._bars(counts):
            height, width = np.median(sides[labels == label], axis=0) if counts[label] else (0, 0)
            found.append(f"{bar} median {width:.0f} x {height:.0f}")
        return found

    def _lines_of_masks(self):
        total = max(1, self._pixels.sum())
        ignored = self._pixels[IGNORED_CLASS] / total
        found = [f"  ignored: {ignored:.2%} of the pixels"]
        for label, bar in self._bars(self.counts):
            share = self._pixels[label] / total
            found.append(f"{bar} {share:.2%}, in {self._images_with[label]} images")
        return found

    def _bars(self, counts):
        width = max(map(len, self._annotations.class_names))
        for label, (name, count) in enumerate(zip(self._annotations.class_names, counts)):
            bar = "#" * round(_BAR * count / max(1, *counts))
            yield label, f"  {name:{width}} {count:13,d} {bar:{_BAR}}"
