"""One scale and offset move pixels, masks and boxes; Pillow and brute force judge them."""

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from input_fns import DataError
from input_fns.image import augment
from input_fns.image.augment import Augmentation, mosaic, placement, windows
from tests import shapes_data

CANVAS = (40, 56)
# Window (y, x, height, width), scale and offset: whole, smaller, larger, cropped, stretched.
PLACEMENTS = {
    "whole": ((0, 0, 61, 83), (0.6, 0.6), (0, 0)),
    "smaller": ((0, 0, 61, 83), (0.37, 0.37), (0, 0)),
    "larger": ((0, 0, 61, 83), (1.7, 1.7), (31, 64)),
    "window": ((9, 20, 31, 44), (1.25, 1.25), (0, 0)),
    "stretched": ((3, 0, 50, 80), (0.8, 0.7), (0, 0)),
}
DRAWING = shapes_data.draw(2, size=(61, 83), side=(12, 30))


@pytest.fixture(params=PLACEMENTS)
def where(request):
    """A placement as NumPy arrays."""
    window, scale, offset = PLACEMENTS[request.param]
    return placement.Placement(np.int32(window), np.float32(scale), np.float32(offset), CANVAS)


def corner(where):
    """Height and width of the part of the canvas that shows the image, in pixels of the canvas."""
    return np.minimum(where.window[2:] * where.scale - where.offset, CANVAS)


def test_pixels_are_those_of_pillow(session, where):
    placed = session.run(placement.place_image(tf.constant(DRAWING.image), where))
    # Whole pixels of the canvas only: Pillow stretches its window to whole pixels.
    height, width = np.floor(corner(where)).astype(int)
    y, x = where.window[:2] + where.offset / where.scale
    down, right = [height, width] / where.scale
    window = DRAWING.image[
        where.window[0] : where.window[0] + where.window[2],
        where.window[1] : where.window[1] + where.window[3],
    ]
    y, x = y - where.window[0], x - where.window[1]
    for channel in range(3):
        image = Image.fromarray(window[..., channel].astype(np.float32))
        expected = image.resize(
            (width, height), Image.Resampling.BILINEAR, box=(x, y, x + right, y + down)
        )
        # Rounded to a level, and float32 coordinates.
        difference = placed[:height, :width, channel] - np.asarray(expected)
        assert np.abs(difference).max() <= 0.5 + 0.02


def test_an_image_that_fills_the_canvas_keeps_its_pixels(session):
    drawing = shapes_data.draw(3, size=CANVAS, side=(7, 13))
    whole = placement.fit(tf.constant(CANVAS), CANVAS, False)
    example = {"image": tf.constant(drawing.image), "mask": tf.constant(drawing.class_mask)}
    placed = placement.place_image(example["image"], whole)
    mask = placement.place_mask(example["mask"], whole)
    kept, _ = Augmentation().place(example, None, CANVAS, False)
    jittered, _ = augment.parse("scale_jitter:0.5:0.5").place(example, [0.5] * 3, CANVAS, False)
    found = session.run([placed, mask, kept["image"], kept["mask"], jittered["image"]])
    for pixels, expected in zip(found, [drawing.image, drawing.class_mask] * 2):
        np.testing.assert_array_equal(pixels, expected)
    assert (found[-1] != drawing.image).any()


def test_the_canvas_beside_the_image_is_black_and_ignored(session, where):
    white = tf.fill([*DRAWING.image.shape], tf.constant(255, tf.uint8))
    mask = tf.zeros(DRAWING.image.shape[:2], tf.uint8)
    image, mask = session.run(
        (placement.place_image(white, where), placement.place_mask(mask, where))
    )
    height, width = corner(where)
    rows, columns = np.arange(CANVAS[0]) + 0.5, np.arange(CANVAS[1]) + 0.5
    is_image = (rows < height)[:, None] & (columns < width)
    np.testing.assert_array_equal(image, np.repeat(255 * is_image[..., None], 3, axis=-1))
    np.testing.assert_array_equal(mask, np.where(is_image, 0, 255))


def test_masks_are_of_the_nearest_pixel(session, where):
    mask = np.random.default_rng(1).integers(0, 9, DRAWING.image.shape[:2], np.uint8)
    placed = session.run(placement.place_mask(tf.constant(mask), where))
    for y in range(CANVAS[0]):
        for x in range(CANVAS[1]):
            center = np.array([y + 0.5, x + 0.5])
            at = (center + where.offset.astype(float)) / where.scale.astype(float)
            inside = (at < where.window[2:]).all()
            row, column = np.floor(at).astype(int) + where.window[:2]
            is_tie = np.abs(at - np.round(at)).min() < 1e-4  # an edge in float32
            assert is_tie or placed[y, x] == (mask[row, column] if inside else 255)


def test_boxes_are_the_bounds_of_the_moved_pixels(session, where):
    random = np.random.default_rng(6)
    low = random.integers(0, [40, 60], [6, 2])
    boxes = np.concatenate([low, low + random.integers(5, 21, [6, 2])], axis=1)
    mask_in = tf.compat.v1.placeholder(tf.uint8, DRAWING.image.shape[:2])
    moved_mask = placement.place_mask(mask_in, where)
    moved, visible = session.run(placement.place_boxes(tf.constant(boxes, tf.float32), where))
    for (y0, x0, y1, x1), box, share in zip(boxes, moved, visible):
        mask = np.zeros(DRAWING.image.shape[:2], np.uint8)
        mask[y0:y1, x0:x1] = 1
        rows, columns = np.nonzero(session.run(moved_mask, {mask_in: mask}) == 1)
        area = (y1 - y0) * (x1 - x0) * np.prod(where.scale)
        np.testing.assert_allclose(share, np.prod(box[2:] - box[:2]) / area, atol=1e-5)
        if share:  # a pixel belongs to the box that has its center
            bounds = [rows.min(), columns.min(), rows.max() + 1, columns.max() + 1]
            np.testing.assert_allclose(box, bounds, atol=0.5 + 1e-4)


def test_a_box_outside_of_the_window_is_not_visible(session):
    where = placement.Placement(np.int32([10, 10, 20, 20]), np.ones(2), np.zeros(2), (20, 20))
    where = where._replace(scale=np.ones(2, np.float32), offset=np.zeros(2, np.float32))
    boxes = np.float32([[0, 0, 10, 10], [0, 12, 40, 14], [5, 5, 15, 15], [0, 0, 0, 0]])
    placed, visible = session.run(placement.place_boxes(tf.constant(boxes), where))
    np.testing.assert_allclose(visible, [0, 0.5, 0.25, 0])
    np.testing.assert_array_equal(placed[1], [0, 2, 20, 4])
    np.testing.assert_array_equal(placed[2], [0, 0, 5, 5])


def first_window(numbers, size, boxes, overlap):
    """What `box_crop` promises, by a loop; None for the whole image."""
    for share_y, share_x, y, x in numbers[1:].reshape(-1, 4):
        shares = 0.3 + np.float32([share_y, share_x]) * np.float32(0.7)
        if not 0.5 <= shares[0] / shares[1] <= 2:
            continue
        sides = np.round(shares * np.float32(size))
        start = np.floor(np.float32([y, x]) * (size - sides + 1))
        low, high = np.maximum(boxes[:, :2], start), np.minimum(boxes[:, 2:], start + sides)
        inside = np.prod(np.maximum(high - low, 0), axis=1)
        if not len(boxes) or (inside >= overlap * np.prod(boxes[:, 2:] - boxes[:, :2], 1)).any():
            return [*start, *sides]
    return None


@pytest.mark.parametrize("overlap", [0.3, 1.0])
def test_a_box_crop_is_the_first_window_that_keeps_a_box(session, overlap):
    random = np.random.default_rng(3)
    size, found = np.array(DRAWING.image.shape[:2]), []
    numbers_in = tf.compat.v1.placeholder(tf.float32, [windows.BOX_CROP_NUMBERS])
    boxes_in = tf.compat.v1.placeholder(tf.float32, [None, 4])
    window = windows.box_crop(numbers_in, tf.constant(size, tf.int32), boxes_in, 0.7, overlap)
    for boxes in (
        DRAWING.boxes,
        DRAWING.boxes[:1],
        DRAWING.boxes[:0],
        np.float32([[0, 0, 61, 83]]),
    ):
        for _ in range(8):
            numbers = random.random(windows.BOX_CROP_NUMBERS, np.float32)
            expected = first_window(numbers, size, boxes, overlap) if numbers[0] < 0.7 else None
            got = session.run(window, {numbers_in: numbers, boxes_in: boxes})
            assert got.tolist() == (expected or [0, 0, *size])
            found.append(expected)
    assert any(found)
    assert None in found


def test_scale_jitter_crops_what_is_larger_than_the_canvas(session):
    numbers = np.random.default_rng(4).random([40, 3], np.float32)
    fitted, size = np.float32([0.6, 0.6]), tf.constant([61, 83])
    numbers_in = tf.compat.v1.placeholder(tf.float32, [3])
    place = windows.scale_jitter(numbers_in, tf.constant(fitted), size, CANVAS, 0.5, 2)
    for row in numbers:
        scale, offset = session.run(place, {numbers_in: row})
        np.testing.assert_allclose(scale, fitted * (0.5 + 1.5 * row[0]), rtol=1e-6)
        room = np.maximum(np.floor(np.float32([61, 83]) * scale) - CANVAS, 0)
        assert (offset == np.floor(offset)).all()
        assert ((offset >= 0) & (offset <= room)).all()
        np.testing.assert_allclose(offset, row[1:] * (room + 1), atol=1)


def test_a_mosaic_shows_each_box_where_its_pixels_are(session):
    """Black images with a white rectangle, their only box; two are not mixed."""
    random = np.random.default_rng(5)
    boxes = np.zeros([8, 3, 4], np.float32)
    boxes[:, 0, :2] = random.integers(0, 20, [8, 2])
    boxes[:, 0, 2:] = boxes[:, 0, :2] + random.integers(10, 18, [8, 2])
    images = np.zeros([8, *CANVAS, 1], np.uint8)
    for image, (y0, x0, y1, x1) in zip(images, boxes[:, 0].astype(int)):
        image[y0:y1, x0:x1] = 255
    numbers = random.random([8, 3], np.float32)
    numbers[:, 0] = [0.1, 0.2, 0.9, 0.3, 0.7, 0.8, 0.0, 0.5]
    tensors = (images, {"boxes": boxes, "classes": np.arange(24).reshape(8, 3)}, numbers)
    mixed, rows, visible = session.run(
        mosaic.mosaic(*tf.nest.map_structure(tf.constant, tensors), 0.75)
    )
    middles = np.round((0.3 + 0.4 * numbers[:, 1:]) * CANVAS).astype(int)
    for i in range(8):
        y, x = middles[i]
        parts = np.s_[:y, :x], np.s_[:y, x:], np.s_[y:, :x], np.s_[y:, x:]
        for quadrant, part in enumerate(parts):
            source = i // 4 * 4 + (i + quadrant) % 4
            row = 3 * quadrant
            assert rows["classes"][i, row] == 3 * source
            if numbers[i, 0] >= 0.75:
                assert visible[i, row] == (quadrant == 0)
                continue
            is_white = np.zeros(CANVAS, bool)
            is_white[part] = mixed[i, ..., 0][part] > 127
            found = np.nonzero(is_white)
            if visible[i, row] > 0.3:
                bounds = [*np.min(found, axis=1), *(np.max(found, axis=1) + 1)]
                # Pixels count by their centers; bilinear edges are gray for up to another half.
                np.testing.assert_allclose(rows["boxes"][i, row], bounds, atol=1)
    for i in (2, 5):
        np.testing.assert_array_equal(mixed[i], images[i])
        np.testing.assert_array_equal(rows["boxes"][i, :3], boxes[i])
    assert (visible[[0, 1, 3, 4, 6, 7]] > 0.3).sum() >= 12


def test_a_mosaic_needs_four_images(session):
    boxes = {"boxes": tf.zeros([6, 1, 4])}
    with pytest.raises(DataError, match=r"mosaic needs batches of a multiple of 4 .* they have 6"):
        mosaic.mosaic(tf.zeros([6, 8, 8, 3], tf.uint8), boxes, tf.zeros([6, 3]), 1)
