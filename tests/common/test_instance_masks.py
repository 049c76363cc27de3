"""Pasted masks against an interpolation written as a loop; run lengths against pycocotools."""

import numpy as np
import pytest

from common import instance_masks


def interpolated(mask, y, x):
    """Bilinear interpolation with zeros outside, as torch.nn.functional.grid_sample."""
    total = 0.0
    for i in (int(np.floor(y)), int(np.floor(y)) + 1):
        for j in (int(np.floor(x)), int(np.floor(x)) + 1):
            if 0 <= i < len(mask) and 0 <= j < len(mask):
                total += (1 - abs(y - i)) * (1 - abs(x - j)) * mask[i, j]
    return total


@pytest.mark.parametrize(
    "box", [(3, 4, 21, 15), (-5.5, 2.25, 9.5, 30.75), (10, 10, 10.3, 10.2), (30, 30, 40, 40)]
)
def test_pasting_equals_a_loop(box):
    """Detectron2's `paste_masks_in_image`, of which torch computes the same within 2e-6."""
    mask = np.random.default_rng(0).uniform(size=[7, 7])
    found = instance_masks.paste(mask, np.array(box), (23, 27))
    y0, x0, y1, x1 = box
    for i in range(23):
        for j in range(27):
            y = (i + 0.5 - y0) / (y1 - y0) * 7 - 0.5
            x = (j + 0.5 - x0) / (x1 - x0) * 7 - 0.5
            share = interpolated(mask, y, x)
            assert abs(share - 0.5) > 1e-9
            assert found[i, j] == (share >= 0.5), (i, j)


def test_a_full_mask_fills_its_box():
    found = instance_masks.paste(np.ones([28, 28]), np.array([2, 3, 12, 9]), (20, 15))
    assert found[2:12, 3:9].all()
    assert found.sum() == 60


def random_masks():
    random = np.random.default_rng(0)
    for _ in range(40):
        size = random.integers(1, 60, 2)
        yield random.uniform(size=size) < random.uniform()
        rectangle = np.zeros(size, bool)
        rectangle[random.integers(size[0]) :, : random.integers(size[1] + 1)] = True
        yield rectangle
    yield np.zeros([3, 5], bool)
    yield np.ones([3, 5], bool)


def test_run_lengths_are_those_of_pycocotools():
    coco_mask = pytest.importorskip("pycocotools.mask")
    for mask in random_masks():
        encoded = coco_mask.encode(np.asfortranarray(mask.astype(np.uint8)))
        expected = {"size": list(mask.shape), "counts": encoded["counts"].decode()}
        assert instance_masks.to_rle(mask) == expected


def test_run_lengths_are_read_back():
    for mask in random_masks():
        np.testing.assert_array_equal(instance_masks.from_rle(instance_masks.to_rle(mask)), mask)
