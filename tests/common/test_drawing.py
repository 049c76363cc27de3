"""Boxes, masks and classes of pixels, drawn into pictures."""

import numpy as np
from PIL import Image

from common import drawing, instance_masks
from common.constants import IGNORED_CLASS


def test_boxes_are_drawn_on_their_pixels():
    picture = Image.new("RGB", (70, 60))
    drawn = np.asarray(drawing.draw_boxes(picture, [[3.0, 5.0, 52.0, 65.0]], [1], [""]))
    is_drawn = (drawn == drawing.class_color(1)).all(axis=-1)
    rows, columns = np.nonzero(is_drawn)
    assert (rows.max(), columns.min(), columns.max()) == (51, 5, 64)
    for edge in (is_drawn[3, 5:65], is_drawn[51, 5:65], is_drawn[3:52, 5], is_drawn[3:52, 64]):
        assert edge.all()
    assert not np.asarray(picture).any()


def test_masks_are_scaled_to_the_picture_and_half_cover_it():
    mask = np.array([[True, False], [False, False]])
    picture = Image.new("RGB", (8, 8))
    for given in (mask, instance_masks.to_rle(mask)):
        drawn = np.asarray(drawing.draw_masks(picture, [given], [2])).astype(int)
        assert np.abs(drawn[0, 0] - np.array(drawing.class_color(2)) / 2).max() <= 1
        assert not drawn[7, 7].any()


def test_ignored_pixels_keep_their_color_and_others_are_half_covered():
    image = np.full([2, 3, 3], 100, np.uint8)
    classes = np.array([[0, 1, IGNORED_CLASS], [1, 1, 2]], np.uint8)
    mixed = drawing.blend(image, classes)
    assert mixed[0, 2].tolist() == [100, 100, 100]
    np.testing.assert_array_equal(mixed[1, 2], (100 + np.array(drawing.class_color(2))) // 2)


def test_no_two_classes_have_one_color():
    assert len({drawing.class_color(number) for number in range(IGNORED_CLASS)}) == IGNORED_CLASS
