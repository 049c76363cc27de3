"""Writes the HLO of a training step of Keras layers in bfloat16; run by `tpu_peers`.

    python -m benchmarks.peers.keras_step HLO_FILE BATCH_PER_CORE resnet|transformer

`resnet` is ResNet-50 of `tf.keras.applications` with momentum, `transformer` the Transformer base
of `keras_transformer` with Adam, rows of 128 tokens and 32,768 pieces.
"""

from __future__ import annotations

import sys

import tensorflow as tf

from benchmarks.peers import keras_transformer
from models import registry

LENGTH, VOCAB_SIZE = 128, 32768


def main(path, batch_size, network):
    """Writes the program."""
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    build = {"resnet": _build_resnet, "transformer": _build_transformer}[network]
    forward, loss, optimizer, variables, specs = build(int(batch_size))
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


def _build_resnet(batch_size):
    model = tf.keras.applications.ResNet50(weights=None, classifier_activation=None)
    optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    images = tf.TensorSpec([batch_size, 224, 224, 3], tf.uint8)

    def forward(images, labels):
        return model(tf.cast(images, tf.bfloat16), training=True), labels

    specs = images, tf.TensorSpec([batch_size], tf.int32)
    return forward, loss, optimizer, model.trainable_variables, specs


def _build_transformer(batch_size):
    params = {**registry.find("transformer_base").default_params(), "vocab_size": VOCAB_SIZE}
    model = keras_transformer.build(params, LENGTH)
    optimizer = tf.keras.optimizers.Adam(0.001, beta_2=0.98)
    loss = keras_transformer.loss(params["label_smoothing"])

    def forward(source, target):
        return model({"source": source, "target": target}, training=True), target

    specs = [tf.TensorSpec([batch_size, LENGTH], tf.int32)] * 2
    return forward, loss, optimizer, model.trainable_variables, specs


if __name__ == "__main__":
    main(*sys.argv[1:])
