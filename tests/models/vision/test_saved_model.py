"""SavedModels as backbones."""

import numpy as np
import pytest
import tensorflow as tf

from engine.cli import hparams
from engine.train import forward
from models.layers import traced
from models.model import ModelError
from models.vision import saved_model

SHAPE = (9, 8, 3)


def make_network():
    layers = tf.keras.layers
    images = tf.keras.Input(SHAPE)
    x = layers.Conv2D(5, 3, activation="swish", kernel_regularizer="l2")(images)
    x = layers.BatchNormalization(momentum=0.5)(x)
    return tf.keras.Model(images, layers.Conv2D(4, 1)(x))


def make_hub_module(network):
    """An object with the attributes of https://www.tensorflow.org/hub/reusable_saved_models."""
    module, spec = tf.__internal__.tracking.AutoTrackable(), tf.TensorSpec([None, *SHAPE])
    call = tf.function(lambda images, training=False: network(images, training=training))
    for training in (True, False):
        call.get_concrete_function(spec, training=training)
    module.__call__ = call
    module.variables = network.variables
    module.trainable_variables = network.trainable_variables
    kernel = network.trainable_variables[0]
    module.regularization_losses = [
        tf.function(lambda: 0.01 * tf.reduce_sum(kernel**2), input_signature=[])
    ]
    return module


@pytest.fixture(scope="module", params=["Keras", "TF Hub"])
def saved(request, tmp_path_factory):
    """A folder with a SavedModel of a network, and the network itself."""
    folder = str(tmp_path_factory.mktemp("saved") / "network")
    with traced.tensorflow_2():
        tf.keras.backend.reset_uids()
        network = make_network()
        if request.param == "Keras":
            network.save(folder, include_optimizer=False)
        else:
            tf.saved_model.save(make_hub_module(network), folder)
    return folder, network


@pytest.fixture(scope="module")
def make_images():
    return lambda: np.random.default_rng(0).integers(0, 256, [2, *SHAPE]).astype(np.uint8)


def infer(path, images, training=False, **changes):
    changes = {"path": path, **changes}
    overrides = [f"{key}={value}" for key, value in changes.items()]
    params = hparams.resolve(saved_model.MODEL, overrides, {"num_classes": 7})
    features = {"image": tf.constant(images)}
    return forward.infer(saved_model.MODEL, features, params, training), params


def read(session, ending):
    (found,) = [v for v in tf.compat.v1.global_variables() if v.op.name.endswith(ending)]
    return session.run(found)


@pytest.mark.slow(cost=0.1)
def test_variables_start_with_the_values_of_the_saved_model(saved, make_images, session):
    path, network = saved
    infer(path, make_images())
    session.run(tf.compat.v1.global_variables_initializer())
    with traced.tensorflow_2():
        expected = {v.name.split(":")[0]: v.numpy() for v in network.variables}
    found = {v.op.name: session.run(v) for v in tf.compat.v1.global_variables()}
    assert set(found) == {*expected, "logits/kernel", "logits/bias"}
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, name)


@pytest.mark.slow(cost=0.1)
def test_logits_are_of_its_pooled_features(saved, make_images, session):
    path, network = saved
    images = make_images()
    outputs, _ = infer(path, images)
    session.run(tf.compat.v1.global_variables_initializer())
    logits = session.run(outputs["logits"])
    with traced.tensorflow_2():
        features = network(images.astype(np.float32) / 255).numpy()
    expected = features.mean((1, 2)) @ read(session, "logits/kernel")
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5 * np.abs(features).max())


@pytest.mark.slow(cost=0.1)
def test_fine_tuning_trains_it_with_its_losses(saved, make_images, session):
    outputs, _ = infer(saved[0], make_images(), training=True)
    trained = tf.compat.v1.trainable_variables()
    assert len(trained) == 8  # two convolutions, scale and shift, the last layer
    gradients = tf.gradients(tf.reduce_sum(outputs["logits"] ** 2), trained)
    session.run(tf.compat.v1.global_variables_initializer())
    values = session.run([outputs["layer_losses"], *gradients])
    kernel = read(session, "conv2d/kernel")
    np.testing.assert_allclose(values[0], [0.01 * np.sum(kernel**2)] * 2, rtol=1e-5)
    assert all(np.abs(gradient).max() > 0 for gradient in values[1:])
    assert np.abs(read(session, "moving_mean")).max() > 0


@pytest.mark.slow(cost=0.1)
def test_frozen_it_runs_as_in_prediction(saved, make_images, session):
    outputs, _ = infer(saved[0], make_images(), training=True, trainable="logits.*")
    session.run(tf.compat.v1.global_variables_initializer())
    session.run(outputs["logits"])
    assert set(outputs) == {"logits"}
    assert not read(session, "moving_mean").any()


@pytest.mark.parametrize(
    ("name", "file", "message"),
    [
        ("", None, "path is empty"),
        ("missing", None, "has no saved_model.pb"),
        ("network.tar.gz", None, "Unpack the archive"),
        ("hub", "tfhub_module.pb", "is a TF1 Hub module"),
    ],
)
def test_what_is_no_reusable_saved_model_is_one_error(tmp_path, name, file, message):
    path = str(tmp_path / name) if name else ""
    if file:
        (tmp_path / name).mkdir()
        (tmp_path / name / file).touch()
    with pytest.raises(ModelError, match=message):
        hparams.resolve(saved_model.MODEL, [f"path={path}"], {"num_classes": 7})


@pytest.mark.slow(cost=0.1)
def test_a_damaged_file_is_one_error(tmp_path, make_images):
    (tmp_path / "saved_model.pb").write_bytes(b"\x07")
    with pytest.raises(ModelError, match="cannot be loaded"):
        infer(str(tmp_path), make_images())


@pytest.mark.slow(cost=0.1)
def test_signatures_only_is_one_error(tmp_path, make_images):
    with traced.tensorflow_2():
        module = tf.Module()
        module.variable = tf.Variable(1.0)
        serve = tf.function(lambda: module.variable + 1, input_signature=[])
        tf.saved_model.save(module, str(tmp_path), signatures={"serving_default": serve})
    with pytest.raises(ModelError, match="has only signatures"):
        infer(str(tmp_path), make_images())


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("outputs", ["a dict", "tokens"])
def test_other_outputs_than_features_are_one_error(outputs, tmp_path, make_images):
    module = tf.__internal__.tracking.AutoTrackable()
    with traced.tensorflow_2():
        module.scale = tf.Variable(2.0)

        def call(images):
            x = images * module.scale
            return {"features": x} if outputs == "a dict" else tf.reshape(x, [-1, 24, 9])

        module.__call__ = tf.function(call, [tf.TensorSpec([None, *SHAPE])])
        tf.saved_model.save(module, str(tmp_path))
    with pytest.raises(ModelError, match="must return one output"):
        infer(str(tmp_path), make_images())


@pytest.mark.slow(cost=0.1)
def test_images_of_another_shape_are_one_error(saved):
    with pytest.raises(ModelError, match="cannot be called with images"):
        infer(saved[0], np.zeros([2, 5, 5, 3], np.uint8))
