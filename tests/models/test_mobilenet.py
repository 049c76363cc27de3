"""MobileNets: shapes and channels; tests/test_against_applications.py holds them against Keras."""

import numpy as np
import pytest
import tensorflow as tf

from models import mobilenet
from models.model import ModelError


def make_params(**changes):
    return {**mobilenet.default_params(), "num_classes": 3, **changes}


@pytest.mark.parametrize("version", [1, 2])
def test_logits_have_a_row_an_example(version):
    images = tf.compat.v1.placeholder(tf.uint8, [13, 64, 32, 3])
    params = make_params(version=version, width=0.25)
    logits = mobilenet.inference({"image": images}, params, training=True)["logits"]
    assert logits.shape.as_list() == [13, 3]


@pytest.mark.parametrize("width", [0.35, 0.5, 0.75, 1.4])
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
    np.testing.assert_allclose(pixels, [-1, -0.5 / 127.5, 1], atol=1e-6)


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
