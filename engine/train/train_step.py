"""Builds the training step of both wrappers: forward pass, loss, gradients, optimizer update.

`engine/train/own_step.py` builds that of a model with a `train_step`.

Training is data parallel: each replica (TPU core, GPU or worker) computes the gradients of its
per-replica batch, and the optimizer applies their mean over all replicas (all-reduce).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import op_selector
from tensorflow.python.util import nest

from common.errors import UsageError
from engine.checkpoints import ema
from engine.train import loss_reduction, optimizers, own_step, schedules, tpu_embeddings
from engine.train.forward import infer, train_features
from models.layers import device
from models.model import ModelError, TrainStep


def train_step(model, features, labels, params, train):
    """Builds a training step.

    Args:
      model: a `models.model.Model`.
      features: tensors `[batch, ...]` with static shapes, the per-replica batch.
      labels: like `features`.
      params: all hyperparameters; on a TPU also the params that TPUEstimator adds.
      train: `TrainSettings`. `steps` and the global `batch_size` determine the learning rate;
        `accumulate_steps` is the number of micro-batches for gradient accumulation. Batch norm
        normalizes each micro-batch separately.

    Returns:
      A `TrainStep`.
    """
    if params["lazy_embeddings"] and train.accumulate_steps > 1:
        raise UsageError(
            f"lazy_embeddings: --accumulate_steps={train.accumulate_steps} sums dense gradients. "
            "Set lazy_embeddings=false, or leave out --accumulate_steps"
        )
    _check_batch(features, labels)
    global_step = tf.compat.v1.train.get_or_create_global_step()
    with tf.name_scope("learning_rate"):
        learning_rate = schedules.learning_rate(params, global_step, train.steps, train.batch_size)
    if model.train_step is not None:
        return own_step.build(model, features, labels, params, learning_rate)
    tpu_tables = []
    if tpu_embeddings.split_activations(features)[1]:
        tpu_tables = tpu_embeddings.find_tables(model, params)
        tpu_embeddings.set_learning_rates(params, tpu_tables, learning_rate)
    optimizer = optimizers.create(
        params,
        learning_rate,
        model.layer_variables(params),
        model.embedding_tables(params),
        tpu_tables,
    )
    optimizer = optimizers.all_reduced(optimizer, params)

    def compute(features, labels, divisors=None):
        inputs = train_features(model, features, labels)
        outputs = infer(model, inputs, params, training=True)
        with tf.name_scope("loss"), device.scope(params):
            terms = model.losses(features, labels, outputs, params)
            means = loss_reduction.means(
                terms, divisors or loss_reduction.denominators(terms, params)
            )
            losses = loss_reduction.by_variables(terms, means)
            total = loss_reduction.add(losses.values())
        if tpu_tables and losses.keys() != {".*"}:
            raise UsageError(
                f"losses: a term updates {next(iter(losses))} only (Loss.variables), which TPU "
                "embeddings do not support. Set tpu_embedding_rows=0"
            )
        pairs = optimizers.compute_gradients(optimizer, losses, params)
        eval_outputs = model.eval_outputs(features, labels, outputs, params)
        return total, means, eval_outputs, [gradient for gradient, _ in pairs]

    if train.accumulate_steps == 1:
        total, means, eval_outputs, gradients = compute(features, labels)
    else:
        total, means, eval_outputs, gradients = _accumulate(
            model, features, labels, params, compute, train.accumulate_steps
        )
    model_variables = tf.compat.v1.global_variables()
    # TPUEstimator sends the gradients of TPU embeddings; their stand-ins would get slots.
    stand_ins = tpu_embeddings.dummy_names()
    variables = tf.compat.v1.trainable_variables()
    gradients = [pair for pair in zip(gradients, variables) if pair[1].op.name not in stand_ins]
    op = optimizers.apply_gradients(optimizer, gradients, params)
    without_gradient = tuple(
        ema.saved_name(variable) for gradient, variable in gradients if gradient is None
    )
    return TrainStep(
        op=op,
        loss=total,
        loss_means=means,
        loss_names=tuple(means),
        learning_rate=learning_rate,
        eval_outputs=eval_outputs,
        model_variables=model_variables,
        without_gradient=without_gradient,
    )


def _check_batch(features, labels):
    """Raises `UsageError` for a tensor of the batch whose batch size is not static."""
    for path, tensor in nest.flatten_with_joined_string_paths((features, labels)):
        if not isinstance(tensor, tf.Tensor):
            continue
        shape = tensor.shape
        if shape.rank is None or shape.as_list()[:1] == [None]:
            side, _, name = path.partition("/")
            what = f"{('feature', 'label')[int(side)]} '{name}'" if name else "the labels"
            raise UsageError(
                f"{what} of the training batch: the batch size is unknown, shape {shape}. Batch "
                "with drop_remainder=True in the input_fn, and restore shapes with tf.ensure_shape"
            )


def _accumulate(model, features, labels, params, compute, num_parts):
    """Gradient accumulation: runs `compute` for each micro-batch in a while loop.

    Returns:
      What `compute` returns for the whole batch: total loss, losses, eval_outputs, gradients.
    """
    parts = tf.nest.map_structure(lambda tensor: _split(tensor, num_parts), (features, labels))
    like = _trace(model, params, parts)
    divisors = _divisors(model, features, labels, params, like.outputs, num_parts)
    flat_like = tf.nest.flatten(like.eval_outputs)
    updates_key = tf.compat.v1.GraphKeys.UPDATE_OPS
    is_unused = []  # of each variable; filled by the only call of `body`

    def body(i, total, means, gradients, outputs):
        part = tf.nest.map_structure(lambda tensor: tf.gather(tensor, i), parts)
        part_total, part_means, part_outputs, part_gradients = compute(*part, divisors)
        is_unused.extend(gradient is None for gradient in part_gradients)
        means = {name: mean + part_means[name] / num_parts for name, mean in means.items()}
        gradients = [
            gradient if added is None else gradient + tf.convert_to_tensor(added) / num_parts
            for gradient, added in zip(gradients, part_gradients)
        ]
        outputs = [
            array.write(i, output) for array, output in zip(outputs, tf.nest.flatten(part_outputs))
        ]
        updates = tf.compat.v1.get_collection_ref(updates_key)
        with tf.control_dependencies(updates):
            i += 1
        del updates[:]  # ops inside a while loop cannot be fetched outside
        return i, total + part_total / num_parts, means, gradients, outputs

    _, total, means, gradients, outputs = tf.while_loop(
        lambda i, *_: i < num_parts,
        body,
        (
            0,
            0.0,
            dict.fromkeys(like.loss_names, 0.0),
            [tf.zeros(shape) for shape in like.gradient_shapes],
            [
                tf.TensorArray(tensor.dtype, num_parts, element_shape=tensor.shape)
                for tensor in flat_like
            ],
        ),
        parallel_iterations=1,
        maximum_iterations=num_parts,
    )
    # An optimizer with weight decay would change a variable whose gradient is zeros.
    gradients = [None if unused else g for g, unused in zip(gradients, is_unused)]
    outputs = [
        tf.reshape(array.stack(), [-1, *tensor.shape[1:]])
        for array, tensor in zip(outputs, flat_like)
    ]
    return total, means, tf.nest.pack_sequence_as(like.eval_outputs, outputs), gradients


@dataclasses.dataclass(frozen=True)
class _Traced:
    """Placeholders and shapes of one micro-batch, traced in a temporary graph.

    The loop variables of tf.while_loop need them before its body creates the variables.
    """

    outputs: Any
    eval_outputs: Any
    loss_names: list[str]
    gradient_shapes: list[tf.TensorShape]


def _trace(model, params, parts):
    with tf.Graph().as_default():
        features, labels = tf.nest.map_structure(
            lambda tensor: tf.compat.v1.placeholder(tensor.dtype, tensor.shape[1:]), parts
        )
        inputs = train_features(model, features, labels)
        outputs = infer(model, inputs, params, training=True)
        shapes = [variable.shape for variable in tf.compat.v1.trainable_variables()]
        outputs = tf.nest.map_structure(
            lambda tensor: tf.compat.v1.placeholder(tensor.dtype, tensor.shape), outputs
        )
        with device.scope(params):
            terms = model.losses(features, labels, outputs, params)
        for name, term in terms.items():
            _check_weights(name, term, outputs)
        eval_outputs = model.eval_outputs(features, labels, outputs, params)
        return _Traced(outputs, eval_outputs, list(terms), shapes)


def _check_weights(name, term, outputs):
    """Raises `ModelError` if the weights of a loss depend on the outputs of the model."""
    if term.weights is None:
        return
    needed = set(op_selector.get_backward_walk_ops([term.weights]))
    if any(tensor.op in needed for tensor in tf.nest.flatten(outputs)):
        raise ModelError(
            f"losses: the weights of '{name}' depend on the outputs of the model. With "
            "--accumulate_steps they must be a function of features and labels"
        )


def _divisors(model, features, labels, params, outputs_like, num_parts):
    """Returns the denominators of the whole batch, divided by the number of micro-batches."""
    batch_size = tf.nest.flatten(features)[0].shape[0]
    outputs = tf.nest.map_structure(
        # Only a shape: `_check_weights` ensures that the weights do not depend on the outputs.
        lambda like: tf.zeros([batch_size, *like.shape[1:]], like.dtype),
        outputs_like,
    )
    with tf.name_scope("loss_weights"), device.scope(params):
        terms = model.losses(features, labels, outputs, params)
        divisors = loss_reduction.denominators(terms, params)
    return {name: divisor / num_parts for name, divisor in divisors.items()}


def _split(tensor, num_parts):
    """Returns `[batch, ...]` as `[num_parts, batch // num_parts, ...]`."""
    return tf.reshape(tensor, [num_parts, tensor.shape[0] // num_parts, *tensor.shape[1:]])
