"""Test-time augmentation: the mean over views, against a network that sees one view at a time."""

import numpy as np
import pytest
import tensorflow as tf

from models.model import ModelError
from models.vision import tta
from tests import numerics

IMAGES = np.random.default_rng(1).integers(0, 256, [3, 16, 9, 2], np.uint8)
KERNEL = np.random.default_rng(2).normal(0, 0.01, [16 * 9 * 2, 4]).astype(np.float32)


def network(features, params, training):
    del params, training
    images = tf.cast(features["image"], tf.float32)
    return {"logits": tf.reshape(images, [-1, KERNEL.shape[0]]) @ KERNEL}


def softmax(logits):
    shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)


def logits_of(images):
    return images.reshape(-1, KERNEL.shape[0]).astype(np.float64) @ KERNEL


def crops(images):
    """Center and corners of 14 x 8 pixels, as Keras scales them to 16 x 9."""
    places = [(0, 0), (0, 1), (2, 0), (2, 1), (1, 0)]
    return [tf.image.resize(images[:, y : y + 14, x : x + 8], [16, 9]) for y, x in places]


@pytest.mark.parametrize("name", ["flip", "five_crop", "ten_crop"])
def test_the_mean_of_the_probabilities(session, name):
    views = [IMAGES] if name == "flip" else session.run(crops(IMAGES))
    if name != "five_crop":
        views = [*views, *(view[:, :, ::-1] for view in views)]
    expected = np.mean([softmax(logits_of(np.asarray(view))) for view in views], axis=0)
    features = {"image": tf.constant(IMAGES)}
    logits = tta.inference(network)(features, {"tta": name}, False)["logits"]
    assert logits.shape.as_list() == [3, 4]
    numerics.assert_close(softmax(session.run(logits)), expected, terms=KERNEL.shape[0], depth=6)


@pytest.mark.parametrize(
    ("target", "mean"),
    [
        ("regression", lambda logits: logits.mean(axis=0)),
        ("multilabel", lambda logits: (1 / (1 + np.exp(-logits))).mean(axis=0)),
    ],
)
def test_the_mean_of_other_targets(session, target, mean):
    views = np.stack([logits_of(IMAGES), logits_of(IMAGES[:, :, ::-1])])
    features = {"image": tf.constant(IMAGES)}
    params = {"tta": "flip", "target": target}
    found = tta.inference(network)(features, params, False)["logits"]
    found = tf.sigmoid(found) if target == "multilabel" else found
    numerics.assert_close(session.run(found), mean(views), terms=KERNEL.shape[0], depth=6)


@pytest.mark.parametrize(("training", "name"), [(True, "flip"), (False, "none")])
def test_other_graphs_have_one_view(training, name):
    seen = []

    def network(features, params, training):
        seen.append((features["image"], params, training))
        return {}

    features, params = {"image": tf.constant(IMAGES)}, {"tta": name}
    tta.inference(network)(features, params, training)
    assert seen == [(features["image"], params, training)]


def test_the_batch_may_be_unknown(session):
    images = tf.compat.v1.placeholder(tf.uint8, [None, 16, 9, 2])
    logits = tta.inference(network)({"image": images}, {"tta": "ten_crop"}, False)["logits"]
    assert session.run(logits, {images: IMAGES}).shape == (3, 4)


def test_an_unknown_name_is_an_error():
    with pytest.raises(ModelError, match=r"tta=flop is unknown\. Did you mean 'flip'\?"):
        tta.check_params({"tta": "flop"})
