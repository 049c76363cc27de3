"""Writes the HLO of a training step of a U-Net of segmentation_models; run by `tpu_peers`.

    OFFICIAL_PYTHON -m benchmarks.peers.segmentation_models_unet HLO_FILE BATCH_PER_CORE SIZE

The U-Net on a MobileNet v2 of qubvel/segmentation_models, with transposed convolutions of 16 to 256
channels and 11 classes, in bfloat16, with cross-entropy and Adam. The environment is that of
`official_step` with:

    official/bin/pip install --no-deps segmentation-models==1.0.1 efficientnet==1.0.0
    official/bin/pip install --no-deps image-classifiers==1.0.0 keras-applications==1.0.8
    official/bin/pip install 'scikit-image<0.25' 'numpy<2'
"""

from __future__ import annotations

import os
import sys

os.environ["SM_FRAMEWORK"] = "tf.keras"

import segmentation_models
import tensorflow as tf


def main(path, batch_size, size):
    """Writes the program."""
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    shape = [int(size), int(size)]
    model = segmentation_models.Unet(
        "mobilenetv2",
        decoder_block_type="transpose",  # the other one has a gradient that XLA lacks
        classes=11,
        activation="linear",
        encoder_weights=None,
        input_shape=(*shape, 3),
    )
    variables = model.trainable_variables
    optimizer = tf.keras.optimizers.Adam(0.001)
    optimizer.build(variables)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function(jit_compile=True)
    def step(images, masks):
        with tf.GradientTape() as tape:
            logits = model(tf.cast(images, tf.bfloat16), training=True)
            value = loss(masks, tf.cast(logits, tf.float32))
        optimizer.apply_gradients(zip(tape.gradient(value, variables), variables))
        return value

    specs = (
        tf.TensorSpec([int(batch_size), *shape, 3], tf.uint8),
        tf.TensorSpec([int(batch_size), *shape], tf.uint8),
    )
    with open(path, "wb") as file:
        file.write(step.experimental_get_compiler_ir(*specs)(stage="hlo_serialized"))


if __name__ == "__main__":
    main(*sys.argv[1:])
