"""U-Net and DeepLabV3+: shapes, variables, the parts of the graph, invalid hyperparameters."""

import numpy as np
import pytest
import tensorflow as tf

from common.params import Floats, Ints, Strings
from engine.train import forward
from models.model import ModelError
from models.segmentation import deeplab, segmentation, unet
from models.vision import backbones
from tests.marks import slow

HEIGHT, WIDTH, NUM_CLASSES = 45, 38, 3
TINY = {"num_classes": NUM_CLASSES, "backbone_width": 0.125, "trainable": ".*"}
UNET = {"width": 2, "depth": 2}
DEEPLAB = {"aspp_filters": 6, "decoder_filters": 5, "low_level_filters": 4}


def build(model, **changes):
    """Returns the logits of a batch of any size, in training."""
    params = {**model.default_params(), **TINY, **changes}
    model.check_params(params)
    images = tf.compat.v1.placeholder(tf.uint8, [None, HEIGHT, WIDTH, 3])
    return forward.infer(model, {"image": images}, params, training=True)["logits"]


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    ("model", "changes"),
    [
        (unet.MODEL, {**UNET, "precision": "bfloat16"}),
        (deeplab.MODEL, {**DEEPLAB, "backbone": "resnet18", "output_stride": 8}),
        slow(unet.MODEL, {**UNET, "depth": 5}),
        slow(unet.MODEL, {**UNET, "output_level": 1}),
        slow(unet.MODEL, {**UNET, "depth": 5, "backbone": "mobilenet_v1"}),
        (unet.MODEL, {**UNET, "depth": 1, "backbone": "resnet18"}),
        slow(unet.MODEL, {**UNET, "depth": 4, "backbone": "resnet18", "output_level": 2}),
        slow(deeplab.MODEL, {**DEEPLAB, "backbone": "mobilenet_v2", "precision": "bfloat16"}),
        slow(deeplab.MODEL, {**DEEPLAB, "backbone": "mobilenet_v1", "aspp_rates": Ints()}),
    ],
)
def test_every_pixel_has_float32_logits_and_every_variable_a_gradient(model, changes):
    logits = build(model, **changes)
    assert logits.shape.as_list() == [None, HEIGHT, WIDTH, NUM_CLASSES]
    assert logits.dtype == tf.float32
    variables = tf.compat.v1.trainable_variables()
    gradients = dict(zip(variables, tf.gradients(logits, variables)))
    assert [v.op.name for v, gradient in gradients.items() if gradient is None] == []


def test_the_unet_of_the_paper_has_31_million_parameters():
    """Four downsamplings of 64 channels, here with batch norm and without biases."""
    build(unet.MODEL, num_classes=2)
    sizes = {v.op.name: v.shape.num_elements() for v in tf.compat.v1.trainable_variables()}
    channels = [64 * 2**i for i in range(5)]
    inputs = [3, *channels]
    encoder = sum(9 * c * (inputs[i] + c) + 4 * c for i, c in enumerate(channels))
    decoder = sum(4 * 2 * c * c + 9 * c * 3 * c + 4 * c for c in channels[:4])
    assert sum(sizes.values()) == encoder + decoder + (64 + 1) * 2
    assert round(sum(sizes.values()) / 1e6) == 31
    assert sizes["decoder/level_3/up/kernel"] == 2 * 2 * 512 * 1024
    assert sizes["encoder/level_4/conv_2/kernel"] == 9 * 1024**2


def test_the_own_encoder_sees_no_backbone():
    build(unet.MODEL, **UNET)
    scopes = {v.op.name.split("/")[0] for v in tf.compat.v1.global_variables()}
    assert scopes == {"encoder", "decoder", "logits"}


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    ("model", "changes"), [(unet.MODEL, {**UNET, "depth": 5}), slow(deeplab.MODEL, DEEPLAB)]
)
def test_variables_of_the_backbone_have_the_names_of_the_classifier(model, changes):
    build(model, **changes, backbone="resnet18")
    found = {v.op.name for v in tf.compat.v1.global_variables()}
    with tf.Graph().as_default():
        params = {**backbones.default_params("resnet18"), "backbone_width": 0.125}
        features = {"image": tf.zeros([1, HEIGHT, WIDTH, 3])}
        backbones.feature_maps(features, params, False, levels=[5])
        expected = {v.op.name for v in tf.compat.v1.global_variables()}
    assert expected < found
    own = {"encoder", "decoder", "logits"} if model is unet.MODEL else {"aspp", "decoder", "logits"}
    assert {name.split("/")[0] for name in found - expected} == own


@pytest.mark.parametrize(("output_stride", "factor"), [(16, 1), (8, 2)])
def test_rates_are_doubled_for_half_the_output_stride(output_stride, factor, session):
    """An impulse reaches the neighbors at the distance of the rate only."""
    params = {**deeplab.MODEL.default_params(), **TINY, **DEEPLAB, "output_stride": output_stride}
    params["aspp_rates"] = Ints([2])
    x = np.zeros([1, 13, 13, 1], np.float32)
    x[0, 6, 6] = 1
    deeplab._aspp(tf.constant(x), params, False)
    session.run(tf.compat.v1.global_variables_initializer())
    branch = session.graph.get_tensor_by_name("atrous_1/Relu:0")
    before = session.graph.get_tensor_by_name("atrous_1/batch_norm/FusedBatchNormV3:0")
    rows = np.unique(np.argwhere(session.run(before).any(-1))[:, 1])
    assert rows.tolist() == [6 - 2 * factor, 6, 6 + 2 * factor]
    assert branch.shape.as_list() == [1, 13, 13, DEEPLAB["aspp_filters"]]


@pytest.mark.parametrize(
    ("model", "changes", "message"),
    [
        (unet.MODEL, {"num_classes": 1}, "num_classes=1 must be from 2 to 255"),
        (unet.MODEL, {"num_classes": 256}, "num_classes=256 must be from 2 to 255"),
        (unet.MODEL, {"class_weights": Floats([1, 2])}, "has 2 values, but there are 3 classes"),
        (unet.MODEL, {"class_weights": Floats([1, 2, -1])}, "must be numbers of at least 0"),
        (unet.MODEL, {"class_weights": Floats(["nan", 1, 1])}, "must be numbers of at least 0"),
        (unet.MODEL, {"class_weights": Floats([0, 0, 0])}, "not all 0"),
        (unet.MODEL, {"focal_gamma": -1.0}, "focal_gamma=-1.0 must be from 0 to 10"),
        (unet.MODEL, {"losses": Strings(["dise"])}, "'dise' is not valid"),
        (unet.MODEL, {"losses": Strings(["dice", "dice:2"])}, "'dice:2' is not valid"),
        (unet.MODEL, {"losses": Strings(["dice:0"])}, "'dice:0' is not valid"),
        (unet.MODEL, {"losses": Strings(["dice:x"])}, "'dice:x' is not valid"),
        (unet.MODEL, {"losses": Strings()}, r"losses=\[\] has no term"),
        (unet.MODEL, {"backbone": "vgg"}, "backbone=vgg must be one of own, resnet18"),
        (unet.MODEL, {"depth": 6}, "depth=6 must be from 1 to 5"),
        (unet.MODEL, {"output_level": 4}, "output_level=4 must be from 0 to depth - 1 = 3"),
        (unet.MODEL, {"width": 0}, "width=0 must be at least 1"),
        (deeplab.MODEL, {"backbone": "own"}, "backbone=own must be one of resnet18"),
        (deeplab.MODEL, {"output_stride": 32}, "output_stride=32 must be 8 or 16"),
        (deeplab.MODEL, {"aspp_rates": Ints([0])}, r"aspp_rates=\[0\] must be above 0"),
        (deeplab.MODEL, {"decoder_filters": 0}, "decoder_filters=0 must be at least 1"),
        (deeplab.MODEL, {"dropout": 1.0}, r"dropout=1.0 must be in \[0, 1\)"),
    ],
)
def test_invalid_hyperparameters_are_refused(model, changes, message):
    with pytest.raises(ModelError, match=message):
        model.check_params({**model.default_params(), **TINY, **changes})


def test_terms_of_the_loss_have_their_scales():
    params = {**unet.default_params(), "losses": Strings(["focal", "dice:0.5"])}
    assert segmentation.loss_scales(params) == {"focal": 1.0, "dice": 0.5}
