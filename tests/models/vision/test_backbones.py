"""Backbones give the feature maps of their classifiers at every resolution."""

import numpy as np
import pytest
import tensorflow as tf

from models.vision import backbones, mobilenet, resnet
from tests.marks import slow

IMAGES = np.random.default_rng(3).integers(0, 256, [1, 96, 64, 3], np.uint8)


def maps_of(name, output_stride=32, **params):
    params = {**backbones.default_params(name), "backbone_width": 0.125, **params}
    with tf.Graph().as_default():
        tf.compat.v1.set_random_seed(5)
        maps = backbones.feature_maps({"image": tf.constant(IMAGES)}, params, False, output_stride)
        variables = {v.op.name: v.shape.as_list() for v in tf.compat.v1.global_variables()}
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            return session.run(maps), variables


@pytest.mark.parametrize(
    "name", ["resnet18", slow("resnet101"), "mobilenet_v1", slow("mobilenet_v2")]
)
def test_level_i_has_a_stride_of_2_to_the_i(name):
    maps, _ = maps_of(name)
    found = {level: value.shape[1:3] for level, value in maps.items()}
    assert found == {1: (48, 32), 2: (24, 16), 3: (12, 8), 4: (6, 4), 5: (3, 2)}


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


def test_maps_with_the_stride_in_the_1x1_convolution_keep_their_resolution():
    maps, _ = maps_of("resnet50", stride_in_1x1=True)
    assert [maps[level].shape[1] for level in (2, 3, 4, 5)] == [24, 12, 6, 3]


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
