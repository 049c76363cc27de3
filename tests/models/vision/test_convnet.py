"""The convolutional network: its layer plan, shapes and batch norm, judged by Keras."""

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.peers import keras_twin
from common.params import Strings
from engine.train import optimizers
from models.model import ModelError
from models.vision import convnet
from tests import numerics, variable_values

LAYERS = "conv:6:3 batch_norm relu pool:2 conv:4:2:valid relu dropout:0.5 flatten dense:9 relu"


def make_params(layers=LAYERS, **changes):
    return {
        **convnet.default_params(),
        **optimizers.default_params(),
        "num_classes": 3,
        "layers": Strings(layers.split()),
        **changes,
    }


def make_images(batch=13):
    return np.random.default_rng(2).integers(0, 256, [batch, 7, 5, 1]).astype(np.uint8)


def logits_of(params, images, training=False):
    features = {"image": tf.constant(images)}
    with tf.compat.v1.variable_scope("", reuse=tf.compat.v1.AUTO_REUSE):
        return convnet.inference(features, params, training)["logits"]


def moving_statistics():
    names = ("layer_1/moving_mean", "layer_1/moving_variance")
    variables = {v.op.name: v for v in tf.compat.v1.global_variables()}
    return [variables[name] for name in names]


@pytest.mark.parametrize("batch", [13, None])
def test_logits_have_a_row_an_example(batch):
    images = tf.compat.v1.placeholder(tf.uint8, [batch, 7, 5, 1])
    logits = convnet.inference({"image": images}, make_params(), training=True)["logits"]
    assert logits.shape.as_list() == [batch, 3]
    assert logits.dtype == tf.float32


def test_variables_are_named_by_the_place_of_their_layer():
    logits_of(make_params(), make_images())
    assert {v.op.name: v.shape.as_list() for v in tf.compat.v1.trainable_variables()} == {
        "layer_0/kernel": [3, 3, 1, 6],
        "layer_1/gamma": [6],
        "layer_1/beta": [6],
        "layer_4/kernel": [2, 2, 6, 4],
        "layer_4/bias": [4],
        "layer_8/kernel": [8, 9],  # 7x5 -> pool 3x2 -> valid 2x1, 4 channels
        "layer_8/bias": [9],
        "logits/kernel": [9, 3],
        "logits/bias": [3],
    }


def test_every_variable_gets_a_gradient():
    logits = logits_of(make_params(), make_images(), training=True)
    variables = tf.compat.v1.trainable_variables()
    assert None not in tf.compat.v1.gradients(logits, variables)


@pytest.mark.parametrize("layers", [LAYERS, "conv:5:3:valid relu pool:3 global_pool"])
def test_the_same_weights_give_the_logits_of_keras(layers, session, eager):
    params, images = make_params(layers), make_images()
    with session.graph.as_default():
        logits = logits_of(params, images)
        # No zeros and ones: every value must count.
        variables = variable_values.assign_all(
            session,
            lambda v: np.random.default_rng(5).uniform(0.1, 0.9, v.shape).astype(np.float32),
        )
        ours = session.run(logits)
    twin = keras_twin.build(params, (7, 5, 1))
    # Scaled pixels; a convolution and four operations of batch norm; three layers with bias. The
    # largest window is of 2x2 pixels in 6 channels.
    arithmetic = {"terms": 2 * 2 * 6, "depth": 1 + 5 + 3 * 2}
    keras_twin.set_weights(twin, variables)
    numerics.assert_close(ours, twin(images, training=False).numpy(), **arithmetic)
    keras_twin.set_weights(twin, {**variables, "logits/bias": np.zeros(3)})
    numerics.assert_far(ours, twin(images, training=False).numpy(), **arithmetic)


def test_moving_averages_move_towards_the_batch_statistics(session, minimize):
    # Pixels from 0 to 8, so that the statistics stand out beside the first values, 0 and 1; of few
    # values, so that the unbiased variance stands out beside the biased one.
    params = make_params(
        "conv:6:1 batch_norm flatten", batch_norm_momentum=0.75, pixel_scale=2.0**-5
    )
    images = make_images(batch=1)
    loss = tf.reduce_mean(logits_of(params, images, training=True) ** 2)
    # Learning rate 0, so that the kernel below is the one of the step.
    train_op = minimize(loss, params, 0.0)
    session.run(tf.compat.v1.global_variables_initializer())
    kernel = session.run(tf.compat.v1.trainable_variables()[0])[0, 0, 0]
    session.run(train_op)
    mean, variance = session.run(moving_statistics())
    convolved = images / 2.0**5 * kernel
    size = convolved[..., 0].size
    # The convolution; a sum and its share; of the variance also difference, square and the share
    # that makes it unbiased; difference, product and sum of the moving average.
    arithmetic = {"terms": size, "depth": 1 + 2 + 3 + 3}
    numerics.assert_close(mean, 0.25 * convolved.mean(axis=(0, 1, 2)), **arithmetic)
    biased = convolved.var(axis=(0, 1, 2))
    unbiased = biased * size / (size - 1)
    numerics.assert_close(variance, 0.75 + 0.25 * unbiased, **arithmetic)
    numerics.assert_far(variance, 0.75 + 0.25 * biased, **arithmetic)


def test_batch_norm_and_dropout_act_in_training_only(session):
    params, images = make_params(), make_images()
    trained, served = logits_of(params, images, training=True), logits_of(params, images)
    session.run(tf.compat.v1.global_variables_initializer())
    assert not np.array_equal(*(session.run(trained) for _ in range(2)))
    np.testing.assert_array_equal(*(session.run(served) for _ in range(2)))


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ("conv:6 flatten", "'conv:6' is not a layer"),
        ("conv:6:3:full flatten", "'conv:6:3:full' is not a layer"),
        ("conv:0:3 flatten", "'conv:0:3' is not a layer"),
        ("dropout:1 flatten", "'dropout:1' is not a layer"),
        ("relu:2 flatten", "'relu:2' is not a layer"),
        ("flaten", "'flaten' is not a layer"),
        ("dense:9", "'dense:9' needs 'flatten'"),
        ("flatten conv:6:3", "'conv:6:3' needs images, but they are flattened before it"),
        ("flatten flatten", "'flatten' needs images"),
        ("conv:6:3", "needs a 'flatten'"),
        ("", "needs a 'flatten'"),
    ],
)
def test_a_wrong_plan_is_refused(layers, message):
    with pytest.raises(ModelError, match=message):
        convnet.check_params(make_params(layers))


def test_a_net_that_is_too_deep_for_the_image_is_refused():
    with pytest.raises(ModelError, match="'conv:3:3:valid' gets images of 1x1, smaller than 3"):
        logits_of(make_params("pool:4 conv:3:3:valid flatten"), make_images())
