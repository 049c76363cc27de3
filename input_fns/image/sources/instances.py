"""Splits of images with boxes and the mask of each object."""

from __future__ import annotations

import dataclasses

import numpy as np

from common import instance_masks
from common.constants import INSTANCES
from input_fns.image.annotated_kind import MASK_SIZE, box_labels, pack_outlines
from input_fns.image.sources import boxes, coco_masks
from input_fns.image.sources.annotated_images import ImagesWithBoxes


@dataclasses.dataclass(frozen=True)
class ImagesWithInstances(ImagesWithBoxes):
    """A split of images with boxes and masks; see `ImagesWithBoxes`.

    An object without a valid mask is left out, and counted.
    """

    @property
    def num_bytes(self) -> int:
        """Bytes of images, boxes and masks, of 8 objects in an image, as in COCO."""
        return ImagesWithBoxes.num_bytes.fget(self) + 8 * MASK_SIZE**2 // 8 * len(self)

    def _row(self, item, image):
        size, notes = (image.height, image.width), item.notes.copy()
        is_turned = boxes.must_turn(item.size, size, image.orientation)
        drawn_size = item.size if is_turned else size
        kept, masks = [], []
        for box in item.found:
            mask = coco_masks.pixels(box.outline, drawn_size, notes)
            if mask is not None:
                area = float(mask.sum()) if box.area == boxes.AREA_OF_MASK else box.area
                kept.append(dataclasses.replace(box, area=area))
                masks.append(boxes.turned_mask(mask, image.orientation) if is_turned else mask)
        row = self._boxes_row(item, image, kept, notes)
        corners = np.frombuffer(row.values["boxes"], "<f4").reshape(-1, 4)
        bits = b"".join(crop(mask, box).tobytes() for mask, box in zip(masks, corners))
        counts = [instance_masks.to_rle(mask)["counts"] for mask in masks]
        features = box_labels(INSTANCES, self.max_boxes)
        return dataclasses.replace(
            row,
            values={**row.values, "masks": bits, "outlines": pack_outlines(size, counts)},
            features={**row.features, **{name: features[name] for name in ("masks", "outlines")}},
        )


def crop(mask: np.ndarray, box: np.ndarray) -> np.ndarray:
    """Returns the mask in its box, bits as uint8 `[MASK_SIZE, MASK_SIZE / 8]`; nearest neighbor.

    Each pixel of a box of up to MASK_SIZE pixels is kept; of a larger one each border is moved by
    at most half of side / MASK_SIZE pixels.

    Args:
      mask: bool `[height, width]`.
      box: y0, x0, y1, x1, float `[4]`.
    """
    y0, x0, y1, x1 = np.asarray(box, np.float64)
    places = (np.arange(MASK_SIZE) + 0.5) / MASK_SIZE
    rows, columns = (
        np.clip(np.floor(low + places * (high - low)), 0, length - 1).astype(int)
        for low, high, length in ((y0, y1, mask.shape[0]), (x0, x1, mask.shape[1]))
    )
    return np.packbits(mask[rows[:, np.newaxis], columns], axis=1)
