"""A training step of the NeuMF of tf-models-official."""

from __future__ import annotations

import tensorflow as tf
from official.recommendation import neumf_model

_PAIRS = 5  # of a user with an item, per row: a positive one and four negative ones


def build_step(batch_size, num_users, num_items, jit_compile=True):
    """Returns (step, specs): a `tf.function`, and the specs of its arguments.

    The network has the sizes of `--layers=256,256,128,64 --num_factors=64` without regularization.
    `ncf_keras_main.py` trains it with Adam, too.

    Args:
      batch_size: rows per step, each of `_PAIRS` pairs.
      num_users: users.
      num_items: items.
      jit_compile: compile the step with XLA.
    """
    inputs = [tf.keras.layers.Input([1], dtype=tf.int32) for _ in range(2)]
    layers = [256, 256, 128, 64]
    params = {
        "num_users": num_users,
        "num_items": num_items,
        "model_layers": layers,
        "mf_dim": 64,
        "mf_regularization": 0.0,
        "mlp_reg_layers": [0.0] * len(layers),
    }
    model = neumf_model.construct_model(*inputs, params)
    optimizer = tf.keras.optimizers.Adam(0.001)
    optimizer.build(model.trainable_variables)
    loss = tf.keras.losses.BinaryCrossentropy(from_logits=True)
    ids = tf.TensorSpec([batch_size * _PAIRS, 1], tf.int32)

    @tf.function(jit_compile=jit_compile)
    def step(users, items, labels):
        with tf.GradientTape() as tape:
            value = loss(labels, model([users, items], training=True))
        gradients = tape.gradient(value, model.trainable_variables)
        # A TPUStrategy sums dense gradients.
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return value

    return step, [ids, ids, tf.TensorSpec([batch_size * _PAIRS, 1])]
