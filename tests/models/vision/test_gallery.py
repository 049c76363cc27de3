"""The first images of an evaluation with their predictions."""

import io
import types

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from models.vision import gallery

NAMES = ("cat", "dog", "a name that is much too long for a tile")


def red(image):
    """Whether any pixel is red."""
    pixels = np.asarray(image).astype(int)
    return bool(((pixels[..., 0] > 200) & (pixels[..., 1] < 80)).any())


@pytest.mark.parametrize("channels", [1, 3])
def test_what_is_wrong_is_red(channels):
    images = np.full([7, 5, 4, channels], 16, np.uint8)
    labels = np.array([0, 1, 2, 0, 1, 2, 0])
    right = np.eye(3)[labels]
    assert not red(gallery.draw(images, labels, right, NAMES))
    assert red(gallery.draw(images, labels, np.roll(right, 1, axis=1), NAMES))


def test_the_brightest_pixel_is_white():
    images = np.zeros([1, 2, 2, 1], np.float32)
    images[0, 0, 0] = 16
    tile = np.asarray(gallery.draw(images, [0], [[1.0]], ["digit"]))
    assert tile[10, 10].tolist() == [255, 255, 255]
    assert tile[80, 80].tolist() == [0, 0, 0]


def test_an_evaluation_draws_its_first_batch_without_padding(trained_dir, run_in):
    run_in(trained_dir, "--mode=eval", "--eval_batch_size=64")  # 41 images and 23 of padding
    found = {}
    for path in tf.io.gfile.glob(f"{trained_dir}/eval/events*"):
        for event in tf.compat.v1.train.summary_iterator(path):
            found.update({value.tag: (event.step, value.image) for value in event.summary.value})
    step, image = found["predictions/first_images"]
    assert step == 40
    assert Image.open(io.BytesIO(image.encoded_image_string)).size == (672, 560)


@pytest.mark.parametrize(
    ("features", "predictions"),
    [
        ({"ids": np.zeros([3, 7])}, {"probabilities": np.ones([3, 3])}),
        ({"image": np.zeros([3, 7, 5, 2])}, {"probabilities": np.ones([3, 3])}),
        ({"image": np.zeros([3, 7, 5, 1])}, {}),
        ({"image": np.zeros([3, 7, 5, 1])}, {"probabilities": np.ones([3, 4])}),
    ],
)
def test_nothing_is_drawn_without_classes_or_images(features, predictions):
    evaluation = types.SimpleNamespace(
        features=features, labels=np.zeros(3, int), predictions=predictions
    )
    assert gallery.Gallery(NAMES).write(evaluation) == {}
