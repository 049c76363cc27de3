"""Boxes are corrected, or left out and counted."""

import io
import math

import numpy as np
import pytest
from PIL import Image, ImageOps

from input_fns.image.sources import boxes
from input_fns.image.sources.boxes import Box, Notes
from tests.marks import slow

SIZE = (30, 40)  # height, width


def fixed(corners, **options):
    notes = Notes()
    found = boxes.fix(corners, SIZE, notes, **options)
    return found, dict(notes.corrected), dict(notes.left_out)


def test_a_valid_box_stays_as_it_is():
    assert fixed((1.5, 2.25, 30.0, 40.0)) == ((1.5, 2.25, 30.0, 40.0), {}, {})


@pytest.mark.parametrize(
    "corners", [(9.0, 2.0, 3.0, 5.0), slow((3.0, 5.0, 9.0, 2.0)), slow((9.0, 5.0, 3.0, 2.0))]
)
def test_swapped_corners_are_exchanged(corners):
    assert fixed(corners) == ((3.0, 2.0, 9.0, 5.0), {boxes.SWAPPED: 1}, {})


def test_a_box_that_leaves_the_image_is_clipped():
    assert fixed((-5.0, 10.0, 10.0, 99.0)) == ((0.0, 10.0, 10.0, 40.0), {boxes.CLIPPED: 1}, {})


@pytest.mark.parametrize(
    ("corners", "reason"),
    [
        ((math.nan, 0.0, 5.0, 5.0), boxes.NOT_FINITE),
        slow((0.0, 0.0, math.inf, 5.0), boxes.NOT_FINITE),
        ((3.0, 4.0, 3.0, 9.0), boxes.EMPTY),
        ((3.0, 4.0, 9.0, 4.01), boxes.EMPTY),
        ((50.0, 2.0, 60.0, 9.0), boxes.OUTSIDE),
        ((-9.0, 2.0, 0.05, 9.0), boxes.OUTSIDE),
    ],
)
def test_a_box_without_pixels_is_left_out(corners, reason):
    assert fixed(corners) == (None, {}, {reason: 1})


def test_numbers_of_pixels_that_start_at_1_become_continuous():
    """Pixels 1 to 40 of VOC are the whole width."""
    assert fixed((1.0, 1.0, 30.0, 40.0), origin=1)[0] == (0.0, 0.0, 30.0, 40.0)
    assert fixed((4.0, 8.0, 3.0, 2.0), origin=1)[0] == (2.0, 1.0, 4.0, 8.0)


def test_equal_corners_are_a_pixel_if_they_are_numbers_of_pixels():
    assert fixed((7.0, 8.0, 7.0, 8.0), origin=1) == ((6.0, 7.0, 7.0, 8.0), {}, {})
    assert fixed((7.0, 8.0, 7.0, 9.0), origin=0) == (None, {}, {boxes.EMPTY: 1})
    assert fixed((0.0, 0.0, 0.0, 0.0), origin=1) == (None, {}, {boxes.OUTSIDE: 1})


def test_a_box_that_is_left_out_is_not_counted_as_corrected():
    assert fixed((9.0, 5.0, 3.0, 5.0)) == (None, {}, {boxes.EMPTY: 1})


@pytest.mark.parametrize("orientation", range(1, 9))
def test_boxes_and_masks_turn_with_the_image(orientation):
    """Pillow turns the image; the box must hold the same pixels."""
    image = np.zeros([5, 9], np.uint8)
    image[1:3, 2:8] = 255
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG", exif=exif)
    upright = np.asarray(ImageOps.exif_transpose(Image.open(file)))
    (box,) = boxes.turned(np.array([[1, 2, 3, 8]], np.float32), (5, 9), orientation)
    y0, x0, y1, x1 = box.astype(int)
    assert upright[y0:y1, x0:x1].all()
    assert upright.sum() == 255 * (y1 - y0) * (x1 - x0)
    np.testing.assert_array_equal(boxes.turned_mask(image, orientation), upright)


@pytest.mark.parametrize(
    ("declared", "orientation", "turns"),
    [((9, 5), 6, True), ((5, 9), 6, False), ((0, 0), 6, False), slow((5, 9), 3, False)],
)
def test_annotations_refer_to_the_orientation_that_their_size_tells(declared, orientation, turns):
    assert boxes.must_turn(declared, (5, 9), orientation) == turns


@pytest.mark.parametrize(("declared", "orientation"), [((9, 5), 1), ((10, 18), 6), ((9, 5), 3)])
def test_annotations_of_another_size_are_refused(declared, orientation):
    with pytest.raises(ValueError, match=r"it has 9 x 5 pixels \(width x height\), and its annot"):
        boxes.must_turn(declared, (5, 9), orientation)


def test_the_largest_boxes_are_kept_in_their_order():
    found = [Box((0, 0, side, side), side, False, 1.0) for side in (3, 9, 1, 7)]
    assert [box.label for box in boxes.largest(found, 2)] == [9, 7]


def test_packed_rows_end_with_padding():
    packed = boxes.pack([Box((1.0, 2.0, 3.0, 4.0), 5, True, 6.0)], 3)
    assert packed["boxes"].tolist() == [[1, 2, 3, 4], [0] * 4, [0] * 4]
    assert packed["classes"].tolist() == [5, -1, -1]
    assert packed["is_crowd"].tolist() == [1, 0, 0]
    assert packed["areas"].tolist() == [6, 0, 0]
    assert {name: array.dtype.name for name, array in packed.items()} == {
        "boxes": "float32",
        "classes": "int32",
        "is_crowd": "uint8",
        "areas": "float32",
    }
