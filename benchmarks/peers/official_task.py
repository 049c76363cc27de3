"""A training step of a task of tf-models-official."""

from __future__ import annotations

import tensorflow as tf


def build_step(task, specs, jit_compile=False):
    """Returns (step, specs): a `tf.function`, and the specs of its arguments.

    The step is that of the task, with SGD with momentum.

    Args:
      task: an `official.core.base_task.Task`.
      specs: of its images and labels.
      jit_compile: compile the step with XLA.
    """
    model = task.build_model()
    optimizer = tf.keras.optimizers.SGD(0.01, momentum=0.9)
    optimizer.build(model.trainable_variables)

    @tf.function(jit_compile=jit_compile)
    def step(*arguments):
        inputs = tf.nest.pack_sequence_as(specs, arguments)
        return task.train_step(inputs, model, optimizer)

    return step, tf.nest.flatten(specs)
