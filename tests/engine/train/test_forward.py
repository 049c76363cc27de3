"""The inference function in bfloat16 (mixed precision) and with frozen variables."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from common.errors import UsageError
from engine.checkpoints import ema
from engine.cli import hparams
from engine.train import forward, optimizers
from models.model import ModelError
from models.vision import convnet, mlp, resnet
from tests import numerics
from tests.marks import runs_bfloat16

BFLOAT16 = tf.bfloat16.as_numpy_dtype
MODELS = {
    "mlp": (mlp.MODEL, ["dropout=0,hidden_units=64"]),
    "convnet": (convnet.MODEL, ["layers=[conv:4:3,batch_norm,relu,flatten,dense:8,relu]"]),
    "resnet": (resnet.MODEL, ["depth=10,width=8,stem=cifar,zero_init_last_gamma=false"]),
}
# Sequential roundings to bfloat16: the pixels; in a layer with bias the kernel, product, bias and
# sum; in a layer with batch norm the kernel, product and normalization; in each of four residual
# blocks the sum with its input; the mean of the pixels.
ROUNDINGS = {"mlp": 1 + 2 * 4, "convnet": 1 + 3 + 2 * 4, "resnet": 1 + 3 + 4 * (2 * 3 + 1) + 1 + 4}


def bfloat16_tolerance(roundings):
    """Returns arguments of `numerics` to compare with float32; layers accumulate in float32."""
    return {"terms": roundings, "dtype": "bfloat16", "sides": 1}


def build(name, kind):
    """Returns logits and loss of 13 random images."""
    model, overrides = MODELS[name]
    params = hparams.resolve(model, overrides, {"num_classes": 3}, precision=kind)
    images = np.random.default_rng(0).integers(0, 255, [13, 7, 5, 1]).astype(np.uint8)
    tf.compat.v1.set_random_seed(1)
    outputs = forward.infer(model, {"image": tf.constant(images)}, params, training=True)
    losses = model.losses({}, tf.range(13) % 3, outputs, params)
    loss = tf.reduce_mean(losses["cross_entropy"].values)
    return outputs["logits"], loss


def bfloat16_ops(graph):
    return {
        op.type for op in graph.get_operations() if tf.bfloat16 in [t.dtype for t in op.outputs]
    }


@pytest.mark.parametrize("name", MODELS)
def test_layers_compute_in_bfloat16_and_variables_are_float32(graph, name):
    logits, loss = build(name, "bfloat16")
    assert logits.dtype == loss.dtype == tf.float32
    assert {variable.dtype for variable in tf.compat.v1.global_variables()} == {tf.float32}
    gradients = tf.gradients(loss, tf.compat.v1.trainable_variables())
    assert {gradient.dtype for gradient in gradients} == {tf.float32}
    assert bfloat16_ops(graph) >= {"MatMul", "BiasAdd"}
    assert ("Conv2D" in bfloat16_ops(graph)) == (name != "mlp")


def test_gradients_are_not_overridden_for_inference(graph):
    params = hparams.resolve(mlp.MODEL, [], {"num_classes": 3}, precision="bfloat16")
    image = tf.zeros([13, 7, 5, 1], tf.uint8)
    forward.infer(mlp.MODEL, {"image": image}, params, training=False)
    biases = [op for op in graph.get_operations() if op.type == "BiasAdd"]
    assert biases
    assert not [op for op in biases if "_gradient_op_type" in op.node_def.attr]


@pytest.mark.parametrize("name", MODELS)
def test_float32_graphs_have_no_bfloat16(graph, name):
    build(name, "float32")
    assert not bfloat16_ops(graph)


@pytest.mark.slow(cost=0.1)
@runs_bfloat16
@pytest.mark.parametrize("name", MODELS)
def test_bfloat16_matches_float32_within_rounding(name):
    logits, names = [], []
    for kind in ("float32", "bfloat16"):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            tensor, _ = build(name, kind)
            session.run(tf.compat.v1.global_variables_initializer())
            logits.append(session.run(tensor))
            names.append([variable.op.name for variable in tf.compat.v1.global_variables()])
    assert names[0] == names[1]
    exact, rounded = logits
    numerics.assert_close(rounded, exact, **bfloat16_tolerance(ROUNDINGS[name]))
    numerics.assert_far(rounded, exact, terms=64, depth=ROUNDINGS[name])  # not float32


def summed_in_bfloat16(gradients):
    """Returns the result of TensorFlow's BiasAddGrad of `[..., channels]` on a CPU."""
    total = np.zeros(gradients.shape[-1], BFLOAT16)
    for row in gradients.reshape(-1, gradients.shape[-1]):
        total = total + row
    return total


@runs_bfloat16
@pytest.mark.parametrize("layers", ["global_pool", "flatten"])
def test_gradients_of_many_pixels_accumulate_in_float32(layers):
    images = np.random.default_rng(0).integers(0, 255, [13, 56, 56, 1]).astype(np.uint8)
    found = []
    for kind in ("float32", "bfloat16"):
        with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
            tf.compat.v1.set_random_seed(1)
            # Without a ReLU: rounding across 0 would change its gradient.
            overrides = [f"layers=[conv:16:3,{layers}]", "pixel_scale=0.004"]
            params = hparams.resolve(convnet.MODEL, overrides, {"num_classes": 3}, precision=kind)
            outputs = forward.infer(convnet.MODEL, {"image": tf.constant(images)}, params, True)
            loss = tf.reduce_sum(outputs["logits"][:, 0])
            biases = [v for v in tf.compat.v1.trainable_variables() if v.op.name.endswith("bias")]
            convolved = graph.get_tensor_by_name("layer_0/BiasAdd:0")
            session.run(tf.compat.v1.global_variables_initializer())
            gradients = tf.gradients(loss, [*biases, convolved])
            found.append(session.run([outputs["logits"], *gradients]))
    (logits, *biases_gradients, _), (got_logits, *got_biases, pixel_gradients) = found
    # Pixels, convolution, pooling or flatten, and logits, as above.
    forward_pass = bfloat16_tolerance(1 + 4 + 1 + 4)
    numerics.assert_close(got_logits, logits, **forward_pass)
    numerics.assert_far(0.8 * got_logits, logits, **forward_pass)  # some pixels are missing
    # The kernel, its gradient per pixel, and their sum.
    backward_pass = bfloat16_tolerance(3)
    for got, expected in zip(got_biases, biases_gradients):
        numerics.assert_close(got, expected, **backward_pass)
    assert pixel_gradients.dtype == BFLOAT16
    numerics.assert_far(summed_in_bfloat16(pixel_gradients), biases_gradients[0], **backward_pass)


CONVNET = "layers=[conv:4:3,batch_norm,relu,flatten,dense:8,relu]"


def trained_with(pattern, *overrides):
    """Returns the names of the variables that `trainable=pattern` trains, and of all variables."""
    overrides = [CONVNET, f"trainable={pattern}", *overrides]
    params = hparams.resolve(convnet.MODEL, overrides, {"num_classes": 3})
    images = tf.zeros([13, 7, 5, 1], tf.uint8)
    outputs = forward.infer(convnet.MODEL, {"image": images}, params, training=True)
    loss = tf.reduce_mean(outputs["logits"])
    optimizer = optimizers.create(params, 0.1)
    gradients = optimizers.compute_gradients(optimizer, loss, params)
    optimizers.apply_gradients(optimizer, gradients, params)
    every = {variable.op.name for variable in tf.compat.v1.global_variables()}
    return {variable.op.name for gradient, variable in gradients if gradient is not None}, every


def test_frozen_variables_have_no_gradients_slots_or_ema():
    trained, every = trained_with("logits/.*|layer_4/kernel", "optimizer=momentum,ema_decay=0.9")
    assert trained == {"logits/kernel", "logits/bias", "layer_4/kernel"}
    extra = {name for name in every if name.endswith(("Momentum", "ExponentialMovingAverage"))}
    assert extra == {
        f"{name}/{of}" for name in trained for of in ("Momentum", "ExponentialMovingAverage")
    }


def test_layers_below_the_trained_ones_have_no_gradients(graph):
    trained_with("logits/.*")
    assert not [op.type for op in graph.get_operations() if op.type.startswith("Conv2DBackprop")]


def test_evaluation_restores_the_ema_of_trained_variables_only():
    params = hparams.resolve(
        convnet.MODEL, [CONVNET, "trainable=logits/.*,ema_decay=0.9"], {"num_classes": 3}
    )
    images = tf.zeros([13, 7, 5, 1], tf.uint8)
    forward.infer(convnet.MODEL, {"image": images}, params, training=False)
    averages = {
        name
        for name in ema.variables_to_restore(params, training=False)
        if name.endswith("/ExponentialMovingAverage")
    }
    assert averages == {f"logits/{name}/ExponentialMovingAverage" for name in ("kernel", "bias")}


def test_a_pattern_that_matches_no_variable_is_rejected():
    with pytest.raises(UsageError, match=r"trainable=head/.* matches no variable. The last"):
        trained_with("head/.*")


TRAINED_ON_BOXES = dataclasses.replace(mlp.MODEL, train_inputs=("boxes",))


def test_inference_reads_train_inputs_under_their_names():
    image, boxes = tf.zeros([13, 7]), tf.ones([13, 4])
    labels = {"boxes": boxes, "classes": tf.zeros([13])}
    features = forward.train_features(TRAINED_ON_BOXES, {"image": image}, labels)
    assert features == {"image": image, "boxes": boxes}
    by_class = dataclasses.replace(mlp.MODEL, train_inputs=("label",))
    features = forward.train_features(by_class, {"image": image}, labels["classes"])
    assert features == {"image": image, "label": labels["classes"]}


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        ({"image": 0}, {"classes": 0, "masks": 0}, "is not a label of .* which has classes, masks"),
        ({"image": 0}, 0, "'boxes' is not a label of the data set, which has label"),
        ({"boxes": 0}, {"boxes": 0}, "'boxes' is a label and a feature of the data set"),
    ],
)
def test_train_inputs_that_are_no_labels_are_an_error(features, labels, message):
    with pytest.raises(ModelError, match=f"train_inputs: .*{message}"):
        forward.train_features(TRAINED_ON_BOXES, features, labels)


def test_prediction_is_inference_unless_the_model_decodes():
    features, params = {"x": tf.constant([3.0])}, {"trainable": ".*"}

    def times(features, params, training):
        del params
        factor = tf.compat.v1.get_variable("factor", [])
        return {"y": factor * features["x"], "training": tf.constant(training)}

    model = dataclasses.replace(mlp.MODEL, inference=times)
    outputs = forward.decode(model, features, params)
    assert not tf.get_static_value(outputs["training"])
    decoding = dataclasses.replace(model, decode=lambda *given: {"given": given[0]["x"]})
    assert forward.decode(decoding, features, params)["given"] is features["x"]
