"""Networks of Keras under an Estimator against the same networks in Keras, in float64.

In float64, because float32 rounding changes the sign at some ReLUs of deep networks. Only pixels
are float32, on both sides.
"""

import contextlib
import sys

import numpy as np
import pytest
import tensorflow as tf

from engine.cli import hparams
from engine.train import forward
from models import registry
from models.layers import traced
from tests import numerics, variable_values
from tests.marks import slow

CLASSES, BATCH, STEPS = 5, 3, 3
RATE = 2.0**-10  # a float32 number, as optimizers hold it
APPLICATIONS = "tf.keras.applications."


def own(input_shape, filters=7):
    """A network with a custom gradient (swish), batch norm, dropout and a regularizer."""
    layers, regularizers = tf.keras.layers, tf.keras.regularizers
    images = tf.keras.Input(input_shape)
    x = layers.Rescaling(1 / 255)(images)
    x = layers.Conv2D(filters, 3, activation="swish", kernel_regularizer=regularizers.L2(0.1))(x)
    x = layers.BatchNormalization(momentum=0.9)(x)
    return tf.keras.Model(images, layers.Dropout(0.0)(x))


NETWORKS = [
    ("tests.test_keras_networks:own", 9),
    *(
        slow(APPLICATIONS + name, size)
        for name, size in {
            "EfficientNetB0": 65,
            "EfficientNetV2B0": 65,
            "DenseNet121": 65,
            "Xception": 71,
            "ConvNeXtTiny": 32,
            "ResNet50V2": 65,
            "InceptionV3": 75,
            "NASNetMobile": 65,
            "MobileNetV3Small": 65,
        }.items()
    ),
]


def make_batch(size):
    random = np.random.default_rng(1)
    images = random.integers(0, 256, [BATCH, size, size, 3]).astype(np.float32)
    return images, np.arange(BATCH) % CLASSES


def ours(name, size, training):
    """Returns logits, and in training the variables after `STEPS` steps of gradient descent."""
    model = registry.find(f"keras:{name}")
    params = {**hparams.resolve(model, [], {"num_classes": CLASSES}), "precision": "float64"}
    images, labels = make_batch(size)
    outputs = forward.infer(model, {"image": tf.constant(images)}, params, training)
    variables = tf.compat.v1.global_variables()
    terms = model.losses({}, tf.constant(labels), outputs, params)
    loss = tf.add_n([tf.cast(tf.reduce_mean(term.values), tf.float64) for term in terms.values()])
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(RATE)
    step = optimizer.minimize(loss) if training else tf.no_op()
    with tf.compat.v1.Session() as session:
        values = variable_values.assign_all(session, variable_values.random_value)
        logits = session.run(outputs["logits"])
        variable_values.assign_all(session, lambda variable: values[variable.op.name])
        for _ in range(STEPS):
            session.run(step)
        return logits, dict(zip(values, session.run(variables))), values


def theirs(name, size, values, training):
    """What `ours` returns, by Keras in eager mode."""
    images, labels = (tf.constant(array) for array in make_batch(size))
    network = registry.attribute("model", name) if ":" in name else None
    if network is None:
        function = getattr(tf.keras.applications, name.rpartition(".")[2])
        module = sys.modules[function.__module__]
        images = module.preprocess_input(images)
        model = function(include_top=False, weights=None, input_shape=(size, size, 3))
    else:
        model = network((size, size, 3))
    for variable in model.variables:
        variable.assign(values[variable.name.partition(":")[0]])
    for layer in model.layers:
        if hasattr(layer, "finalize_state"):
            layer.finalize_state()  # a normalization layer computes with constants
    head = {name: tf.Variable(values[name]) for name in ("logits/kernel", "logits/bias")}

    def predict():
        pooled = tf.reduce_mean(model(images, training=training), [1, 2])
        return pooled @ head["logits/kernel"] + head["logits/bias"]

    before = predict()
    for variable in model.variables:
        variable.assign(values[variable.name.partition(":")[0]])
    trained = [*model.trainable_variables, *head.values()]
    for _ in range(STEPS if training else 0):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, predict())
            loss = tf.reduce_mean(losses) + sum(model.losses)
        for variable, gradient in zip(trained, tape.gradient(loss, trained)):
            variable.assign_sub(RATE * gradient)
    after = {variable.name.partition(":")[0]: variable.numpy() for variable in model.variables}
    after.update((name, variable.numpy()) for name, variable in head.items())
    return before.numpy(), after


@contextlib.contextmanager
def float64_policy():
    """Keras' layers in float64."""
    tf.keras.mixed_precision.set_global_policy("float64")
    tf.keras.backend.reset_uids()  # names without numbers
    yield
    tf.keras.mixed_precision.set_global_policy("float32")


@pytest.fixture
def without_dropout(monkeypatch):
    """Turns off dropout and stochastic depth, whose random numbers differ in the two graphs."""
    convnext = sys.modules[tf.keras.applications.ConvNeXtTiny.__module__]
    for layer in (tf.keras.layers.Dropout, convnext.StochasticDepth):
        monkeypatch.setattr(layer, "call", lambda self, inputs, training=None: inputs)


@pytest.mark.usefixtures("without_dropout")
@pytest.mark.parametrize("training", [False, True], ids=["prediction", "training"])
@pytest.mark.parametrize(("name", "size"), NETWORKS)
def test_a_network_equals_itself_in_keras(name, size, training):
    logits, after, values = ours(name, size, training)
    with traced.tensorflow_2(), float64_policy():
        expected, expected_after = theirs(name, size, values, training)
    # Batch norm of few values, as of three examples with one pixel, multiplies rounding errors.
    arithmetic = {"terms": size**2, "depth": 10**4 * STEPS, "dtype": "float64"}
    numerics.assert_close(logits, expected, **arithmetic)
    assert after.keys() == expected_after.keys()
    largest = max(np.abs(expected_after[name] - values[name]).max() for name in after)
    for name, value in expected_after.items():
        change = value - values[name]
        magnitude = max(np.abs(change).max(), 1e-3 * largest)
        found = after[name] - values[name]
        numerics.assert_close(found, change, magnitude=magnitude, name=name, **arithmetic)
    if training:
        statistics = [name for name in after if "moving_mean" in name]
        assert all(np.abs(after[name] - values[name]).max() > 1e-6 for name in statistics)
