"""One step of training as both wrappers run it: forward, gradients, update."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from engine.evaluation import metrics
from engine.train import optimizers
from engine.train.forward import infer
from models.layers import device


@dataclasses.dataclass(frozen=True)
class TrainStep:
    """The graph of a step.

    Attributes:
      op: runs it.
      loss: float32 scalar, the mean over the batch, without the L2 of weight decay; on a TPU a
        core's share of the global mean: the mean over the cores is that.
      eval_outputs: of the whole batch, what the model's metrics take.
      model_variables: the variables of the inference function, without those of the optimizer.
    """

    op: tf.Operation
    loss: tf.Tensor
    eval_outputs: dict[str, Any]
    model_variables: list[tf.Variable]


def train_step(model, features, labels, params, optimizer, accumulate_steps=1) -> TrainStep:
    """Builds a step that `optimizer` makes after a batch.

    Args:
      model: a `models.model.Model`.
      features: tensors `[batch, ...]`, static shapes; one core's batch under a CrossShardOptimizer.
      labels: like features.
      params: all hyperparameters.
      optimizer: of `optimizers.create`, on a TPU inside a CrossShardOptimizer.
      accumulate_steps: equal parts into which the batch is cut. Only one part is in memory at a
        time; the sum of their gradients is applied once. Batch norm sees one part at a time.
    """
    # A part's loss is the mean of as many as there are parts.
    divisor = metrics.global_loss_weight(model, labels, params) / accumulate_steps

    def forward(features, labels):
        outputs = infer(model, features, params, training=True)
        with tf.name_scope("loss"):
            with device.scope(params):
                losses = model.loss(labels, outputs, params)
            if model.loss_weights:
                losses *= model.loss_weights(labels)
            return tf.reduce_sum(losses), model.eval_outputs(labels, outputs)

    def compute(features, labels):
        loss, outputs = forward(features, labels)
        loss /= divisor
        gradients = optimizers.compute_gradients(optimizer, loss, params)
        return loss, outputs, [gradient for gradient, _ in gradients]

    tf.compat.v1.train.get_or_create_global_step()
    if accumulate_steps == 1:
        loss, outputs, gradients = compute(features, labels)
    else:
        loss, outputs, gradients = _accumulate(forward, compute, features, labels, accumulate_steps)
    model_variables = tf.compat.v1.global_variables()
    gradients = list(zip(gradients, tf.compat.v1.trainable_variables()))
    op = optimizers.apply_gradients(optimizer, gradients, params)
    return TrainStep(op, loss, outputs, model_variables)


def _accumulate(forward, compute, features, labels, parts):
    """Does `compute` part by part in a loop; returns the loss, the outputs and the gradients."""
    stacked = tf.nest.map_structure(lambda tensor: _split(tensor, parts), (features, labels))
    gradient_shapes, outputs_like = _shapes(forward, stacked)
    flat_like = tf.nest.flatten(outputs_like)
    updates_key = tf.compat.v1.GraphKeys.UPDATE_OPS

    def body(i, loss, gradients, outputs):
        part = tf.nest.map_structure(lambda tensor: tf.gather(tensor, i), stacked)
        part_loss, part_outputs, part_gradients = compute(*part)
        gradients = [
            total if gradient is None else total + gradient / parts
            for total, gradient in zip(gradients, part_gradients)
        ]
        outputs = [
            array.write(i, output) for array, output in zip(outputs, tf.nest.flatten(part_outputs))
        ]
        updates = tf.compat.v1.get_collection_ref(updates_key)
        with tf.control_dependencies(updates):
            i += 1
        del updates[:]  # they ran here; outside the loop they are no ops to wait for
        return i, loss + part_loss / parts, gradients, outputs

    _, loss, gradients, outputs = tf.while_loop(
        lambda i, *_: i < parts,
        body,
        (
            0,
            0.0,
            [tf.zeros(shape) for shape in gradient_shapes],
            [tf.TensorArray(like.dtype, parts, element_shape=like.shape) for like in flat_like],
        ),
        parallel_iterations=1,
        maximum_iterations=parts,
    )
    outputs = [
        tf.reshape(array.stack(), [-1, *like.shape[1:]]) for array, like in zip(outputs, flat_like)
    ]
    return loss, tf.nest.pack_sequence_as(outputs_like, outputs), gradients


def _split(tensor, parts):
    """Returns `[batch, ...]` as `[parts, batch // parts, ...]`."""
    return tf.reshape(tensor, [parts, tensor.shape[0] // parts, *tensor.shape[1:]])


def _shapes(forward, stacked):
    """Returns the shapes of the trainable variables, and placeholders like one part's outputs.

    A loop needs both before its body makes the variables; a graph that is thrown away tells.
    """
    with tf.Graph().as_default():
        part = tf.nest.map_structure(
            lambda tensor: tf.compat.v1.placeholder(tensor.dtype, tensor.shape[1:]), stacked
        )
        _, outputs = forward(*part)
        return [variable.shape for variable in tf.compat.v1.trainable_variables()], outputs
