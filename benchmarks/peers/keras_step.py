"""Writes the HLO of a training step of Keras layers in bfloat16; run by `tpu_peers`.

    python -m benchmarks.peers.keras_step HLO_FILE BATCH_PER_CORE NETWORK

NETWORK: `resnet` is ResNet-50 and `mobilenet_v2` MobileNet v2 of `tf.keras.applications` with
momentum, `efficientnet_b0` and `efficientnet_b4` its EfficientNets with RMSProp, `transformer` the
Transformer base of `keras_transformer` with Adam, rows of 128 tokens and 32,768 pieces. `unet` is
the U-Net on a MobileNet v2 of qubvel/segmentation_models with Adam, with transposed convolutions of
16 to 256 channels and 11 classes; it needs the environment of `official_step` and:

    official/bin/pip install --no-deps segmentation-models==1.0.1 efficientnet==1.0.0
    official/bin/pip install --no-deps image-classifiers==1.0.0 keras-applications==1.0.8
    official/bin/pip install 'scikit-image<0.25' 'numpy<2'
"""

from __future__ import annotations

import functools
import os
import sys

import tensorflow as tf

from benchmarks.peers import keras_transformer
from models import registry

LENGTH, VOCAB_SIZE = 128, 32768


def main(path, batch_size, network):
    """Writes the program."""
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    forward, loss, optimizer, variables, specs = _BUILDERS[network](int(batch_size))
    optimizer.build(variables)

    @tf.function(jit_compile=True)
    def step(*batch):
        with tf.GradientTape() as tape:
            logits, labels = forward(*batch)
            value = loss(labels, tf.cast(logits, tf.float32))
        optimizer.apply_gradients(zip(tape.gradient(value, variables), variables))
        return value

    with open(path, "wb") as file:
        file.write(step.experimental_get_compiler_ir(*specs)(stage="hlo_serialized"))


def _build_with_momentum(name, batch_size):
    optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True)
    return _build_application(name, optimizer, batch_size)


def _build_efficientnet(name, batch_size):
    optimizer = tf.keras.optimizers.RMSprop(0.016, rho=0.9, momentum=0.9, epsilon=1e-3)
    return _build_application(name, optimizer, batch_size)


def _build_application(name, optimizer, batch_size):
    network = getattr(tf.keras.applications, name)
    model = network(weights=None, classifier_activation=None)
    return _of_images(model, optimizer, tf.TensorSpec([batch_size], tf.int32))


def _of_images(model, optimizer, labels):
    """Returns the parts of a step of a model of images, with the cross-entropy of labels."""
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    images = tf.TensorSpec([labels.shape[0], *model.input_shape[1:]], tf.uint8)

    def forward(images, labels):
        return model(tf.cast(images, tf.bfloat16), training=True), labels

    return forward, loss, optimizer, model.trainable_variables, (images, labels)


def _build_unet(batch_size):
    os.environ["SM_FRAMEWORK"] = "tf.keras"
    import segmentation_models

    model = segmentation_models.Unet(
        "mobilenetv2",
        decoder_block_type="transpose",  # the other one has a gradient that XLA lacks
        classes=11,
        activation="linear",
        encoder_weights=None,
        input_shape=(512, 512, 3),
    )
    optimizer = tf.keras.optimizers.Adam(0.001)
    return _of_images(model, optimizer, tf.TensorSpec([batch_size, 512, 512], tf.uint8))


def _build_transformer(batch_size):
    params = {**registry.find("transformer_base").default_params(), "vocab_size": VOCAB_SIZE}
    model = keras_transformer.build(params, LENGTH)
    optimizer = tf.keras.optimizers.Adam(0.001, beta_2=0.98)
    loss = keras_transformer.loss(params["label_smoothing"])

    def forward(source, target):
        return model({"source": source, "target": target}, training=True), target

    specs = [tf.TensorSpec([batch_size, LENGTH], tf.int32)] * 2
    return forward, loss, optimizer, model.trainable_variables, specs


_BUILDERS = {
    "resnet": functools.partial(_build_with_momentum, "ResNet50"),
    "mobilenet_v2": functools.partial(_build_with_momentum, "MobileNetV2"),
    "efficientnet_b0": functools.partial(_build_efficientnet, "EfficientNetB0"),
    "efficientnet_b4": functools.partial(_build_efficientnet, "EfficientNetB4"),
    "transformer": _build_transformer,
    "unet": _build_unet,
}


if __name__ == "__main__":
    main(*sys.argv[1:])
