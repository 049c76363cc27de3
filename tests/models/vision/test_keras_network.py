"""Networks of Keras as inference functions. Their equality: tests/test_keras_networks.py."""

import numpy as np
import pytest
import tensorflow as tf

from engine.cli import hparams
from engine.train import forward
from models import registry
from models.model import ModelError
from models.vision import keras_network

LAYERS = tf.keras.layers
HERE = f"keras:{__name__}:"


def features_only(input_shape, filters=5, activation="relu"):
    """Feature maps, so that the package adds pooling and the last layer."""
    images = tf.keras.Input(input_shape)
    x = LAYERS.Conv2D(filters, 3, activation=activation)(images)
    return tf.keras.Model(images, LAYERS.BatchNormalization(momentum=0.5)(x))


def with_dropout(input_shape, dropout=0.5):
    images = tf.keras.Input(input_shape)
    return tf.keras.Model(images, LAYERS.Dropout(dropout)(LAYERS.Flatten()(images)))


def logits_with_dropout(num_classes, dropout=0.5):
    return tf.keras.Sequential(
        [LAYERS.Flatten(), LAYERS.Dropout(dropout), LAYERS.Dense(num_classes)]
    )


def with_loss(input_shape, loss="l2"):
    return features_only(input_shape)


def classifier(num_classes):
    """A Sequential model without an input shape, whose last layer makes the logits."""
    return tf.keras.Sequential(
        [LAYERS.Flatten(), LAYERS.Dense(num_classes, kernel_regularizer="l2")]
    )


class Subclass(tf.keras.Model):
    """A model whose layers are built by the first call."""

    def __init__(self):
        super().__init__()
        self.conv = LAYERS.Conv2D(3, 3)

    def call(self, images):
        return self.conv(images)


def subclassed():
    return Subclass()


def with_two_equal_layers(input_shape):
    images = tf.keras.Input(input_shape)
    x = tf.keras.Sequential([LAYERS.Conv2D(3, 1, name="conv")])(images)
    return tf.keras.Model(images, tf.keras.Sequential([LAYERS.Conv2D(3, 1, name="conv")])(x))


def with_frozen_layer(input_shape):
    model = features_only(input_shape)
    model.layers[1].trainable = False
    return model


def with_lambda(input_shape):
    images = tf.keras.Input(input_shape)
    x = LAYERS.Lambda(lambda x: tf.where(x == 0, 1.0, x))(images)
    return tf.keras.Model(images, LAYERS.Conv2D(3, 3)(x))


def probabilities(num_classes):
    return tf.keras.Sequential([LAYERS.Flatten(), LAYERS.Dense(num_classes, activation="softmax")])


def two_outputs(input_shape):
    images = tf.keras.Input(input_shape)
    return tf.keras.Model(images, [images, images])


def loaded(input_shape):
    model = features_only(input_shape)
    model.set_weights([np.full(weight.shape, 7.0) for weight in model.get_weights()])
    return model


def no_model():
    return 7


def needs_width(width):
    return Subclass()


def invalid(input_shape):
    return features_only(input_shape, filters=-1)


def infer(name, training=False, images=None, **changes):
    model = registry.find(name)
    params = hparams.resolve(model, [f"{k}={v}" for k, v in changes.items()], {"num_classes": 3})
    images = np.ones([2, 9, 8, 3], np.uint8) if images is None else images
    outputs = forward.infer(model, {"image": tf.constant(images)}, params, training)
    return outputs, model, params


def names():
    return [variable.op.name for variable in tf.compat.v1.global_variables()]


def test_variables_have_their_names_in_keras():
    outputs, _, _ = infer(HERE + "features_only")
    assert outputs["logits"].shape.as_list() == [2, 3]
    assert names() == [
        "conv2d/kernel",
        "conv2d/bias",
        "batch_normalization/gamma",
        "batch_normalization/beta",
        "batch_normalization/moving_mean",
        "batch_normalization/moving_variance",
        "logits/kernel",
        "logits/bias",
    ]


@pytest.mark.parametrize("network", ["features_only", "subclassed", "with_lambda"])
def test_each_graph_has_the_same_names(network):
    found = []
    for _ in range(2):
        with tf.Graph().as_default():
            infer(HERE + network)
            found.append(names())
    assert found[0] == found[1]


def test_equal_names_get_a_number():
    infer(HERE + "with_two_equal_layers")
    assert names()[:4] == ["conv/kernel", "conv/bias", "conv/kernel_1", "conv/bias_1"]


def test_arguments_are_hyperparameters():
    infer(HERE + "features_only", filters=7, activation="tanh")
    kernel = tf.compat.v1.global_variables()[0]
    assert kernel.shape.as_list() == [3, 3, 3, 7]


@pytest.mark.parametrize("network", ["with_dropout", "logits_with_dropout"])
def test_an_argument_dropout_is_that_of_the_network_only(network, graph):
    infer(HERE + network, training=True, dropout=0.25)
    layers = [node.name for f in graph.as_graph_def().library.function for node in f.node_def]
    assert any("dropout" in name for name in layers)
    assert not any("dropout" in op.name for op in graph.get_operations())  # of the last layer


def test_a_function_with_num_classes_makes_the_logits(session):
    outputs, model, params = infer(HERE + "classifier", training=True)
    assert names() == ["dense/kernel", "dense/bias"]
    terms = model.losses({}, tf.constant([0, 1]), outputs, params)
    session.run(tf.compat.v1.global_variables_initializer())
    kernel, penalty = session.run(
        [tf.compat.v1.global_variables()[0], terms["layer_losses"].values]
    )
    np.testing.assert_allclose(penalty, [0.01 * np.sum(kernel**2)] * 2, rtol=1e-5)


def test_layer_losses_are_not_part_of_a_prediction():
    assert set(infer(HERE + "classifier")[0]) == {"logits"}


def test_a_training_step_updates_moving_averages(session):
    images = np.random.default_rng(0).integers(0, 256, [2, 9, 8, 3]).astype(np.uint8)
    outputs, _, _ = infer(HERE + "features_only", training=True, images=images)
    mean = next(v for v in tf.compat.v1.global_variables() if v.op.name.endswith("moving_mean"))
    session.run(tf.compat.v1.global_variables_initializer())
    session.run(outputs["logits"])
    assert np.all(session.run(mean)[session.run(mean) != 0] > 0)  # of a ReLU
    assert np.any(session.run(mean) > 0)


def test_frozen_layers_run_as_in_prediction(session):
    outputs, _, _ = infer(HERE + "features_only", training=True, trainable="logits.*")
    assert [v.op.name for v in tf.compat.v1.trainable_variables()] == [
        "logits/kernel",
        "logits/bias",
    ]
    mean = next(v for v in tf.compat.v1.global_variables() if v.op.name.endswith("moving_mean"))
    session.run(tf.compat.v1.global_variables_initializer())
    session.run(outputs["logits"])
    assert not session.run(mean).any()


def test_a_layer_that_the_function_freezes_stays_frozen():
    infer(HERE + "with_frozen_layer", training=True)
    assert "conv2d/kernel" not in [v.op.name for v in tf.compat.v1.trainable_variables()]


def test_initial_values_depend_on_the_seed():
    values = []
    for seed in (1, 1, 2):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            tf.compat.v1.set_random_seed(seed)
            infer(HERE + "features_only")
            session.run(tf.compat.v1.global_variables_initializer())
            values.append(session.run(tf.compat.v1.global_variables()[0]))
    assert np.array_equal(values[0], values[1])
    assert not np.array_equal(values[0], values[2])


def test_bfloat16_layers_have_float32_variables(graph):
    model = registry.find(HERE + "features_only")
    params = hparams.resolve(model, [], {"num_classes": 3}, precision="bfloat16")
    forward.infer(model, {"image": tf.ones([2, 9, 8, 3])}, params, True)
    assert all(v.dtype.base_dtype == tf.float32 for v in tf.compat.v1.global_variables())
    (pooled,) = (op for op in graph.get_operations() if op.type == "Mean")
    assert pooled.inputs[0].op.inputs[0].dtype == tf.bfloat16


def test_preprocessing_for_rgb_images_needs_them(monkeypatch):
    def network(input_shape, include_top, weights):
        return features_only(input_shape)

    network.__module__ = tf.keras.applications.ResNet50.__module__
    monkeypatch.setattr(tf.keras.applications, "ResNet50", network)
    monkeypatch.setattr(keras_network, "_network", keras_network._network.__wrapped__)
    message = "its preprocess_input needs RGB images, and the data set has 1 channel. Prepare"
    with pytest.raises(ModelError, match=message):
        infer("keras:tf.keras.applications.ResNet50", images=np.ones([2, 9, 8, 1], np.uint8))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("keras:tf.keras.applications.EfficientNetB9", "unknown. Did you mean 'EfficientNetB"),
        ("keras:tests.missing:FUNCTION", "no module 'tests.missing'"),
        (f"{HERE}missing", "has no function 'missing'"),
        (f"{HERE}needs_width", "its argument 'width' has no default"),
        (f"{HERE}with_loss", "its argument 'loss' is a hyperparameter of every classifier. Rename"),
        (f"{HERE}no_model", "must return a tf.keras.Model, not int"),
        (f"{HERE}two_outputs", "must have one output"),
        (f"{HERE}probabilities", "returns probabilities"),
        (f"{HERE}loaded", "loads values of conv2d/kernel"),
        (f"{HERE}invalid", "-1"),
    ],
)
def test_a_network_that_cannot_train_is_one_error(name, message):
    with pytest.raises(ModelError, match=message):
        infer(name)
