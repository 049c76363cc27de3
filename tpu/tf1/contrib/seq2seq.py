"""tf.contrib.seq2seq: the loss; its decoders are in no package for TensorFlow 2.15."""

from __future__ import annotations

import tensorflow as tf

__all__ = ["sequence_loss", "tile_batch"]


def sequence_loss(
    logits,
    targets,
    weights,
    average_across_timesteps=True,
    average_across_batch=True,
    sum_over_timesteps=False,
    sum_over_batch=False,
    softmax_loss_function=None,
    name=None,
):
    """Returns the weighted cross entropy of sequences.

    Args:
      logits: float, [batch, time, classes].
      targets: int, [batch, time].
      weights: float, [batch, time].
      average_across_timesteps: whether to divide by the weights of a sequence.
      average_across_batch: whether to divide by the weights of a batch.
      sum_over_timesteps: must be False.
      sum_over_batch: must be False.
      softmax_loss_function: function of (labels, logits), each a keyword; default cross entropy.
      name: name scope.

    Returns:
      float, scalar; [time] or [batch] if one average is off, [batch, time] if both are.
    """
    if sum_over_timesteps or sum_over_batch:
        raise NotImplementedError(
            "tf.contrib.seq2seq.sequence_loss: sum_over_timesteps and sum_over_batch are not "
            "available. Compute the loss of each token with tf.nn and sum it"
        )
    ranks = logits.shape.rank, targets.shape.rank, weights.shape.rank
    if ranks != (3, 2, 2):
        raise ValueError(
            f"sequence_loss: logits, targets and weights have ranks {ranks}, not 3, 2, 2"
        )
    with tf.name_scope(name or "sequence_loss"):
        loss_function = softmax_loss_function or tf.nn.sparse_softmax_cross_entropy_with_logits
        flat = tf.reshape(logits, [-1, tf.shape(logits)[2]])
        losses = loss_function(labels=tf.reshape(targets, [-1]), logits=flat)
        losses = tf.reshape(losses, tf.shape(targets)) * weights
        losses.set_shape(targets.shape)
        axes = [i for i, on in enumerate((average_across_batch, average_across_timesteps)) if on]
        if not axes:
            return losses
        # 1.x divided by the weights plus this, against a division by 0.
        return tf.reduce_sum(losses, axes) / (tf.reduce_sum(weights, axes) + 1e-12)


def tile_batch(t, multiplier, name=None):
    """Returns tensors with each example of the batch repeated `multiplier` times."""
    with tf.name_scope(name or "tile_batch"):
        return tf.nest.map_structure(lambda tensor: tf.repeat(tensor, multiplier, axis=0), t)
