"""Geometric operations move masks and boxes like their image; brute force judges them."""

import numpy as np
import pytest
import tensorflow as tf

from common.constants import IGNORED_CLASS
from input_fns.image import augment
from tests.marks import slow

BATCH, HEIGHT, WIDTH = 12, 16, 20
SIZE = (HEIGHT, WIDTH)
RANDOM = np.random.default_rng(11)
OPERATIONS = (
    "flip",
    "crop:4",
    "shift:0.3",
    "rotate:30",
    "shear:20",
    "scale:0.5",
    "flip crop:3 rotate:20 jitter:0.3 shift:0.2",
)
RANDAUGMENT = ("flip randaugment:2:9 erase:1 crop:2", "randaugment:3:8")


def box_of(mask, value):
    """The bounding box of the pixels of `value`; zeros if there are none."""
    rows, columns = np.nonzero(mask == value)
    if not len(rows):
        return np.zeros(4)
    return np.array([rows.min(), columns.min(), rows.max() + 1, columns.max() + 1])


def make_examples():
    """Masks with rectangles 1 to 3, their boxes, one box of padding, and the mask as an image."""
    masks = np.zeros([BATCH, HEIGHT, WIDTH], np.uint8)
    boxes = np.zeros([BATCH, 4, 4], np.float32)
    for mask, of_mask in zip(masks, boxes):
        for value, left in ((1, 0), (2, 7), (3, 14)):
            y, x = RANDOM.integers(0, 8), left + RANDOM.integers(0, 2)
            high, wide = RANDOM.integers(3, 9), RANDOM.integers(3, 6)
            mask[y : y + high, x : x + wide] = value
            of_mask[value - 1] = box_of(mask, value)
    return {"image": np.repeat(masks[..., None] * 80, 3, axis=-1), "mask": masks, "boxes": boxes}


EXAMPLES = make_examples()


@pytest.fixture
def apply(session):
    """Runs operations on examples: `apply("flip", **changes) -> examples, numbers`."""

    def run(text, seed=(1, 2), **changes):
        examples = {**EXAMPLES, **changes}
        augmentation = augment.parse(text)
        numbers = augmentation.draw(BATCH, list(seed))
        done = augmentation.apply(tf.nest.map_structure(tf.constant, examples), numbers)
        return session.run((done, numbers))

    return run


def moved_by_hand(mask, matrix, fill):
    """The mask by nearest neighbor, pixel by pixel."""
    moved = np.full(SIZE, fill)
    for y in range(HEIGHT):
        for x in range(WIDTH):
            old_x, old_y, _ = np.floor(matrix @ [x, y, 1] + 0.5).astype(int)
            if 0 <= old_y < HEIGHT and 0 <= old_x < WIDTH:
                moved[y, x] = mask[old_y, old_x]
    return moved


@pytest.mark.parametrize("text", ["flip", "shift:0.3", "rotate:30", "shear:20", "scale:0.5"])
def test_masks_move_by_nearest_neighbor(apply, session, text):
    done, numbers = apply(text)
    (operation,) = augment.parse(text).operations
    matrices = session.run(operation.matrix(tf.constant(numbers), SIZE, *operation.values)).astype(
        np.float64
    )
    for mask, moved, matrix in zip(EXAMPLES["mask"], done["mask"], matrices):
        by_hand = moved_by_hand(mask, matrix, IGNORED_CLASS)
        assert (moved != by_hand).mean() < 0.01  # float32 may round a tie to the other pixel
    if text != "flip":
        assert (done["mask"] == IGNORED_CLASS).any()


@pytest.mark.parametrize("text", ["flip", "crop:4", "flip crop:3"])
def test_the_mask_stays_on_the_image(apply, text):
    """Without interpolation every pixel of the image is its class times 80, or outside."""
    done, _ = apply(text)
    inside = done["mask"] != IGNORED_CLASS
    np.testing.assert_array_equal(done["image"][..., 0][inside], (done["mask"] * 80)[inside])
    assert not done["image"][~inside].any()


@pytest.mark.parametrize("text", ["flip", "crop:4", "flip crop:3"])
def test_boxes_are_the_bounding_boxes_of_their_masks(apply, text):
    done, _ = apply(text)
    for mask, boxes, valid, before in zip(
        done["mask"], done["boxes"], done["valid"], EXAMPLES["boxes"]
    ):
        for value in (1, 2, 3):
            expected = box_of(mask, value)
            area = np.prod(before[value - 1, 2:] - before[value - 1, :2])
            is_visible = np.prod(expected[2:] - expected[:2]) >= 0.25 * area
            assert valid[value - 1] == is_visible
            np.testing.assert_allclose(
                boxes[value - 1], expected if is_visible else np.zeros(4), atol=1e-4
            )
        assert not valid[3]
        assert not boxes[3].any()


@pytest.mark.parametrize("text", [*OPERATIONS, RANDAUGMENT[0], slow(RANDAUGMENT[1])])
@pytest.mark.parametrize("seed", [(1, 2), slow((3, 4))])
def test_boxes_hold_what_remains_of_their_masks(apply, text, seed):
    done, _ = apply(text, seed)
    assert done["boxes"].dtype == np.float32
    assert (done["boxes"] >= 0).all()
    assert (done["boxes"][..., 2] <= HEIGHT).all()
    assert (done["boxes"][..., 3] <= WIDTH).all()
    assert done["valid"].any()
    for mask, boxes, valid in zip(done["mask"], done["boxes"], done["valid"]):
        for value in (1, 2, 3):
            y0, x0, y1, x1 = box_of(mask, value)
            if valid[value - 1] and y1:  # nearest neighbor is up to half a pixel off
                low, high = boxes[value - 1, :2], boxes[value - 1, 2:]
                assert (low <= [y0 + 1, x0 + 1]).all()
                assert (high >= [y1 - 1, x1 - 1]).all()


@pytest.mark.parametrize("text", [*OPERATIONS, *map(slow, RANDAUGMENT)])
def test_images_are_bit_identical_with_and_without_regions(apply, session, text):
    done, numbers = apply(text)
    images = tf.constant(EXAMPLES["image"])
    alone = augment.parse(text).apply({"image": images}, tf.constant(numbers))
    assert set(alone) == {"image"}
    np.testing.assert_array_equal(session.run(alone["image"]), done["image"])


def test_photometric_operations_leave_masks_and_boxes(apply):
    done, _ = apply("jitter:0.5 erase:1")
    np.testing.assert_array_equal(done["mask"], EXAMPLES["mask"])
    np.testing.assert_array_equal(done["boxes"], EXAMPLES["boxes"])
    assert done["valid"].tolist() == [[True, True, True, False]] * BATCH
    assert not np.array_equal(done["image"], EXAMPLES["image"])


def test_invalid_boxes_stay_invalid(apply):
    valid = np.tile([True, False, True, False], [BATCH, 1])
    done, _ = apply("flip", valid=valid)
    np.testing.assert_array_equal(done["valid"], valid)
    assert not done["boxes"][:, 1].any()


def test_shapes_are_static():
    examples = {
        "image": tf.zeros([3, HEIGHT, WIDTH, 3], tf.uint8),
        "mask": tf.zeros([3, HEIGHT, WIDTH], tf.uint8),
        "boxes": tf.zeros([3, 5, 4]),
        "classes": tf.zeros([3, 5], tf.int32),
    }
    augmentation = augment.parse("flip rotate:5 crop:2 randaugment:1:3")
    done = augmentation.apply(examples, augmentation.draw(3, [1, 2]))
    shapes = {name: value.shape.as_list() for name, value in done.items()}
    assert shapes == {
        **{name: value.shape.as_list() for name, value in examples.items()},
        "valid": [3, 5],
    }
