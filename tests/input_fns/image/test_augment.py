"""Augmentation, judged by SciPy, Keras and Pillow on the same random numbers."""

import math

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageEnhance, ImageOps
from scipy import ndimage

from input_fns import DataError
from input_fns.image import augment
from input_fns.image.augment import color, randaugment
from tests import numerics
from tests.marks import slow

BATCH, HEIGHT, WIDTH = 13, 9, 7
RANDOM = np.random.default_rng(5)
IMAGES = RANDOM.integers(0, 256, [BATCH, HEIGHT, WIDTH, 3], dtype=np.uint8)


@pytest.fixture
def apply(session):
    """Runs words on images: `apply("flip", images=IMAGES) -> images, numbers`."""

    def run(text, images=IMAGES, seed=(1, 2)):
        augmentation = augment.parse(text)
        numbers = augmentation.draw(len(images), list(seed))
        done = augmentation.apply({"image": tf.constant(images)}, numbers)["image"]
        assert done.dtype == tf.uint8
        assert done.shape.as_list() == list(images.shape)
        return session.run((done, numbers))

    return run


def by_scipy(image, matrix, offset):
    """What Keras' apply_affine_transform does: bilinear, the border repeated, a channel a time."""
    channels = [
        ndimage.affine_transform(
            channel.astype(np.float64), matrix, offset, order=1, mode="nearest"
        )
        for channel in np.moveaxis(image, -1, 0)
    ]
    return np.stack(channels, axis=-1)


def test_flip(apply):
    flipped, numbers = apply("flip")
    assert 0 < np.sum(numbers < 0.5) < BATCH
    for before, after, (number,) in zip(IMAGES, flipped, numbers):
        np.testing.assert_array_equal(after, before[:, ::-1] if number < 0.5 else before)


def test_crop(apply):
    cropped, numbers = apply("crop:3")
    places = np.floor(numbers * 7).astype(int)
    assert set(places.ravel()) >= {0, 6}
    for before, after, (y, x) in zip(IMAGES, cropped, places):
        padded = np.pad(before, [[3, 3], [3, 3], [0, 0]])
        np.testing.assert_array_equal(after, padded[y : y + HEIGHT, x : x + WIDTH])


def test_shift_is_that_of_scipy(apply):
    shifted, numbers = apply("shift:0.3")
    for before, after, (down, right) in zip(IMAGES, shifted, numbers):
        offset = [(2 * down - 1) * 0.3 * HEIGHT, (2 * right - 1) * 0.3 * WIDTH]
        np.testing.assert_allclose(after, by_scipy(before, np.eye(2), offset), atol=0.51)


def test_rotation_is_that_of_scipy(apply):
    rotated, numbers = apply("rotate:40")
    middle = np.array([(HEIGHT - 1) / 2, (WIDTH - 1) / 2])
    for before, after, (number,) in zip(IMAGES, rotated, numbers):
        angle = math.radians((2 * number - 1) * 40)
        matrix = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
        wanted = by_scipy(before, matrix, middle - matrix @ middle)
        np.testing.assert_allclose(after, wanted, atol=0.51)


def test_rotation_is_that_of_keras(apply):
    square = IMAGES[:, :WIDTH]  # of others Keras takes the middle of rows for that of columns
    rotated, numbers = apply("rotate:40", images=square)
    for before, after, (number,) in zip(square, rotated, numbers):
        wanted = tf.keras.preprocessing.image.apply_affine_transform(
            before.astype(np.float64),
            theta=(2 * number - 1) * 40,
            row_axis=0,
            col_axis=1,
            channel_axis=2,
        )
        np.testing.assert_allclose(after, wanted, atol=0.51)


def test_neighbouring_words_interpolate_once(apply):
    """Flip, then shift, then rotation: one matrix, the last word first on the way back."""
    done, numbers = apply("flip shift:0.2 rotate:20")
    middle = np.array([(HEIGHT - 1) / 2, (WIDTH - 1) / 2])
    for before, after, (flip, down, right, turn) in zip(IMAGES, done, numbers):
        image = before[:, ::-1] if flip < 0.5 else before
        angle = math.radians((2 * turn - 1) * 20)
        matrix = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
        shift = np.array([(2 * down - 1) * 0.2 * HEIGHT, (2 * right - 1) * 0.2 * WIDTH])
        wanted = by_scipy(image, matrix, middle - matrix @ middle + shift)
        np.testing.assert_allclose(after, wanted, atol=0.51)


def windows_of(session, word, numbers, size, center=(0, 0, 0, 0)):
    """Columns y, x, height and width, one row an example."""
    window = augment.parse(word).window
    rows = window(tf.constant(numbers, tf.float32), size, tf.constant(center))
    return session.run(rows).T


EXTREMES = [[0, 0, 0, 0], [0.999999] * 4, [1, 0, 1, 0], [0, 1, 1, 1]]


def test_random_windows_lie_within_the_image_and_keep_to_area_and_proportions(session):
    numbers = np.concatenate([RANDOM.random([500, 4]), EXTREMES])
    y, x, high, wide = windows_of(session, "resize_crop:0.25", numbers, (90, 120))
    assert (y >= 0).all()
    assert (x >= 0).all()
    assert (y + high <= 90).all()
    assert (x + wide <= 120).all()
    whole = (high < 90) & (wide < 120)  # not cut to the image
    assert whole.sum() > 250
    assert ((high * wide)[whole] / (90 * 120)).min() > 0.24
    ratio = wide[whole] / high[whole]
    assert 0.73 < ratio.min() < 0.8
    assert 1.25 < ratio.max() < 1.36


def test_a_random_crop_is_as_large_as_the_one_of_evaluation(session):
    numbers = np.concatenate([RANDOM.random([500, 2]), np.array(EXTREMES)[:, 2:]])
    y, x, high, wide = windows_of(session, "random_crop", numbers, (9, 12), center=(1, 2, 7, 8))
    assert set(high) == {7}
    assert set(wide) == {8}
    assert set(y) == {0, 1, 2}
    assert set(x) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(
    ("which", "enhance"),
    [(0, ImageEnhance.Brightness), (1, ImageEnhance.Contrast), (2, ImageEnhance.Color)],
)
@pytest.mark.parametrize("factor", [0.4, 1.0, 1.5])
def test_colours_change_as_with_pillow(session, which, enhance, factor):
    factors = np.ones([3, BATCH], np.float32)
    factors[which] = factor
    done = session.run(color.adjust(tf.constant(IMAGES), *factors))
    for before, after in zip(IMAGES, done):
        wanted = np.asarray(enhance(Image.fromarray(before)).enhance(factor)).astype(int)
        # Pillow cuts fractions off, and rounds the grey it blends with.
        np.testing.assert_allclose(after, wanted, atol=2)


def test_jitter_draws_each_factor_from_its_range(apply, session):
    done, numbers = apply("jitter:0.4")
    factors = 1 + (2 * numbers.T - 1) * 0.4
    wanted = session.run(color.adjust(tf.constant(IMAGES), *map(tf.constant, factors)))
    np.testing.assert_array_equal(done, wanted)


def test_grey_images_are_jittered_too(apply):
    done, _ = apply("jitter:0.4", images=IMAGES[..., :1])
    assert not np.array_equal(done, IMAGES[..., :1])


def test_erase(apply):
    images = np.full([200, 20, 30, 3], 7, np.uint8)
    done, numbers = apply("erase:0.5", images=images)
    erased = (done == 0).all(axis=-1)
    np.testing.assert_array_equal((done == 7).all(axis=-1), ~erased)
    np.testing.assert_array_equal(erased.any(axis=(1, 2)), numbers[:, 0] < 0.5)
    for mask in erased[numbers[:, 0] < 0.5]:
        rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
        rectangle = mask[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        assert rectangle.all()
        assert mask.sum() == rectangle.size
        assert 0.01 < rectangle.size / 600 < 0.4


def about_middle(a, b, d, e):
    x, y = (WIDTH - 1) / 2, (HEIGHT - 1) / 2
    return (a, b, x - a * x - b * y), (d, e, y - d * x - e * y)


def enhanced(enhance):
    return lambda image, strength: enhance(image).enhance(1 + 0.9 * strength)


PILLOW = {
    "identity": lambda image, strength: image,
    "brightness": enhanced(ImageEnhance.Brightness),
    "color": enhanced(ImageEnhance.Color),
    "contrast": enhanced(ImageEnhance.Contrast),
    "sharpness": enhanced(ImageEnhance.Sharpness),
    "posterize": lambda image, strength: ImageOps.posterize(image, 8 - round(4 * abs(strength))),
    "solarize": lambda image, strength: ImageOps.solarize(image, 256 * (1 - abs(strength))),
    "autocontrast": lambda image, strength: ImageOps.autocontrast(image),
    "equalize": lambda image, strength: ImageOps.equalize(image),
}


@pytest.mark.parametrize("name", PILLOW)
@pytest.mark.parametrize("strength", [-0.9, 0.5])
def test_randaugment_operates_as_pillow_does(session, name, strength):
    strengths = tf.fill([BATCH], strength)
    done = session.run(randaugment.OPERATIONS[name](tf.constant(IMAGES), strengths))
    for before, after in zip(IMAGES, done):
        wanted = np.asarray(PILLOW[name](Image.fromarray(before), strength)).astype(int)
        exact = name in ("identity", "posterize", "solarize", "equalize")
        np.testing.assert_allclose(after, wanted, atol=0 if exact else 2)


@pytest.mark.parametrize(
    ("name", "matrix"),
    [
        ("shear_x", lambda s: about_middle(1, -0.3 * s, 0, 1)),
        ("shear_y", lambda s: about_middle(1, 0, -0.3 * s, 1)),
        (
            "rotate",
            lambda s: about_middle(
                math.cos(math.radians(30 * s)),
                -math.sin(math.radians(30 * s)),
                math.sin(math.radians(30 * s)),
                math.cos(math.radians(30 * s)),
            ),
        ),
        ("translate_x", lambda s: ((1, 0, -s * 150 / 331 * WIDTH), (0, 1, 0))),
        ("translate_y", lambda s: ((1, 0, 0), (0, 1, -s * 150 / 331 * HEIGHT))),
    ],
)
@pytest.mark.parametrize("strength", [-0.9, 0.5])
def test_randaugment_moves_pixels_as_scipy_does(session, name, matrix, strength):
    strengths = tf.fill([BATCH], strength)
    done = session.run(randaugment.OPERATIONS[name](tf.constant(IMAGES), strengths))
    (a, b, c), (d, e, f) = matrix(strength)
    for before, after in zip(IMAGES, done):
        for channel in range(3):
            wanted = ndimage.affine_transform(
                before[..., channel].astype(np.float64) - 128,
                [[e, d], [b, a]],
                [f, c],
                order=1,
                mode="grid-constant",
            )
            np.testing.assert_allclose(after[..., channel], wanted + 128, atol=0.51)


@pytest.mark.parametrize("shape", [(1, 16), (16, 1), (2, 2)])
def test_randaugment_of_images_without_a_middle(apply, session, shape):
    images = tf.constant(IMAGES)[:, : shape[0], : shape[1]]
    strengths = tf.fill([len(IMAGES)], 0.5)
    for operation in randaugment.OPERATIONS.values():
        assert session.run(operation(images, strengths)).shape == images.shape


def test_every_operation_of_randaugment_has_its_reference():
    moved = {"shear_x", "shear_y", "rotate", "translate_x", "translate_y"}
    assert set(randaugment.OPERATIONS) == set(PILLOW) | moved


@pytest.mark.slow(cost=0.1)
def test_randaugment_deals_the_operations_out(apply, session):
    images = np.tile(IMAGES, [20, 1, 1, 1])
    done, numbers = apply("randaugment:1:7", images=images)
    operations = list(randaugment.OPERATIONS.values())
    which = (numbers[:, 0] * len(operations)).astype(int)
    assert set(which) == set(range(len(operations)))
    for number, operation in enumerate(operations):
        rows = which == number
        strengths = np.where(numbers[rows, 1] < 0.5, -0.7, 0.7).astype(np.float32)
        wanted = session.run(operation(tf.constant(images[rows]), tf.constant(strengths)))
        np.testing.assert_array_equal(done[rows], wanted)


@pytest.mark.parametrize("seed", [0, slow(1), slow(2), slow(3), slow(4)])
def test_randaugment_of_fewer_images_than_operations(apply, seed):
    done, _ = apply("randaugment:2:9", images=IMAGES[:2], seed=(seed, 0))
    assert not np.array_equal(done, IMAGES[:2])


def mixed(session, text, labels, images=IMAGES, seed=(3, 4)):
    augmentation = augment.parse(text)
    numbers = augmentation.draw(len(images), list(seed))
    one_hot = tf.one_hot(labels, 13)
    return session.run((*augmentation.mix(tf.constant(images), one_hot, numbers), numbers))


NEIGHBOURS = [1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 12]


def test_mixup_blends_neighbours_and_their_labels(session):
    images, labels, _ = mixed(session, "mixup:0.4", np.arange(BATCH))
    assert labels.dtype == np.float32
    numerics.assert_close(labels.sum(axis=1), np.ones(BATCH), terms=2, depth=3)
    share = labels[np.arange(BATCH), np.arange(BATCH)][:, None, None, None]
    wanted = share * IMAGES + (1 - share) * IMAGES[NEIGHBOURS].astype(float)
    np.testing.assert_allclose(images, wanted, atol=0.51)
    np.testing.assert_array_equal(images[-1], IMAGES[-1])  # an odd one has no neighbour
    assert labels[-1, -1] == 1
    assert len(np.unique(share)) > 6


def test_cutmix_pastes_a_rectangle_and_labels_by_its_area(session):
    images, labels, _ = mixed(session, "cutmix:1", np.arange(BATCH))
    pasted = (images != IMAGES).any(axis=-1)
    np.testing.assert_array_equal(
        images[pasted], IMAGES[NEIGHBOURS][pasted], err_msg="what is no longer ours is theirs"
    )
    share = labels[np.arange(BATCH), np.arange(BATCH)]
    areas = pasted[:-1].mean(axis=(1, 2))
    numerics.assert_close(1 - share[:-1], areas, depth=3, magnitude=1)
    numerics.assert_close(labels.sum(axis=1), np.ones(BATCH), terms=2, depth=3)


def test_of_two_mixers_each_image_gets_one(session):
    images = np.tile(IMAGES, [10, 1, 1, 1])
    done, _, _ = mixed(session, "mixup:1 cutmix:1", np.zeros(130, int), images)
    rows = np.arange(130) ^ 1
    ours, theirs = (done == images).all(axis=-1), (done == images[rows]).all(axis=-1)
    cut = (ours | theirs).all(axis=(1, 2))
    assert 30 < cut.sum() < 100


def test_shares_are_of_a_beta_distribution(session):
    augmentation = augment.parse("mixup:0.2")
    shares = session.run(augmentation.draw(20000, [1, 2]))[:, -1]
    # Of Beta(a, a) the mean is 1/2 and the variance 1 / (4 (2a + 1)).
    np.testing.assert_allclose(shares.mean(), 0.5, atol=0.02)
    np.testing.assert_allclose(shares.var(), 1 / (4 * 1.4), atol=0.01)


@pytest.mark.slow(cost=0.1)
def test_all_words_together(session):
    words = "flip crop:2 shift:0.1 rotate:9 jitter:0.2 randaugment:2:5 erase:0.5"
    augmentation, seed = augment.parse(words), tf.compat.v1.placeholder(tf.int32, [2])
    numbers = augmentation.draw(BATCH, seed)
    images = augmentation.apply({"image": tf.constant(IMAGES)}, numbers)["image"]
    done, again, other = (session.run(images, {seed: s}) for s in ((1, 2), (1, 2), (1, 3)))
    np.testing.assert_array_equal(done, again)
    assert not np.array_equal(done, other)


def test_no_words_change_nothing(apply):
    done, numbers = apply("")
    np.testing.assert_array_equal(done, IMAGES)
    assert numbers.shape == (BATCH, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("flp", "'flp' is unknown; valid are flip, crop, shift"),
        ("flip:1", "'flip:1' must be flip"),
        ("crop", "'crop' must be crop:PIXELS"),
        ("crop:2.5", "PIXELS must be an integer from 1 to 512"),
        ("shift:20", "FRACTION must be a number from 0 to 1"),
        ("rotate:x", "DEGREES must be a number from 0 to 180"),
        ("randaugment:2", "must be randaugment:N:LEVEL"),
        ("randaugment:2:nan", "LEVEL must be a number"),
        ("mixup:0.2 flip", "and mosaic, mixup and cutmix last"),
        ("flip resize_crop:0.1", "put resize_crop, random_crop, box_crop and scale_jitter first"),
        ("scale_jitter:1:2 box_crop:1:0.5", "scale_jitter first, in this order"),
        ("mosaic:1 mosaic:1", "mosaic cannot be combined or repeated"),
        ("scale_jitter:2:1", "'scale_jitter:2:1': LOW must not be above HIGH"),
        ("resize_crop:0.1 random_crop", "resize_crop and random_crop cannot be combined"),
    ],
)
def test_wrong_words(text, message):
    with pytest.raises(DataError, match=message):
        augment.parse(text)
