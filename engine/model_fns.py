"""The parts of a model_fn that both wrappers share: training checks, evaluation, prediction.

The training step itself is `engine.train.train_step`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from common.constants import EXAMPLE_WEIGHT
from common.names import counted
from engine.checkpoints import find, verify
from engine.checkpoints.warm_start import init_from_checkpoint
from engine.evaluation import host_metrics, metrics, reports
from engine.hooks import summaries
from engine.run_settings import RunSettings
from engine.serving import signatures
from engine.train import loss_reduction
from engine.train.forward import decode, infer
from input_fns.dataset_info import flatten, nest
from models.layers import device
from models.model import Loss, ModelError, TrainStep

_SHOWN = 3  # names of variables in a line


def check_training(settings: RunSettings, features, labels, params, step: TrainStep) -> None:
    """Checks the metrics of the model, `--best_metric` and the checkpoint to resume from.

    Prints which variables are not trained: the loss does not depend on them.

    Raises:
      ModelError: a metric or a term of the loss has a reserved name.
      UsageError: the metric is unknown, or the checkpoint is of a different model.
    """
    best_metric = settings.evaluation.best_metric
    of_host = settings.model.host_metrics(params, settings.pipeline) if best_metric else ()
    metrics.check(best_metric, settings.model, features, labels, step, params, of_host)
    if settings.checkpoint:
        verify.check_variables(settings.checkpoint, params, training=True)
    if step.without_gradient and settings.task.is_chief:
        _report_without_gradient(step.without_gradient)


@functools.cache  # a run builds the graph once for each replica and each session
def _report_without_gradient(names):
    shown = ", ".join(names[:_SHOWN]) + (", ..." if names[_SHOWN:] else "")
    print(
        f"{counted(len(names), 'variable')} without a gradient, so training does not change them: "
        f"{shown}. No loss that updates them depends on them, or through operations without a "
        "gradient only",
        flush=True,
    )


def warm_start(settings: RunSettings, params, step: TrainStep, tables=()) -> None:
    """Initializes the variables of the model from `--warm_start_from`, unless training resumes.

    Args:
      settings: settings of the run.
      params: params of the model_fn.
      step: the training step.
      tables: variables of TPU embeddings, which are not in the graph of the step.
    """
    train = settings.train
    if train.warm_start_from and not find.latest(settings.model_dir):
        with tf.init_scope():  # not inside a while loop
            init_from_checkpoint(
                train.warm_start_from,
                train.warm_start_include,
                [*step.model_variables, *tables],
                settings.model.warm_start_scope,
                settings.model.dataset_variables(params),
            )


def train_scalars(step: TrainStep) -> dict[str, tf.Tensor]:
    """Returns the scalars of a training step for TensorBoard, `{tag: float32 scalar}`."""
    terms = {f"{name}_loss": loss for name, loss in step.loss_means.items()}
    return {
        "loss": step.loss,
        **(terms if len(terms) > 1 else {}),
        "learning_rate": step.learning_rate,
    }


def train_summary(settings: RunSettings, features, labels, params, step: TrainStep) -> tf.Tensor:
    """Returns the summary of a training step with the metrics of its batch, a string tensor."""
    model = settings.model
    batch_metrics = {}
    # Synchronous workers would sum their metrics.
    if not settings.task.is_synchronous:
        weights = tf.ones([tf.nest.flatten(features)[0].shape[0]])
        batch_metrics = model.metrics(labels, step.eval_outputs, weights, params)
    return summaries.train_summary(features, train_scalars(step), batch_metrics)


class EvalGraph(NamedTuple):
    """The graph of an evaluation."""

    loss: tf.Tensor  # float32 scalar of the per-replica batch
    metric_fn: Callable[..., dict[str, tuple]]  # from the tensors to `{name: (value, update_op)}`
    # The arguments of `metric_fn`, `[batch, ...]`; a TPU sends them to the host.
    tensors: list[tf.Tensor]
    # `reports.ExamplesHook` and `host_metrics.UpdateHook` with the tensors that they fetch, as far
    # as the model needs them; none on a TPU.
    hooks: list[tf.estimator.SessionRunHook]


def evaluate(settings: RunSettings, features, labels, params) -> EvalGraph:
    """Builds the graph of an exact evaluation.

    Args:
      settings: settings of the run.
      features: tensors `[batch, ...]`, the per-replica batch, with the example weights.
      labels: like `features`.
      params: params of the model_fn.
    """
    model = settings.model
    outputs = infer(model, features, params, training=False)
    with device.scope(params):
        terms = model.losses(features, labels, outputs, params)
    loss_reduction.check(terms, has_static_batch=False)
    weights = features[EXAMPLE_WEIGHT]
    scales = {name: term.scale for name, term in terms.items()}
    to_host = {
        "labels": labels,
        "outputs": model.eval_outputs(features, labels, outputs, params),
        "losses": {name: term.values for name, term in terms.items()},
        "loss_weights": {
            name: term.weights for name, term in terms.items() if term.weights is not None
        },
        "weights": weights,
    }

    def metric_fn(*tensors):
        received = tf.nest.pack_sequence_as(to_host, tensors)
        loss_weights = received["loss_weights"]
        losses = {
            name: Loss(values, loss_weights.get(name), scales[name])
            for name, values in received["losses"].items()
        }
        return metrics.streaming(
            model,
            received["labels"],
            received["outputs"],
            losses,
            received["weights"],
            params,
        )

    loss = metrics.mean_loss(terms, weights)

    @functools.cache
    def predictions():
        decoded = outputs
        if model.decode is not None:
            with tf.compat.v1.variable_scope(tf.compat.v1.get_variable_scope(), reuse=True):
                decoded = decode(model, features, params)
        return _predictions(model, features, decoded, params)

    hooks = [
        reports.examples_hook(settings, features, labels, predictions),
        host_metrics.update_hook(settings, features, predictions),
    ]
    if settings.checkpoint:
        verify.check_variables(settings.checkpoint, params, training=False)
    return EvalGraph(loss, metric_fn, tf.nest.flatten(to_host), [*filter(None, hooks)])


def check_top_k(settings: RunSettings) -> None:
    """Checks before a training that its export can return the classes of `--export_top_k`.

    Raises:
      UsageError: see `signatures.check_top_k`.
      ModelError: the model does not return `{name: [batch, ...]}`.
    """
    if not (settings.export.dir and settings.export.top_k):
        return
    model, params = settings.model, settings.params
    with tf.Graph().as_default():
        tf.compat.v1.train.create_global_step()
        receiver = signatures.serving_input_receiver_fn(settings.pipeline)()
        names = settings.pipeline.features
        features = nest({name: receiver.features[name] for name in names})
        outputs = decode(model, features, params, is_portable=True)
        predictions = _predictions(model, features, outputs, params)
        signatures.check_top_k(predictions, settings.pipeline, settings.export.top_k)


def _predictions(model, features, outputs, params):
    """Returns `model.predictions(features, outputs, params)`.

    Raises:
      ModelError: it is not `{name: [batch, ...]}`.
    """
    found = model.predictions(features, outputs, params)
    if not isinstance(found, dict) or not found:
        raise ModelError(
            f"predictions: returned {found!r:.60}, not a dict of a tensor [batch, ...] for each "
            "name"
        )
    shapes = [tensor.shape for tensor in tf.nest.flatten(features)]
    sizes = {None, *(shape.as_list()[0] for shape in shapes if shape.rank)}
    for name, tensor in found.items():
        if not tf.is_tensor(tensor):
            raise ModelError(
                f"predictions: '{name}' is a {type(tensor).__name__}, not a tensor [batch, ...]"
            )
        shape = tensor.shape
        if shape.rank == 0 or (shape.rank and shape.as_list()[0] not in sizes):
            raise ModelError(
                f"predictions: '{name}' has the shape {shape}, not [batch, ...]. Repeat "
                "for each example what all examples share (tf.tile), or leave it out"
            )
    return found


def predict(settings: RunSettings, features, params) -> tuple[dict[str, Any], dict[str, Any]]:
    """Builds the graph of a prediction or of a SavedModel.

    Returns:
      The predictions, `{name: [batch, ...]}`, and the export_outputs of the spec.

    Raises:
      ModelError: the model returns other predictions.
    """
    model = settings.model

    def predict_fn(features, model=model):
        outputs = decode(model, features, params, is_portable=True)
        return _predictions(model, features, outputs, params)

    predictions = predict_fn(nest(features))  # the inputs of a SavedModel are flat
    others = {
        name: functools.partial(predict_fn, model=model.predicting(name))
        for name in model.other_predictions
    }
    export_outputs = signatures.export_outputs(
        flatten(features), predictions, predict_fn, settings.pipeline, settings.export.top_k, others
    )
    if settings.checkpoint:
        verify.check_variables(settings.checkpoint, params, training=False)
    return predictions, export_outputs
