"""The training step: optimizers judged by Keras, decay, clipping and updates by hand."""

import numpy as np
import pytest
import tensorflow as tf

from training import optimizers
from training.program import UsageError

KERNEL = np.array([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]], np.float32)
BIAS = np.array([0.5, -0.25, 2.0], np.float32)
TARGET = np.array([[0.0, 1.0, -1.0], [2.0, 0.0, 1.0]], np.float32)
STEPS = 5


def make_params(**changes):
    return {**optimizers.default_params(), **changes}


def loss_of(kernel, bias):
    return tf.reduce_sum((kernel - TARGET) ** 2) / 6 + tf.reduce_sum((bias * kernel) ** 2) / 60


def train(session, params, learning_rate=0.1, steps=STEPS):
    """Our optimizer's kernel and bias after some steps."""
    with session.graph.as_default():
        kernel = tf.compat.v1.get_variable("kernel", initializer=KERNEL)
        bias = tf.compat.v1.get_variable("bias", initializer=BIAS)
        optimizer = optimizers.create(params, learning_rate)
        train_op = optimizers.minimize(optimizer, loss_of(kernel, bias), params)
        session.run(tf.compat.v1.global_variables_initializer())
        for _ in range(steps):
            session.run(train_op)
        assert session.run(tf.compat.v1.train.get_global_step()) == steps
        return session.run([kernel, bias])


def train_by_keras(optimizer, extra_gradient=lambda kernel: 0.0):
    kernel, bias = tf.Variable(KERNEL), tf.Variable(BIAS)
    for _ in range(STEPS):
        with tf.GradientTape() as tape:
            loss = loss_of(kernel, bias)
        gradients = tape.gradient(loss, [kernel, bias])
        gradients[0] += extra_gradient(kernel)
        optimizer.apply_gradients(zip(gradients, [kernel, bias]))
    return [kernel.numpy(), bias.numpy()]


def assert_equal(ours, theirs):
    for a, b in zip(ours, theirs):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=5e-6)


@pytest.mark.parametrize(
    ("params", "keras"),
    [
        ({"optimizer": "momentum"}, lambda keras: keras.SGD(0.1, 0.9)),
        ({"optimizer": "momentum", "momentum": 0.0}, lambda keras: keras.SGD(0.1)),
        (
            {"optimizer": "momentum", "nesterov": True},
            lambda keras: keras.SGD(0.1, 0.9, nesterov=True),
        ),
        (
            {"optimizer": "adam", "beta1": 0.8, "beta2": 0.95},
            lambda keras: keras.Adam(0.1, 0.8, 0.95),
        ),
    ],
)
def test_the_weights_are_those_of_keras(session, eager, params, keras):
    theirs = train_by_keras(keras(tf.keras.optimizers))
    assert_equal(train(session, make_params(**params)), theirs)


def test_adamw_decays_kernels_alone_as_keras_does(session, eager):
    keras = tf.keras.optimizers.AdamW(0.1, weight_decay=0.2)
    keras.exclude_from_weight_decay(var_names=["bias"])
    kernel, bias = tf.Variable(KERNEL, name="kernel"), tf.Variable(BIAS, name="bias")
    for _ in range(STEPS):
        with tf.GradientTape() as tape:
            loss = loss_of(kernel, bias)
        keras.apply_gradients(zip(tape.gradient(loss, [kernel, bias]), [kernel, bias]))
    ours = train(session, make_params(optimizer="adamw", weight_decay=0.2))
    assert_equal(ours, [kernel.numpy(), bias.numpy()])


def test_rmsprop_by_hand(session):
    """Tieleman and Hinton's rule as TensorFlow 1 has it: the mean square begins with 1."""
    params = make_params(optimizer="rmsprop", momentum=0.5, rmsprop_decay=0.8, epsilon=1e-3)
    ours, _ = train(session, params)
    kernel, bias = KERNEL.astype(np.float64), BIAS.astype(np.float64)
    states = {"kernel": [1.0, 0.0], "bias": [1.0, 0.0]}
    for _ in range(STEPS):
        gradients = {
            "kernel": (kernel - TARGET) / 3 + kernel * bias**2 / 30,
            "bias": bias * (kernel**2).sum(axis=0) / 30,
        }
        steps = {}
        for name, gradient in gradients.items():
            square, momentum = states[name]
            square = 0.8 * square + 0.2 * gradient**2
            momentum = 0.5 * momentum + 0.1 * gradient / np.sqrt(square + 1e-3)
            states[name] = [square, momentum]
            steps[name] = momentum
        kernel, bias = kernel - steps["kernel"], bias - steps["bias"]
    np.testing.assert_allclose(ours, kernel, rtol=1e-5)


def test_weight_decay_is_an_l2_penalty_of_kernels(session, eager):
    keras = tf.keras.optimizers.SGD(0.1, 0.9)
    theirs = train_by_keras(keras, extra_gradient=lambda kernel: 0.3 * kernel)
    assert_equal(train(session, make_params(optimizer="momentum", weight_decay=0.3)), theirs)


def test_gradients_are_clipped_to_their_global_norm(session, eager):
    keras = tf.keras.optimizers.SGD(0.1, 0.9, global_clipnorm=0.5)
    ours = train(session, make_params(optimizer="momentum", clip_norm=0.5))
    assert_equal(ours, train_by_keras(keras))


@pytest.mark.parametrize("name", ["momentum", "adam", "adamw", "rmsprop"])
def test_every_optimizer_finds_the_minimum(session, name):
    with session.graph.as_default():
        point = tf.compat.v1.get_variable("point", initializer=BIAS)
        loss = tf.reduce_sum((point - [1.0, 2.0, -3.0]) ** 2)
        params = make_params(optimizer=name, momentum=0.5)
        train_op = optimizers.minimize(optimizers.create(params, 0.05), loss, params)
        session.run(tf.compat.v1.global_variables_initializer())
        for _ in range(500):
            session.run(train_op)
        np.testing.assert_allclose(session.run(point), [1.0, 2.0, -3.0], atol=0.05)


def test_update_ops_run_with_the_step(session):
    with session.graph.as_default():
        counter = tf.compat.v1.get_variable("counter", initializer=0.0, trainable=False)
        update = counter.assign_add(1.0)
        tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.UPDATE_OPS, update)
        train(session, make_params(), steps=3)
        assert session.run(counter) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizer": "sgd"}, "optimizer=sgd is unknown. Valid: adam, adamw, momentum, rmsprop"),
        ({"beta1": 1.0}, r"beta1=1.0 must be in \[0, 1\)"),
        ({"ema_decay": -0.1}, "ema_decay=-0.1 must be in"),
        ({"clip_norm": -1.0}, "clip_norm=-1.0 must not be below 0"),
        ({"epsilon": 0.0}, "epsilon=0.0 must be above 0"),
    ],
)
def test_a_wrong_value_is_refused(changes, message):
    with pytest.raises(UsageError, match=message):
        optimizers.check_params(make_params(**changes))
