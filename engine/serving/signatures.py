"""SavedModel signatures: one copy of the model graph per serving input receiver.

The copies share their variables. Each signature has a separate copy, so that runtimes without ops
for JPEG or text (TensorFlow Lite, ONNX) can load the raw signature.
"""

from __future__ import annotations

import re
import types
from collections.abc import Mapping

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

from common.errors import UsageError
from input_fns.core import serving
from input_fns.dataset_info import flatten

_NO_OTHERS: Mapping = types.MappingProxyType({})
_CONVOLUTIONS = ("Conv2D", "DepthwiseConv2dNative", "Conv2DBackpropInput", "Conv3D")


class _Predict(tf.estimator.export.PredictOutput):
    """A Predict signature with some of the receiver tensors as inputs, not all of them."""

    def __init__(self, inputs, outputs):
        super().__init__(outputs)
        self._inputs = inputs

    def as_signature_def(self, receiver_tensors):
        inputs = {name: receiver_tensors[name] for name in self._inputs}
        return super().as_signature_def(inputs)


class _Classify(tf.estimator.export.ClassificationOutput):
    """A Classify signature, whose only input is serialized tf.train.Examples."""

    def as_signature_def(self, receiver_tensors):
        return super().as_signature_def({"inputs": receiver_tensors[serving.EXAMPLES]})


def serving_input_receiver_fn(pipeline):
    """Returns a serving_input_receiver_fn with the inputs of all receivers of a pipeline.

    Its features are the placeholders themselves; `export_outputs` preprocesses them. The assets of
    the pipeline are added to the SavedModel.
    """

    def receiver_fn():
        for path in pipeline.assets:
            tf.compat.v1.add_to_collection(
                tf.compat.v1.GraphKeys.ASSET_FILEPATHS, tf.constant(path)
            )
        receivers = pipeline.receivers().values()
        specs = {name: spec for receiver in receivers for name, spec in receiver.inputs.items()}
        with tf.name_scope("inputs"):  # a variable may have the name of a feature
            placeholders = {
                name: tf.compat.v1.placeholder(
                    spec.dtype, spec.shape, re.sub(r"[^A-Za-z0-9_./-]", "_", name)
                )
                for name, spec in specs.items()
            }
        # Placeholders of a SavedModel accept any shape: check it.
        features = {
            name: tf.ensure_shape(tensor, tensor.shape) for name, tensor in placeholders.items()
        }
        raw = pipeline.receivers()[serving.RAW]
        features.update(serving.checked({name: features[name] for name in raw.inputs}, raw.limits))
        return tf.estimator.export.ServingInputReceiver(features, placeholders)

    return receiver_fn


def export_outputs(features, predictions, predict, pipeline, top_k: int, others=_NO_OTHERS):
    """Returns the signatures of all receivers whose inputs are in `features`.

    In an export these are all receivers; in `Estimator.predict` only the raw one, which adds
    nothing to the graph.

    Args:
      features: features of the model_fn: the inputs of the model and, in an export, of the other
        receivers.
      predictions: predictions for `features`, `{name: [batch, ...]}`.
      predict: function from features to predictions.
      pipeline: the input pipeline.
      top_k: see `serving.class_outputs`.
      others: `{name: function from features to predictions}` of `Model.other_predictions`.

    Returns:
      `{signature: tf.estimator.export.ExportOutput}`: a Predict signature for each receiver and,
      for a classifier, a Classify signature for tf.train.Examples. In a TPU graph, which cannot
      hold strings, only the raw signature, with the predictions unchanged.

    Raises:
      UsageError: see `check_top_k`.
    """
    check_top_k(predictions, pipeline, top_k)
    if control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
        return {serving.RAW: tf.estimator.export.PredictOutput(predictions)}
    receivers = pipeline.receivers(top_k)
    _refuse_empty_batch({name: features[name] for name in receivers[serving.RAW].inputs})
    signatures = {}
    for name, receiver in receivers.items():
        if not receiver.inputs.keys() <= features.keys():
            continue
        inputs = {key: features[key] for key in receiver.inputs}
        if name == serving.RAW:
            own_features, own_predictions = features, predictions
        elif receiver.predictions and not (
            receiver.predictions in others and all(map(_request, inputs.values()))
        ):
            continue
        else:
            with tf.compat.v1.variable_scope(tf.compat.v1.get_variable_scope(), reuse=True):
                own_features = serving.checked(receiver.features(inputs), receiver.limits)
                if receiver.predictions:
                    own_predictions = others[receiver.predictions](own_features)
                else:
                    own_predictions = _predict_with_padding(
                        predict, own_features, pipeline.features
                    )
        outputs = receiver.outputs(own_predictions, own_features)
        signatures[name] = _Predict(list(receiver.inputs), outputs)
        if name == serving.TF_EXAMPLE:
            class_names = pipeline.data.all_class_names
            if serving.has_class_probabilities(outputs, class_names):
                signatures[serving.CLASSIFY] = _classify(outputs, class_names)
    return signatures


def check_top_k(predictions, pipeline, top_k: int) -> None:
    """Checks that the signatures can return the most probable classes, or items of a user.

    Args:
      predictions: predictions of the model, `{name: [batch, ...]}`.
      pipeline: the input pipeline.
      top_k: see `serving.class_outputs`.

    Raises:
      UsageError: `top_k` is set, but the model predicts no probability of each class.
    """
    if not top_k:
        return
    class_names, form = pipeline.data.all_class_names, ""
    if class_names:
        is_ranked = serving.has_class_probabilities(predictions, class_names)
        form = f" of all classes, [batch, {len(class_names)}]"
    else:  # items of a user
        is_ranked = bool({"probabilities", "scores"} & predictions.keys())
    if not is_ranked:
        raise UsageError(
            f"--export_top_k={top_k} needs a model that predicts 'probabilities'{form}. Remove it"
        )


def _refuse_empty_batch(features):
    """Makes the raw signature of a network with convolutions refuse an empty batch by one line.

    With oneDNN the convolution of an empty batch has the shape of its input, not of its output, so
    that a later layer would fail with a message about shapes.

    Args:
      features: of the raw signature, from `serving_input_receiver_fn`; those of an Estimator's
        prediction are left alone.
    """
    graph = tf.compat.v1.get_default_graph()
    if not any(op.type in _CONVOLUTIONS for op in graph.get_operations()):
        return
    for name, tensor in features.items():
        op = _request(tensor)
        if op is None:
            continue
        problem = f"{name}: an empty batch. Send at least one example, or use another signature"
        batch_size = tf.shape(op.inputs[0])[0]
        # The network exists already.
        # A group uses the assertion; TensorFlow prints an error for one that only controls.
        op._add_control_input(tf.group(tf.debugging.Assert(batch_size > 0, [problem])))


def _request(tensor):
    """Returns the EnsureShape op of a feature of `serving_input_receiver_fn`; None of others."""
    op = tensor.op
    while op.type == "Identity":
        op = op.inputs[0].op
    is_request = op.type == "EnsureShape" and op.inputs[0].op.type == "Placeholder"
    return op if is_request else None


def _predict_with_padding(predict, features, names):
    """Returns predictions for features `[batch, ...]`; pads an empty batch to one example.

    A feature with a static first dimension, such as the items of a retrieval, is of all examples.
    The batch size is that of the features of the model, `names`: a receiver may add others.

    With oneDNN the convolution of an empty batch has the shape of its input, not of its output. The
    raw signature is not padded: dynamic shapes prevent optimizations of other runtimes.
    """

    def has_batch(tensor):
        return tensor.shape.as_list()[0] is None

    flat = flatten(features)
    batch_size = tf.shape(next(flat[n] for n in names if n in flat and has_batch(flat[n])))[0]
    missing = tf.cast(tf.equal(batch_size, 0), tf.int32)

    def pad(tensor):
        if not has_batch(tensor):
            return tensor
        padding = [[0, missing]] + [[0, 0]] * (tensor.shape.rank - 1)
        return tf.pad(tensor, padding)

    predictions = predict(tf.nest.map_structure(pad, features))
    return tf.nest.map_structure(lambda tensor: tensor[:batch_size], predictions)


def _classify(outputs, class_names):
    """Returns the Classify signature: all classes in their order, or the top_k classes."""
    if "top_classes" in outputs:
        return _Classify(scores=outputs["top_probabilities"], classes=outputs["top_class_names"])
    scores = outputs["probabilities"]
    names = tf.tile([tf.constant(class_names)], [tf.shape(scores)[0], 1])
    return _Classify(scores=scores, classes=names)
