"""Backbones give the feature maps of their classifiers at every resolution."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from engine.cli import hparams
from models import registry
from models.model import ModelError
from models.vision import backbones, classifier, mobilenet, resnet
from tests import numerics, variable_values
from tests.marks import slow
from tools import keras_weights

IMAGES = np.random.default_rng(3).integers(0, 256, [1, 96, 64, 3], np.uint8)


LEVELS = (1, 2, 3, 4, 5)


@functools.lru_cache(maxsize=2)  # several tests compare with the same maps
def maps_of(name, output_stride=32, levels=LEVELS, **params):
    """Returns `{level: map}` of a narrow network, and `{variable: shape}`. Read-only."""
    params = {**backbones.default_params(name), "backbone_width": 0.125, **params}
    with tf.Graph().as_default():
        tf.compat.v1.set_random_seed(5)
        features = {"image": tf.constant(IMAGES)}
        maps = backbones.feature_maps(features, params, False, levels, output_stride)
        variables = {v.op.name: v.shape.as_list() for v in tf.compat.v1.global_variables()}
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            return session.run(maps), variables


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    "name", ["resnet18", slow("resnet101"), "mobilenet_v1", slow("mobilenet_v2")]
)
def test_level_i_has_a_stride_of_2_to_the_i(name):
    maps, _ = maps_of(name)
    found = {level: value.shape[1:3] for level, value in maps.items()}
    assert found == {1: (48, 32), 2: (24, 16), 3: (12, 8), 4: (6, 4), 5: (3, 2)}


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    "name", ["resnet18", slow("resnet50"), slow("mobilenet_v1"), slow("mobilenet_v2")]
)
def test_a_smaller_output_stride_keeps_the_resolution_and_the_variables(name):
    _, variables = maps_of(name)
    dense, dilated_variables = maps_of(name, output_stride=8)
    assert [dense[level].shape[1:3] for level in (2, 3, 4, 5)] == [(24, 16), *[(12, 8)] * 3]
    assert dilated_variables == variables


@pytest.mark.parametrize("name", ["resnet18", slow("resnet50")])
def test_dilation_computes_the_same_map_at_more_places(name):
    coarse, _ = maps_of(name)
    dense, _ = maps_of(name, output_stride=16)
    np.testing.assert_allclose(dense[5][:, ::2, ::2], coarse[5], rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_maps_with_the_stride_in_the_1x1_convolution_keep_their_resolution():
    maps, _ = maps_of("resnet50", stride_in_1x1=True)
    assert [maps[level].shape[1] for level in (2, 3, 4, 5)] == [24, 12, 6, 3]
    some, _ = maps_of("resnet50", stride_in_1x1=True, levels=(1, 3))
    for level in (1, 3):
        np.testing.assert_allclose(some[level], maps[level], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["resnet18", slow("mobilenet_v1"), slow("mobilenet_v2")])
def test_a_network_is_built_up_to_its_last_map(name):
    whole, variables = maps_of(name)
    maps, some_variables = maps_of(name, levels=(3, 2))
    assert list(maps) == [3, 2]
    assert maps[3].shape == whole[3].shape
    missing = variables.keys() - some_variables.keys()
    assert some_variables.items() <= variables.items()
    scopes = {name.rpartition("/")[0].partition("/")[0] for name in missing}
    assert scopes.isdisjoint(name.partition("/")[0] for name in some_variables)


@pytest.mark.parametrize(
    ("name", "module", "width"), [("resnet18", resnet, 8), slow("mobilenet_v2", mobilenet, 0.125)]
)
def test_variables_are_those_of_the_classifier(name, module, width):
    _, variables = maps_of(name)
    params = {**module.default_params(), "width": width}
    params.update({"depth": 18} if module is resnet else {})
    with tf.Graph().as_default():
        module.inference({"image": tf.constant(IMAGES)}, params, False)
        of_classifier = {v.op.name: v.shape.as_list() for v in tf.compat.v1.global_variables()}
    only_there = {name.partition("/")[0] for name in of_classifier.keys() - variables.keys()}
    assert only_there <= {"logits", "head"}
    assert variables.items() <= of_classifier.items()


@pytest.mark.parametrize("head", ["retinanet", "deeplab", "unet"])
@pytest.mark.parametrize("name", backbones.NAMES)
def test_pixels_of_a_backbone_are_those_of_its_classifier(name, head):
    own = backbones._BACKBONES[name][0].default_params()
    params = {**registry.find(head).default_params(), "backbone": name}
    assert backbones.scaling(params) == {key: own[key] for key in ("pixel_mean", "pixel_scale")}


def test_given_pixel_scaling_is_kept():
    params = {**backbones.default_params("mobilenet_v1"), "pixel_scale": 0.5}
    assert backbones.scaling(params) == {"pixel_mean": (127.5,), "pixel_scale": 0.5}
    own = classifier.default_params()["pixel_scale"]
    assert backbones.scaling(backbones.default_params("own"))["pixel_scale"] == own
    with pytest.raises(ModelError, match=r"pixel_scale=-0\.5 must be above 0"):
        backbones.check_params({**params, "pixel_scale": -0.5})


# Keras network, arguments, its preprocessing, and its layer with the map of level 4.
APPLICATIONS = {
    "mobilenet_v1": ("MobileNet", {"alpha": 0.25}, "mobilenet", "conv_pw_11_relu"),
    "mobilenet_v2": ("MobileNetV2", {"alpha": 0.35}, "mobilenet_v2", "block_12_add"),
    "resnet50": ("ResNet50", {}, "resnet", "conv4_block6_out"),
}


def _random(weights, random):
    """Small random values; those that are 1, such as variances, stay positive."""
    if weights.ndim > 1:
        return random.normal(0, 1 / np.sqrt(np.prod(weights.shape[:-1])), weights.shape)
    return weights * random.uniform(0.5, 1.5, weights.shape) + random.uniform(0, 0.1, weights.shape)


@pytest.fixture(scope="module", params=["mobilenet_v1", slow("mobilenet_v2"), slow("resnet50")])
def keras_backbone(request, tmp_path_factory):
    """Flags and variables of converted weights of Keras, and Keras' map of level 4 for IMAGES."""
    network, arguments, preprocessing, layer = APPLICATIONS[request.param]
    path = str(tmp_path_factory.mktemp("keras") / "weights.h5")
    applications = tf.keras.applications
    random = np.random.default_rng(2)
    tf.keras.backend.set_floatx("float64")
    try:
        with context.eager_mode():
            theirs = getattr(applications, network)(
                input_shape=IMAGES.shape[1:], weights=None, include_top=False, **arguments
            )
            theirs.set_weights([_random(weights, random) for weights in theirs.get_weights()])
            theirs.save_weights(path)
            maps = tf.keras.Model(theirs.input, theirs.get_layer(layer).output)
            pixels = getattr(applications, preprocessing).preprocess_input(IMAGES.astype("float64"))
            expected = maps(pixels).numpy()
    finally:
        tf.keras.backend.set_floatx("float32")
    variables, model, params = keras_weights.convert(keras_weights.read(path))
    return keras_weights.backbone_params(model, params), variables, expected


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("head", ["retinanet", slow("deeplab"), slow("unet")])
def test_maps_of_keras_weights_are_those_of_keras(head, keras_backbone, monkeypatch, session):
    """In float64; only the scaled pixels are rounded to float32."""
    printed, variables, expected = keras_backbone
    overrides = [f"{key}={value}" for key, value in printed.items()]
    overrides += ["depth=5"] if head == "unet" else []  # its last map too
    model, found = registry.find(head), []
    params = {
        **hparams.resolve(model, overrides, {"num_classes": 2}),
        "precision": "float64",
        "trainable": ".*",
    }
    build = backbones.feature_maps

    def feature_maps(features, params, training, levels, *more):
        found.append(build(features, params, training, {*levels, 4}, *more))
        return found[-1]

    monkeypatch.setattr(backbones, "feature_maps", feature_maps)
    model.inference({"image": tf.constant(IMAGES)}, params, training=False)
    used = variable_values.assign_all(
        session, lambda v: variables.get(v.op.name, np.zeros(v.shape))
    )
    assert {name for name in variables if not name.startswith("head/")} <= used.keys()
    numerics.assert_close(session.run(found[0][4]), expected, depth=100)
    assert expected.std() > 0.01
