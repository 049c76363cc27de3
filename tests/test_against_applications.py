"""ResNet, MobileNet and EfficientNet against `tf.keras.applications`, by weights from its files.

In float64, because float32 rounding changes the sign at some ReLUs of deep networks. In float32 are
only the scaled pixels, which the Keras networks get too.
"""

import pathlib
import tarfile

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from engine.checkpoints import warm_start
from engine.cli import hparams
from engine.train import forward
from models import registry
from tests import numerics
from tools import keras_weights

CLASSES, BATCH, SIZE = 7, 3, 64
SHARED = pathlib.Path(__file__).parents[2] / "shared" / "data"
TOPS = ("predictions", "conv_preds")
apps = tf.keras.applications
backend = tf.compat.v1.keras.backend

# In Keras: network, arguments, preprocessing (None: in the network), order of the color channels.
RGB, BGR = np.s_[..., :], np.s_[..., ::-1]
NETWORKS = {
    "resnet50": (apps.ResNet50, {}, apps.resnet.preprocess_input, BGR),
    "mobilenet": (
        apps.MobileNet,
        {"alpha": 0.75, "dropout": 0},
        apps.mobilenet.preprocess_input,
        RGB,
    ),
    "mobilenet_v2": (apps.MobileNetV2, {"alpha": 0.35}, apps.mobilenet_v2.preprocess_input, RGB),
    "efficientnet_b0": (apps.EfficientNetB0, {}, None, RGB),
    "efficientnet_v2b0": (apps.EfficientNetV2B0, {}, None, RGB),
}
LEARNING_RATE, STEPS = 0.01, 3


# Keras' layer Rescaling multiplies by 1/255 rounded to float32, in a float64 network too.
RESCALING = 255 * float(np.float32(1 / 255))


def float64_network(steps=1):
    """Returns the arithmetic of a network of at most 2048 channels, for `numerics`.

    Batch norm of few values, as of three examples of 2x2 pixels, multiplies rounding errors.
    """
    return {"terms": 2048, "depth": 10**4 * steps, "dtype": "float64"}


def make_batch(seed=0):
    random = np.random.default_rng(seed)
    images = random.integers(0, 256, [BATCH, SIZE, SIZE, 3]).astype(np.uint8)
    return images, np.arange(BATCH, dtype=np.int32) % CLASSES


def photos():
    """Five photos of leaves, uint8 `[5, 224, 224, 3]`."""
    with tarfile.open(SHARED / "apple-leaf" / "plantvillage-apple-color.tar.gz") as archive:
        members = [member for member in archive if member.name.endswith(".JPG")][::247][:5]
        files = [archive.extractfile(member) for member in members]
        return np.stack([np.asarray(Image.open(file))[16:240, 16:240] for file in files])


class Theirs:
    """A Keras network with random weights in a separate session.

    With weights from a file only its last layer is random. Its weights are saved to `path`.
    """

    def __init__(self, name, path, size, weights):
        network, arguments, _, _ = NETWORKS[name]
        self._session = tf.compat.v1.Session(graph=tf.Graph())
        with self._session.graph.as_default(), self._session.as_default():
            backend.set_floatx("float64")
            tf.compat.v1.set_random_seed(1)
            self._network = network(
                weights=None,
                classes=CLASSES,
                input_shape=(size, size, 3),
                classifier_activation=None,
                **arguments,
            )
            for layer in self._network.layers:
                if isinstance(layer, tf.keras.layers.Dropout):
                    layer.rate = 0.0
            self._session.run(tf.compat.v1.global_variables_initializer())
            self._network.set_weights([_perturb(value) for value in self._network.get_weights()])
            if weights:
                self._network.load_weights(weights, by_name=True)  # all but the last layer
            self._network.save_weights(path)

    def logits(self, pixels, training=False):
        with self._session.graph.as_default(), self._session.as_default():
            logits, _ = self._build(pixels, training)
            return self._session.run(logits)

    def train(self, pixels, labels, steps):
        """Returns gradients and moving statistics of the last step, `{(layer, weight): array}`.

        For biases before batch norm it returns their values, which are part of the statistics.
        """
        with self._session.graph.as_default(), self._session.as_default():
            logits, updates = self._build(pixels, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            trained = self._network.trainable_weights
            gradients = tf.gradients(tf.reduce_mean(losses), trained)
            gradients = run_steps(self._session, gradients, trained, updates, steps)
            weights = self._network.weights
            values = {_key(v): value for v, value in zip(weights, self._session.run(weights))}
        for variable, gradient in zip(trained, gradients):
            layer, weight = _key(variable)
            if weight != "bias" or layer in TOPS or "_se_" in layer:
                values[layer, weight] = gradient
        return values

    def close(self):
        backend.set_floatx("float32")
        self._session.close()

    def _build(self, pixels, training):
        inputs = tf.constant(pixels, tf.float64)
        logits = self._network(inputs, training=training)
        return logits, self._network.get_updates_for(inputs)


def _perturb(value):
    """Changes scales, shifts, biases and statistics from their 0 or 1, which would hide faults."""
    if value.ndim != 1:
        return value
    random = np.random.default_rng(len(value))
    return value * np.exp(random.normal(0, 0.1, value.shape)) + random.normal(0, 0.02, value.shape)


def _key(variable):
    return tuple(variable.name.split(":")[0].split("/")[-2:])


class Ours:
    """The inference function with the weights of a checkpoint."""

    def __init__(self, session, checkpoint, name, params, images, labels, training):
        model = registry.find(name)
        overrides = [f"{key}={value}" for key, value in params.items()]
        params = {
            **hparams.resolve(model, overrides, {"num_classes": CLASSES}),
            "dropout": 0.0,
            "stochastic_depth": 0.0,
            "precision": "float64",
        }
        features = {"image": tf.constant(images)}
        outputs = forward.infer(model, features, params, training)
        variables = tf.compat.v1.global_variables()
        warm_start.init_from_checkpoint(checkpoint, ".*", variables)
        session.run(tf.compat.v1.global_variables_initializer())
        self._session, self._outputs = session, outputs
        casts = [op for op in session.graph.get_operations() if op.name.startswith("scaled_images")]
        self._pixels = casts[-1].outputs[0]
        losses = model.losses({}, tf.constant(labels), outputs, params)
        self._loss = tf.reduce_mean(losses["cross_entropy"].values)

    def pixels(self):
        """The input of the network's first layer."""
        return self._session.run(self._pixels)

    def logits(self):
        return self._session.run(self._outputs["logits"])

    def train(self, steps):
        """Returns gradients and moving statistics of the last step, `{name: array}`."""
        trained = tf.compat.v1.trainable_variables()
        updates = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.UPDATE_OPS)
        gradients = tf.gradients(self._loss, trained)
        gradients = run_steps(self._session, gradients, trained, updates, steps)
        others = [v for v in tf.compat.v1.global_variables() if v.op.name.split("/")[-1] in MOVING]
        named = dict(zip([variable.op.name for variable in trained], gradients))
        return {**named, **{v.op.name: a for v, a in zip(others, self._session.run(others))}}


MOVING = ("moving_mean", "moving_variance")


def run_steps(session, gradients, variables, updates, steps):
    """Trains by gradient descent; returns the gradients of the last step.

    The first kernel stays as it is: ours may hold another share of the scale of the pixels.
    """
    pairs = [
        (gradient, variable)
        for gradient, variable in zip(gradients, variables)
        if variable.shape.rank < 4 or variable.shape[2] != 3
    ]
    apply = tf.compat.v1.train.GradientDescentOptimizer(LEARNING_RATE).apply_gradients(pairs)
    for _ in range(steps - 1):
        session.run([apply, updates])
    gradients, _ = session.run([gradients, updates])
    return gradients


@pytest.fixture
def networks(session, tmp_path, monkeypatch):
    """Both networks with the same weights, and the pixels: `networks(name, images, labels)`."""
    # Some networks would use a fused kernel, which float64 lacks.
    monkeypatch.setattr(tf.keras.layers.BatchNormalization, "_USE_V2_BEHAVIOR", False)
    built = []

    def build(name, images, labels, training=False, weights=None):
        path, checkpoint = str(tmp_path / "weights.h5"), str(tmp_path / "weights.ckpt")
        theirs = Theirs(name, path, images.shape[1], weights)
        built.append(theirs)
        keras_weights.main(path, checkpoint)
        _, model, params = keras_weights.convert(keras_weights.read(path))
        ours = Ours(session, checkpoint, model, params, images, labels, training)
        _, _, preprocess, colours = NETWORKS[name]
        pixels, inputs = ours.pixels()[colours], images.astype(np.float64)
        if preprocess is None:
            pixels = pixels.astype(np.float64) / params["pixel_scale"] + params["pixel_mean"]
            pixels /= RESCALING
        else:
            inputs = preprocess(inputs)
        numerics.assert_close(pixels, inputs, depth=4)
        return ours, theirs, pixels

    yield build
    for theirs in built:
        theirs.close()


@pytest.mark.slow  # like those of images of odd sizes of tests/models/vision/test_mobilenet.py
@pytest.mark.parametrize("name", NETWORKS)
def test_logits_match_keras(name, networks):
    images, labels = make_batch()
    ours, theirs, pixels = networks(name, images, labels)
    expected = theirs.logits(pixels)
    assert expected.std() > 0.01
    numerics.assert_close(ours.logits(), expected, **float64_network())


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason=f"real weights and images are not in {SHARED}")
@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("mobilenet", "mobilenet_7_5_224_tf_no_top.h5"),
        ("mobilenet_v2", "mobilenet_v2_0.35_224_tf_no_top.h5"),
    ],
)
def test_logits_of_imagenet_weights_match_keras(name, weights, networks):
    images = photos()
    weights = str(SHARED / "weights" / weights)
    ours, theirs, pixels = networks(name, images, [0] * 5, weights=weights)
    expected = theirs.logits(pixels)
    assert expected.std() > 0.01
    numerics.assert_close(ours.logits(), expected, **float64_network())


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_and_moving_statistics_match_keras(name, networks):
    images, labels = make_batch()
    ours, theirs, pixels = networks(name, images, labels, training=True)
    if NETWORKS[name][2] is None:  # negative control: the rounding of Keras' layer Rescaling
        logits, others = (theirs.logits(p, training=True) for p in (pixels, pixels * RESCALING))
        numerics.assert_far(others, logits, **float64_network(STEPS))
    values = theirs.train(pixels, labels, STEPS)
    expected, _, _ = keras_weights.convert(values)
    found = ours.train(STEPS)
    if ("stem_conv", "kernel") in values:
        # The gradient of a kernel that is multiplied by a number is divided by it.
        ones = {**values, ("stem_conv", "kernel"): np.ones_like(values["stem_conv", "kernel"])}
        factors = keras_weights.convert(ones)[0]["stem/conv/kernel"]
        expected["stem/conv/kernel"] = values["stem_conv", "kernel"] / factors
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        scope, _, kind = key.rpartition("/")
        # A batch norm after the next layer may cancel a beta: then its gradient is a sum of
        # cancelling terms, as large as those of gamma.
        like = expected[f"{scope}/gamma"] if kind == "beta" else value
        numerics.assert_close(
            found[key],
            value,
            **float64_network(STEPS),
            magnitude=max(np.abs(value).max(), np.abs(like).max()),
            name=key,
        )
