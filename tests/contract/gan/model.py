"""A GAN of points (arXiv:1406.2661): alternating updates, with two optimizers."""

import tensorflow as tf

from models.model import Loss, Model


def default_params():
    return {"units": 16, "discriminator_steps": 3, "discriminator_learning_rate": 0.05}


def generate(noise, params):
    with tf.compat.v1.variable_scope("generator"):
        x = tf.compat.v1.layers.dense(noise, params["units"], tf.nn.softplus)
        return tf.compat.v1.layers.dense(x, 2)


def discriminate(features, params, training):
    """Returns the logits of real points, float32 `[batch]`, for `{"points": [batch, 2]}`."""
    with tf.compat.v1.variable_scope("discriminator"):
        x = tf.compat.v1.layers.dense(features["points"], params["units"], tf.nn.softplus)
        return tf.compat.v1.layers.dense(x, 1)[:, 0]


def inference(features, params, training):
    points = generate(features["noise"], params)
    return {"points": points, "logits": discriminate({"points": points}, params, training)}


def losses(features, labels, outputs, params):
    """Returns the loss of the generator."""
    values = tf.nn.softplus(-outputs["logits"])
    return {"generator": Loss(values, variables="generator/.*")}


def train_step(features, labels, params, tools):
    discriminator = tools.optimizer(
        "discriminator", params["discriminator_learning_rate"], optimizer="momentum"
    )
    generator = tools.optimizer("generator")
    steps = params["discriminator_steps"]
    for i in range(steps):
        noise, points = features["noise"][i::steps], labels[i::steps]
        generated = tools.infer({"noise": noise})["logits"]
        real = tools.infer({"points": points}, discriminate)
        values = tf.nn.softplus(-real) + tf.nn.softplus(generated)
        tools.update(discriminator, {"discriminator": Loss(values, variables="discriminator/.*")})
    outputs = tools.infer(features)
    tools.update(generator, losses(features, labels, outputs, params))
    return tools.finish(outputs)


def predictions(features, outputs, params):
    return {"points": outputs["points"]}


def eval_outputs(features, labels, outputs, params):
    return {"points": outputs["points"]}


def metrics(labels, outputs, weights, params):
    """Returns the mean distance of the generated points from the circle."""
    distance = tf.abs(tf.norm(outputs["points"], axis=1) - 1)
    return {"distance": tf.compat.v1.metrics.mean(distance, weights)}


MODEL = Model(
    "gan",
    default_params,
    inference,
    losses,
    predictions,
    metrics,
    eval_outputs,
    metric_directions={"distance": "min"},
    train_step=train_step,
    features=("noise",),
)
