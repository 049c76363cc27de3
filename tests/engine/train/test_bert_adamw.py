"""The optimizer bert_adamw: google-research/bert's AdamWeightDecayOptimizer and its slots."""

import numpy as np
import tensorflow as tf

from engine.train import optimizers, schedules
from tests import google_bert, numerics

STEPS, RATE = 7, 1e-2
SHAPES = {
    "bert/embeddings/word_embeddings": [11, 3],
    "bert/embeddings/LayerNorm/gamma": [3],
    "bert/encoder/layer_0/output/dense/kernel": [3, 5],
    "bert/encoder/layer_0/output/dense/bias": [5],
}
# Operations from a weight to its update, which are rounded one after the other.
ARITHMETIC = {"terms": 55, "depth": 20 * STEPS}
PARAMS = {
    **optimizers.default_params(),
    "optimizer": "bert_adamw",
    "weight_decay": 0.01,
    "epsilon": 1e-6,
    "clip_norm": 1.0,
}


def initial_values():
    random = np.random.default_rng(3)
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}


def make_variables():
    for name, value in initial_values().items():
        tf.compat.v1.get_variable(name, initializer=value)
    return tf.compat.v1.trainable_variables()


def build_loss(variables):
    """A loss whose gradients change with the weights and exceed `clip_norm`."""
    table, gamma, kernel, bias = variables
    # Like google's embedding on a TPU: a dense gradient, of which the norm is correct.
    x = tf.matmul(tf.one_hot([1, 7, 7, 2], 11), table) * gamma
    return tf.reduce_sum(tf.tanh(tf.matmul(x, kernel) + bias) ** 2)


def run(session, train_op):
    """All variables after STEPS steps; the slots belong to them."""
    session.run(tf.compat.v1.global_variables_initializer())
    for _ in range(STEPS):
        session.run(train_op)
    variables = {v.op.name: v for v in tf.compat.v1.global_variables()}
    assert session.run(variables.pop("global_step")) == STEPS
    return session.run(variables)


def train(session, minimize, rate=RATE, **changes):
    return run(session, minimize(build_loss(make_variables()), {**PARAMS, **changes}, rate))


def by_hand(gradients, weight, weight_decay):
    """The rule of the paper without bias correction, in float64."""
    m = v = 0.0
    for gradient in gradients:
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        weight = weight - RATE * (m / (np.sqrt(v) + 1e-6) + weight_decay * weight)
    return weight, m, v


def test_the_update_has_no_bias_correction_and_decays_kernels_only(session, minimize):
    gradients = np.random.default_rng(4).normal(size=[STEPS, 2])
    step = tf.compat.v1.train.get_or_create_global_step()
    gradient = tf.gather(tf.constant(gradients, tf.float32), step)
    kernel = tf.compat.v1.get_variable("kernel", initializer=np.float32([[1.0, -2.0]]))
    bias = tf.compat.v1.get_variable("bias", initializer=np.float32([1.0, -2.0]))
    loss = tf.reduce_sum((kernel + bias) * gradient)
    found = run(session, minimize(loss, {**PARAMS, "clip_norm": 0.0}, RATE))
    for name, decay in (("kernel", 0.01), ("bias", 0.0)):
        expected = by_hand(gradients, np.array([1.0, -2.0]), decay)
        for key, value in zip((name, f"{name}/adam_m", f"{name}/adam_v"), expected):
            numerics.assert_close(np.ravel(found[key]), value, depth=20 * STEPS)


@google_bert.needs_checkout
def test_weights_and_slots_are_those_of_google(session, minimize):
    """The names are equal, too, so a checkpoint of one resumes in the other."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as other:
        create_optimizer = google_bert.load("optimization").create_optimizer
        expected = run(other, create_optimizer(build_loss(make_variables()), RATE, 10, 0, False))
    step = tf.compat.v1.train.get_or_create_global_step()
    schedule = {**PARAMS, "schedule": "polynomial", "learning_rate": RATE}
    rate = schedules.learning_rate({**schedules.default_params(), **schedule}, step, 10, 1)
    found = train(session, minimize, rate)
    assert max(np.abs(value).max() for name, value in found.items() if "adam_m" in name) > 1e-3
    numerics.assert_all_close(found, expected, **ARITHMETIC)
