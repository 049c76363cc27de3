"""Images, masks and boxes are scaled, cropped and flipped as by torchvision's transforms."""

import numpy as np
import pytest
import tensorflow as tf

from input_fns.image import augment
from input_fns.image.augment import placement
from tests import shapes_data

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
tv_tensors = pytest.importorskip("torchvision.tv_tensors", reason="torchvision is not installed")
functional = pytest.importorskip("torchvision.transforms.v2.functional")

SIZE = (61, 83)
DRAWING = shapes_data.draw(2, size=SIZE, side=(12, 30))


def as_torch():
    """The image as float, mask and boxes (x0, y0, x1, y1) as torchvision's tensors."""
    boxes = np.random.default_rng(1).integers(0, 30, [5, 4])
    boxes[:, 2:] += boxes[:, :2] + 5
    image = torch.from_numpy(DRAWING.image.transpose(2, 0, 1).copy()).float()
    boxes = tv_tensors.BoundingBoxes(boxes.astype(np.float32), format="XYXY", canvas_size=SIZE)
    mask = tv_tensors.Mask(torch.from_numpy(DRAWING.class_mask))
    return tv_tensors.Image(image), mask, boxes


def y_first(boxes):
    return np.asarray(boxes)[:, [1, 0, 3, 2]]


@pytest.mark.parametrize("canvas", [(40, 56), (122, 166), (61, 83), (30, 120)])
def test_evaluation_resizes_like_torchvision(session, canvas):
    image, mask, boxes = as_torch()
    where = placement.fit(tf.constant(SIZE), canvas, keep_aspect_ratio=False)
    placed = session.run(
        (
            placement.place_image(tf.constant(DRAWING.image), where),
            placement.place_mask(tf.constant(DRAWING.class_mask), where),
            placement.place_boxes(tf.constant(y_first(boxes)), where)[0],
        )
    )
    expected = functional.resize(image, canvas, antialias=True)
    # Rounded to a level here, float32 there.
    np.testing.assert_allclose(placed[0], expected.numpy().transpose(1, 2, 0), atol=0.5 + 1e-3)
    nearest = functional.InterpolationMode.NEAREST_EXACT
    expected = functional.resize_image(mask[None], canvas, interpolation=nearest)[0]
    np.testing.assert_array_equal(placed[1], expected)
    np.testing.assert_allclose(placed[2], y_first(functional.resize(boxes, canvas)), rtol=1e-5)


def test_crops_of_scaled_images_are_like_torchvisions(session):
    """Scale jitter by a factor of 2: every pixel becomes 2 x 2, then a crop."""
    image, mask, boxes = as_torch()
    place = [12, 9, 40, 50]
    where = placement.Placement(
        tf.constant([0, 0, *SIZE]), tf.constant([2.0, 2.0]), tf.constant([12.0, 9.0]), (40, 50)
    )
    placed = session.run(
        (
            placement.place_image(tf.constant(DRAWING.image), where),
            placement.place_mask(tf.constant(DRAWING.class_mask), where),
            placement.place_boxes(tf.constant(y_first(boxes)), where)[0],
        )
    )
    scaled = [122, 166]
    expected = functional.crop(functional.resize(image, scaled, antialias=True), *place)
    np.testing.assert_allclose(placed[0], expected.numpy().transpose(1, 2, 0), atol=0.5 + 1e-3)
    expected = functional.crop(functional.resize(mask, scaled), *place)
    np.testing.assert_array_equal(placed[1], expected)
    expected = functional.crop(functional.resize(boxes, scaled), *place)
    np.testing.assert_allclose(placed[2], y_first(expected), rtol=1e-5)


def test_flips_are_torchvisions(session):
    image, mask, boxes = as_torch()
    augmentation = augment.parse("flip")
    numbers = np.float32([[0.7], [0.2]])  # the first is not flipped
    examples = {
        "image": np.stack([DRAWING.image] * 2),
        "mask": np.stack([DRAWING.class_mask] * 2),
        "boxes": np.stack([y_first(boxes)] * 2),
    }
    tensors = tf.nest.map_structure(tf.constant, (examples, numbers))
    done = session.run(augmentation.apply(*tensors))
    flipped = [functional.horizontal_flip(part).numpy() for part in (image, mask, boxes)]
    is_flipped = int((done["image"][0] == DRAWING.image).all())
    np.testing.assert_array_equal(done["image"][is_flipped], flipped[0].transpose(1, 2, 0))
    np.testing.assert_array_equal(done["mask"][is_flipped], flipped[1])
    np.testing.assert_allclose(done["boxes"][is_flipped], y_first(flipped[2]), atol=1e-4)
    np.testing.assert_array_equal(done["image"][1 - is_flipped], DRAWING.image)
