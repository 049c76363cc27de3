"""MobileNets: shapes and channels; tests/test_against_applications.py holds them against Keras."""

import numpy as np
import pytest
import tensorflow as tf

from models.model import ModelError
from models.vision import mobilenet
from tests import numerics, variable_values
from tests.marks import slow
from tools import keras_weights

NETWORKS = {1: tf.keras.applications.MobileNet, 2: tf.keras.applications.MobileNetV2}


def make_params(**changes):
    return {**mobilenet.default_params(), "num_classes": 3, **changes}


@pytest.mark.parametrize("version", [1, slow(2)])
def test_logits_have_a_row_an_example(version):
    images = tf.compat.v1.placeholder(tf.uint8, [13, 64, 32, 3])
    params = make_params(version=version, width=0.25)
    logits = mobilenet.inference({"image": images}, params, training=True)["logits"]
    assert logits.shape.as_list() == [13, 3]


@pytest.mark.parametrize("version", [1, slow(2)])
@pytest.mark.parametrize(
    "size", [(1, 1), slow((30, 31)), slow((8, 8)), slow((16, 28)), slow((28, 28))]
)
def test_small_images_end_as_one_pixel(size, version, graph):
    images = tf.compat.v1.placeholder(tf.uint8, [2, *size, 3])
    params = make_params(version=version, width=0.25)
    mobilenet.inference({"image": images}, params, training=False)
    pooled = [op for op in graph.get_operations() if op.type == "Mean"]
    assert [op.inputs[0].shape.as_list()[1:3] for op in pooled] == [[1, 1]]


def _random(weights, random):
    """Kernels that let the images through, and no scale, shift or statistic of 0 or 1."""
    if weights.ndim == 1:
        return weights * np.exp(random.normal(0, 0.1, weights.shape)) + 0.02
    summed = 9 if weights.shape[-1] == 1 else weights.size // weights.shape[-1]
    return random.normal(0, (2 / summed) ** 0.5, weights.shape)


@pytest.fixture
def float64():
    """Keras' layers in float64."""
    tf.keras.backend.set_floatx("float64")
    yield
    tf.keras.backend.set_floatx("float32")


@pytest.mark.usefixtures("eager", "float64")
@pytest.mark.parametrize("version", [1, slow(2)])
def test_logits_of_odd_sizes_are_those_of_keras(version, tmp_path):
    """tests/test_against_applications.py has those of even ones.

    In float64, where what the layers of a deep network round is small beside any fault; only the
    mean over the pixels stays in float32.
    """
    random = np.random.default_rng(version)
    images = random.integers(0, 256, [2, 45, 37, 3]).astype(np.uint8)
    theirs = NETWORKS[version](
        (45, 37, 3), 0.35, weights=None, classes=3, classifier_activation=None
    )
    theirs.set_weights([_random(weights, random) for weights in theirs.get_weights()])
    theirs.save_weights(tmp_path / "weights.h5")
    values, _, params = keras_weights.convert(keras_weights.read(tmp_path / "weights.h5"))
    expected = theirs((images - 127.5) / 128).numpy()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        features = {"image": tf.constant(images)}
        # Pixels come in in float32, so at a scale that rounds none.
        params = make_params(**{**params, "pixel_scale": 1 / 128, "precision": "float64"})
        logits = mobilenet.inference(features, params, training=False)["logits"]
        variable_values.assign_all(session, lambda variable: values[variable.op.name])
        found = session.run(logits)
    assert expected.std(axis=0).min() > 1e-3  # it tells the images apart
    # The mean of the last pixels, 2x2, stays float32: cast, summed and divided.
    numerics.assert_close(found, expected, terms=2 * 2, depth=3)


@pytest.mark.parametrize("width", [slow(0.35), slow(0.5), slow(0.75), slow(1.4)])
def test_channels_of_v2_are_multiples_of_8(width):
    images = tf.compat.v1.placeholder(tf.uint8, [2, 32, 32, 3])
    mobilenet.inference({"image": images}, make_params(width=width), training=False)
    kernels = [v for v in tf.compat.v1.trainable_variables() if v.op.name.endswith("/kernel")]
    channels = {v.op.name: v.shape.as_list()[-1] for v in kernels}
    assert channels.pop("logits/kernel") == 3
    assert not [name for name, count in channels.items() if count % 8]


def test_pixels_come_in_from_minus_one_to_one(graph, session):
    images = np.array([[[[0, 127, 255]]]], np.uint8)
    params = make_params(version=1)
    mobilenet.inference({"image": tf.tile(images, [1, 32, 32, 1])}, params, training=False)
    conv = next(op for op in graph.get_operations() if op.type == "Conv2D")
    pixels = session.run(conv.inputs[0])[0, 0, 0]
    numerics.assert_close(pixels, [-1, -0.5 / 127.5, 1], depth=3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 3}, "version=3 must be 1 or 2"),
        ({"width": 0.0}, r"width=0.0 must be in \[0.1, 4\]"),
        ({"dropout": 1.0}, r"dropout=1.0 must be in \[0, 1\)"),
        ({"pixel_scale": 0.0}, "pixel_scale=0.0 must be above 0"),
    ],
)
def test_a_wrong_value_is_refused(changes, message):
    with pytest.raises(ModelError, match=message):
        mobilenet.check_params(make_params(**changes))
