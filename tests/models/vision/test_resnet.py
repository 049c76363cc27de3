"""ResNets: sizes, shapes, first values. tests/test_against_applications.py has Keras' logits."""

import numpy as np
import pytest
import tensorflow as tf

from common.params import Floats
from models.model import ModelError
from models.vision import resnet
from tests import numerics
from tests.marks import slow


def make_params(**changes):
    small = {"depth": 10, "width": 4, "stem": "cifar", "num_classes": 3}
    return {**resnet.default_params(), **small, **changes}


def make_features(batch=5, size=(9, 7), channels=1):
    random = np.random.default_rng(0)
    return {"image": tf.constant(random.integers(0, 256, [batch, *size, channels], np.uint8))}


def infer(training=False, **changes):
    return resnet.inference(make_features(), make_params(**changes), training)["logits"]


def initial_values(session):
    session.run(tf.compat.v1.global_variables_initializer())
    return session.run({v.op.name: v for v in tf.compat.v1.trainable_variables()})


@pytest.mark.parametrize(
    ("depth", "parameters"),
    [(18, 11_689_512), slow(50, 25_557_032), slow(34, 21_797_672), slow(101, 44_549_160)],
)
def test_as_many_parameters_as_torchvision_gives(depth, parameters):
    params = {**resnet.default_params(), "depth": depth, "num_classes": 1000}
    image = tf.compat.v1.placeholder(tf.uint8, [None, 224, 224, 3])
    logits = resnet.inference({"image": image}, params, training=True)["logits"]
    assert logits.shape.as_list() == [None, 1000]
    trained = tf.compat.v1.trainable_variables()
    assert sum(v.shape.num_elements() for v in trained) == parameters


@pytest.mark.parametrize(
    ("stem", "height"), [("imagenet", [56, 28, 14, 7]), ("cifar", [224, 112, 56, 28])]
)
def test_each_stage_halves_the_images_but_the_first(graph, stem, height):
    image = tf.compat.v1.placeholder(tf.uint8, [2, 224, 224, 3])
    resnet.inference({"image": image}, make_params(stem=stem), training=False)
    lasts = [graph.get_tensor_by_name(f"stage_{i}/block_1/Relu_1:0") for i in (1, 2, 3, 4)]
    assert [last.shape.as_list() for last in lasts] == [
        [2, size, size, 4 * 2**i] for i, size in enumerate(height)
    ]


def test_v1_strides_in_the_first_convolution_of_a_bottleneck_and_v1_5_in_the_second(
    graph, monkeypatch
):
    monkeypatch.setitem(resnet.DEPTHS, 50, ((1, 2, 1, 1), True))  # fewer blocks, for speed
    infer(depth=50, stride_in_1x1=True)
    first = graph.get_tensor_by_name("stage_2/block_1/conv_1/Conv2D:0").shape.as_list()
    with tf.Graph().as_default() as other:
        assert infer(depth=50).shape.as_list() == [5, 3]  # of gray images of an odd size
        later = other.get_tensor_by_name("stage_2/block_1/conv_1/Conv2D:0").shape.as_list()
    assert (first, later) == ([5, 5, 4, 8], [5, 9, 7, 8])


@pytest.mark.parametrize("depth", [10, slow(50)])
def test_blocks_begin_as_their_shortcut(session, depth):
    infer(depth=depth)
    gammas = {k: v for k, v in initial_values(session).items() if k.endswith("gamma")}
    last = f"batch_norm_{3 if depth == 50 else 2}/gamma"
    assert sum(name.endswith(last) for name in gammas) == sum(resnet.DEPTHS[depth][0])
    for name, gamma in gammas.items():
        np.testing.assert_array_equal(gamma, 0 if name.endswith(last) else 1, err_msg=name)


def test_every_gamma_can_begin_as_one(session):
    infer(zero_init_last_gamma=False)
    values = initial_values(session)
    assert all((v == 1).all() for name, v in values.items() if name.endswith("gamma"))


def test_stochastic_depth_grows_with_the_depth_and_is_off_outside_training(graph):
    infer(training=True, stochastic_depth=0.4)
    rates = [
        1 - 1 / tf.get_static_value(op.inputs[1])
        for op in graph.get_operations()
        if op.type == "Mul" and "dropout" in op.name
        if tf.get_static_value(op.inputs[1]) is not None
    ]
    rounded = [round(rate * 2**16) / 2**16 for rate in (0.1, 0.2, 0.3, 0.4)]
    numerics.assert_close(sorted(rates), rounded, magnitude=1)
    with tf.Graph().as_default() as other:
        infer(training=False, stochastic_depth=0.4)
        assert not [op for op in other.get_operations() if "dropout" in op.name]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"depth": 20}, "depth=20 must be one of 10, 18, 34, 50, 101, 152"),
        ({"width": 0}, "width=0 must be at least 1"),
        ({"stem": "cifar10"}, "stem=cifar10 must be imagenet or cifar"),
        ({"stochastic_depth": 1.0}, r"stochastic_depth=1.0 must be in \[0, 1\)"),
        ({"dropout": -0.1}, r"dropout=-0.1 must be in \[0, 1\)"),
        ({"batch_norm_momentum": 1.0}, "batch_norm_momentum=1.0"),
        ({"pixel_mean": Floats([1, 2])}, r"pixel_mean=\[1.0,2.0\] must be one number, or three"),
    ],
)
def test_a_wrong_value_is_refused(changes, message):
    with pytest.raises(ModelError, match=message):
        resnet.check_params(make_params(**changes))
