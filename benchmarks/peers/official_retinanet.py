"""A training step of the RetinaNet of tf-models-official, with ResNet-50 and FPN."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from official.vision.configs import retinanet as configs
from official.vision.tasks import retinanet

ANCHORS_PER_CELL = 9


def build_step(batch_size, size, num_classes, dtype, jit_compile=False):
    """Returns (step, specs): a `tf.function`, and the specs of its arguments.

    The network, its losses with L2 regularization, and SGD with momentum are those of
    `retinanet_resnetfpn_coco`. Boxes are already assigned to anchors.

    Args:
      batch_size: images per step.
      size: height and width, a multiple of 128.
      num_classes: classes.
      dtype: of the images.
      jit_compile: compile the step with XLA.
    """
    config = configs.retinanet_resnetfpn_coco().task
    config.model.input_size = [size, size, 3]
    config.model.num_classes = num_classes
    task = retinanet.RetinaNetTask(config)
    model = task.build_model()
    optimizer = tf.keras.optimizers.SGD(0.01, momentum=0.9)
    optimizer.build(model.trainable_variables)
    specs = _specs(batch_size, size, dtype)

    @tf.function(jit_compile=jit_compile)
    def step(*arguments):
        images, labels = tf.nest.pack_sequence_as(specs, arguments)
        with tf.GradientTape() as tape:
            outputs = model(images, training=True)
            outputs = tf.nest.map_structure(lambda x: tf.cast(x, tf.float32), outputs)
            loss, *_ = task.build_losses(outputs, labels, model.losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    return step, tf.nest.flatten(specs)


def random_batch(specs, num_classes):
    """Returns random arguments of the step; one anchor in 1,000 has an object."""
    random = np.random.default_rng(0)
    batch = []
    for spec in specs:
        if spec.dtype.is_integer:
            values = random.integers(0, num_classes, spec.shape)
            values = np.where(random.random(spec.shape) < 0.001, values, -1)
        elif spec.shape.rank == 2:
            values = random.random(spec.shape) < 0.001
        else:
            values = random.normal(size=spec.shape)
        batch.append(tf.cast(values, spec.dtype))
    return batch


def _specs(batch_size, size, dtype):
    cells = {str(level): -(-size // 2**level) for level in range(3, 8)}

    def per_level(depth, dtype):
        return {
            level: tf.TensorSpec([batch_size, side, side, depth], dtype)
            for level, side in cells.items()
        }

    anchors = ANCHORS_PER_CELL * sum(side * side for side in cells.values())
    labels = {
        "cls_targets": per_level(ANCHORS_PER_CELL, tf.int32),
        "box_targets": per_level(4 * ANCHORS_PER_CELL, tf.float32),
        "cls_weights": tf.TensorSpec([batch_size, anchors]),
        "box_weights": tf.TensorSpec([batch_size, anchors]),
    }
    return tf.TensorSpec([batch_size, size, size, 3], dtype), labels
