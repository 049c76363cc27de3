"""bfloat16 layers around float32 variables, logits and gradients."""

import numpy as np
import pytest
import tensorflow as tf

from models import convnet, mlp
from training import evaluation, hparams, precision

MODELS = {
    "mlp": (mlp.MODEL, ["dropout=0,hidden_units=64"]),
    "convnet": (convnet.MODEL, ["layers=conv:4:3 batch_norm relu flatten dense:8 relu"]),
}


def build(name, kind):
    """Logits and loss of 13 random images."""
    model, overrides = MODELS[name]
    params = hparams.resolve(model, overrides, num_classes=3, precision=kind)
    images = np.random.default_rng(0).integers(0, 255, [13, 7, 5, 1]).astype(np.uint8)
    tf.compat.v1.set_random_seed(1)
    outputs = precision.inference(model, {"image": tf.constant(images)}, params, training=True)
    loss = evaluation.mean_loss(model.loss(tf.range(13) % 3, outputs, params))
    return outputs["logits"], loss


def bfloat16_ops(graph):
    return {
        op.type for op in graph.get_operations() if tf.bfloat16 in [t.dtype for t in op.outputs]
    }


@pytest.mark.parametrize("name", MODELS)
def test_layers_compute_in_bfloat16_and_the_rest_in_float32(graph, name):
    logits, loss = build(name, "bfloat16")
    assert logits.dtype == loss.dtype == tf.float32
    assert {variable.dtype for variable in tf.compat.v1.global_variables()} == {tf.float32}
    gradients = tf.gradients(loss, tf.compat.v1.trainable_variables())
    assert {gradient.dtype for gradient in gradients} == {tf.float32}
    assert bfloat16_ops(graph) >= {"MatMul", "BiasAdd"} | {"Conv2D"} & {name == "convnet"}


@pytest.mark.parametrize("name", MODELS)
def test_float32_has_no_bfloat16(graph, name):
    build(name, "float32")
    assert not bfloat16_ops(graph)


@pytest.mark.parametrize("name", MODELS)
def test_bfloat16_is_float32_but_for_its_eight_bits(name):
    logits, names = [], []
    for kind in ("float32", "bfloat16"):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            tensor, _ = build(name, kind)
            session.run(tf.compat.v1.global_variables_initializer())
            logits.append(session.run(tensor))
            names.append([variable.op.name for variable in tf.compat.v1.global_variables()])
    assert names[0] == names[1]
    np.testing.assert_allclose(*logits, atol=0.02 * np.abs(logits[0]).max())
    assert not np.array_equal(*logits)
