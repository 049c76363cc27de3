"""A training step of the dense part of DLRM with the layers of tf-models-official."""

from __future__ import annotations

import tensorflow as tf
import tensorflow_recommenders as tfrs

NUMBERS, CATEGORIES, WIDTH = 13, 26, 128
BOTTOM, TOP = [512, 256, WIDTH], [1024, 1024, 512, 256, 1]


def build_step(batch_size):
    """Returns (step, specs): a `tf.function` compiled with XLA, and the specs of its arguments.

    The stacks and the interaction that `RankingTask` builds for a TPU, in the sizes of MLPerf
    Training v1.0, with Adagrad. The step takes the embeddings of each category and returns their
    gradients, as with TPU embeddings.

    Args:
      batch_size: rows per step.
    """
    bottom = tfrs.layers.blocks.MLP(BOTTOM, final_activation="relu")
    interaction = tfrs.layers.feature_interaction.DotInteraction(skip_gather=True)
    top = tfrs.layers.blocks.MLP(TOP)
    cross_entropy = tf.keras.losses.BinaryCrossentropy(from_logits=True)

    def forward(numbers, *embeddings):
        x = bottom(numbers)
        return top(tf.concat([x, interaction([x, *embeddings])], axis=1))

    forward(tf.zeros([1, NUMBERS]), *[tf.zeros([1, WIDTH])] * CATEGORIES)  # builds the layers
    variables = bottom.trainable_variables + top.trainable_variables
    optimizer = tf.keras.optimizers.Adagrad(0.02)
    optimizer.build(variables)
    specs = [tf.TensorSpec([batch_size, 1]), tf.TensorSpec([batch_size, NUMBERS])]
    specs += [tf.TensorSpec([batch_size, WIDTH])] * CATEGORIES

    @tf.function(jit_compile=True)
    def step(labels, numbers, *embeddings):
        with tf.GradientTape() as tape:
            tape.watch(embeddings)
            loss = cross_entropy(labels, forward(numbers, *embeddings))
        gradients, of_embeddings = tape.gradient(loss, (variables, embeddings))
        optimizer.apply_gradients(zip(gradients, variables))
        return loss, of_embeddings

    return step, specs
