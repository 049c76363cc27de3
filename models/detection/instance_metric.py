"""COCO's average precision of boxes and of masks, with files and reports; by pycocotools."""

from __future__ import annotations

import numpy as np

from common import instance_masks
from models.detection import coco_metric
from models.detection.coco_metric import CocoMetric

_MASK_NAMES = tuple(f"mask_{name}" for name in coco_metric.NAMES)


class InstanceMetric(CocoMetric):
    """The metrics of `CocoMetric`, and the same twelve of masks as `mask_AP`, `mask_AP50`, ...

    `detections.json` has the masks as `segmentation`, and pictures show them.
    """

    names = (*coco_metric.NAMES, *_MASK_NAMES)
    directions = dict.fromkeys(names, "max")

    def result(self) -> dict[str, float]:
        """Returns the metrics of boxes and masks over all images."""
        stats = self._evaluate("segm").stats
        masks = {name: float(value) for name, value in zip(_MASK_NAMES, stats)}
        return {**CocoMetric.result(self), **masks}

    def _add_masks(self, i, labels, predictions, is_box, truth, found):
        """Adds the exact masks of the source, and those of the detections in the picture."""
        size, *counts = labels["outlines"][i].decode().split("\n")
        size = [int(side) for side in size.split()]
        rles = [{"size": size, "counts": each} for each in counts]
        truth["masks"] = np.array(rles[: int(is_box.sum())], object)
        pasted = [
            instance_masks.paste(mask, box, tuple(predictions["image_size"][i].tolist()))
            for mask, box in zip(predictions["masks"][i], found["boxes"])
        ]
        found["masks"] = np.array([instance_masks.to_rle(mask) for mask in pasted], object)
        return {"height": size[0], "width": size[1]}

    def _detections(self, iou_type):
        """Returns pycocotools' annotations; the size of a mask is its own area, not the box's."""
        found = CocoMetric._detections(self, iou_type)
        if iou_type == "segm":
            from pycocotools import mask as coco_mask  # the base class has checked that it is there

            for one in found:
                one["area"] = float(coco_mask.area(one["segmentation"]))
        return found
