"""Boxes: IoU, codes and anchors, by hand and by brute force."""

import numpy as np
import pytest
import tensorflow as tf

from common.params import Floats
from models.detection import anchors, boxes
from models.model import ModelError
from tests.detection_data import random_boxes


def test_iou_of_one_pixel_in_common(session):
    pair = tf.constant([[0.0, 0, 2, 2], [1, 1, 3, 3]])
    np.testing.assert_allclose(session.run(boxes.iou(pair, pair)), [[1, 1 / 7], [1 / 7, 1]])


def test_iou_of_boxes_that_touch_or_have_no_area_is_zero(session):
    point = tf.constant([[1.0, 1, 1, 1]])
    others = tf.constant([[1.0, 1, 1, 1], [0, 0, 2, 2], [0, 2, 2, 4]])
    np.testing.assert_array_equal(session.run(boxes.iou(point, others)), [[0, 0, 0]])
    np.testing.assert_array_equal(session.run(boxes.iou(others[1:2], others[2:])), [[0]])


def test_decode_inverts_encode(session):
    random = np.random.default_rng(0)
    around = np.add(random_boxes(random, 7), [0, 0, 1, 1])
    wanted = np.add(random_boxes(random, 3, 7), [0, 0, 1, 1])
    decoded = boxes.decode(boxes.encode(tf.constant(wanted), around), around)
    # Each coordinate is a center, up to 64, plus half a side, up to 65: some roundings of 2**-24.
    np.testing.assert_allclose(session.run(decoded), wanted, atol=8 * 64 * 2**-24)


def test_the_code_of_an_anchor_is_zero_and_of_twice_its_size_the_logarithm_of_two(session):
    anchor = tf.constant([[2.0, 4, 6, 12]])
    larger = tf.constant([[0.0, 0, 8, 16]])
    assert session.run(boxes.encode(anchor, anchor)).tolist() == [[0, 0, 0, 0]]
    np.testing.assert_allclose(
        session.run(boxes.encode(larger, anchor)), [[0, 0, np.log(2), np.log(2)]], rtol=1e-6
    )


def test_huge_codes_are_decoded_to_finite_boxes(session):
    decoded = session.run(boxes.decode(tf.fill([1, 4], 1e4), tf.constant([[0.0, 0, 8, 8]])))
    assert np.isfinite(decoded).all()


def test_anchors_are_centered_on_their_cells():
    params = {**anchors.default_params(), "max_level": 4, "anchor_scales": 1}
    found = anchors.by_level((24, 17), {**params, "anchor_ratios": Floats([1, 4])})
    assert {level: array.shape for level, array in found.items()} == {
        3: (3, 3, 2, 4),
        4: (2, 2, 2, 4),  # the last row and column are half outside of the image
    }
    # Cells of 8 pixels, sides of 4 cells; the ratio is width to height.
    np.testing.assert_allclose(found[3][1, 2], [[-4, 4, 28, 36], [4, -12, 20, 52]])


def test_flat_anchors_are_in_the_order_of_the_levels():
    params = anchors.default_params()
    found = anchors.flat((130, 64), params)
    assert found.dtype == np.float32
    assert len(found) == 9 * (17 * 8 + 9 * 4 + 5 * 2 + 3 * 1 + 2 * 1)
    np.testing.assert_array_equal(
        found[9 * 17 * 8], anchors.by_level((130, 64), params)[4][0, 0, 0]
    )


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("min_level", 8, "min_level=8, max_level=7 must be in order"),
        ("anchor_size", 0.0, "must be above 0"),
        ("anchor_scales", 0, "at least 1"),
        ("anchor_ratios", Floats(), r"such as \[0.5,1,2\]"),
        ("anchor_ratios", Floats([1, -1]), "numbers above 0"),
    ],
)
def test_invalid_anchors(name, value, message):
    with pytest.raises(ModelError, match=message):
        anchors.check_params({**anchors.default_params(), name: value})
