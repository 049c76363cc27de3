"""The signatures of a SavedModel: one graph of the model for each way in, one set of variables.

A graph a signature, and not one that can be fed at several places: a runtime that knows no JPEG and
no text then meets neither, whatever it reads.
"""

from __future__ import annotations

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

from common.errors import UsageError
from input_fns import serving


class _Predict(tf.estimator.export.PredictOutput):
    """A Predict signature with inputs of its own, not all that the graph can be fed with."""

    def __init__(self, inputs, outputs):
        super().__init__(outputs)
        self._inputs = inputs

    def as_signature_def(self, receiver_tensors):
        inputs = {name: receiver_tensors[name] for name in self._inputs}
        return super().as_signature_def(inputs)


class _Classify(tf.estimator.export.ClassificationOutput):
    """A Classify signature, whose one input is of serialised tf.train.Examples."""

    def as_signature_def(self, receiver_tensors):
        return super().as_signature_def({"inputs": receiver_tensors[serving.EXAMPLES]})


def serving_input_receiver_fn(pipeline):
    """Returns the serving_input_receiver_fn of all receivers of a pipeline.

    Its features are what can be fed, as `export_outputs` wants them. The pipeline's assets go into
    the SavedModel's.
    """

    def receiver_fn():
        for path in pipeline.assets:
            tf.compat.v1.add_to_collection(
                tf.compat.v1.GraphKeys.ASSET_FILEPATHS, tf.constant(path)
            )
        with tf.name_scope("inputs"):  # a variable may have the name of a feature
            fed = {
                name: tf.compat.v1.placeholder(spec.dtype, spec.shape, name)
                for receiver in pipeline.receivers().values()
                for name, spec in receiver.inputs.items()
            }
        # A server feeds a placeholder with any shape.
        features = {name: tf.ensure_shape(tensor, tensor.shape) for name, tensor in fed.items()}
        return tf.estimator.export.ServingInputReceiver(features, fed)

    return receiver_fn


def export_outputs(features, predictions, predict, pipeline, top_k: int):
    """Returns the signatures of the receivers that `features` feed.

    In an export those are all, in a prediction only the raw one, which costs nothing.

    Args:
      features: of the model_fn; what the model itself sees, and in an export what else is fed.
      predictions: of `features`.
      predict: the same as a function, from features to predictions.
      pipeline: whose receivers they are.
      top_k: see `serving.class_outputs`.

    Returns:
      `{signature: tf.estimator.export.ExportOutput}`: a Predict signature for each receiver and, of
      classes, a Classify signature for records. In the program of a TPU, which computes no text,
      the raw one alone, of the predictions as they are.

    Raises:
      UsageError: the model predicts no classes, of which there could be a `top_k`.
    """
    if top_k and "probabilities" not in predictions:
        raise UsageError(f"--export_top_k={top_k} is of classes, and the model predicts none")
    if control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
        return {serving.RAW: tf.estimator.export.PredictOutput(predictions)}
    found = {}
    for name, receiver in pipeline.receivers(top_k).items():
        if not receiver.inputs.keys() <= features.keys():
            continue
        if name != serving.RAW:
            with tf.compat.v1.variable_scope(tf.compat.v1.get_variable_scope(), reuse=True):
                fed = {key: features[key] for key in receiver.inputs}
                predictions = _with_one_at_least(predict, receiver.features(fed))
        outputs = receiver.outputs(predictions)
        found[name] = _Predict(list(receiver.inputs), outputs)
        if name == serving.TF_EXAMPLE and "probabilities" in outputs:
            found[serving.CLASSIFY] = _classify(outputs, pipeline.data.class_names)
    return found


def _with_one_at_least(predict, features):
    """Returns predictions of features `[batch, ...]`, of which there may be none.

    oneDNN answers a convolution of an empty batch in the shape of its input, not of its output. The
    raw signature goes without this: sizes known only in a run keep other runtimes from planning.
    """
    batch_size = tf.shape(tf.nest.flatten(features)[0])[0]
    missing = tf.cast(tf.equal(batch_size, 0), tf.int32)

    def pad(tensor):
        padding = [[0, missing]] + [[0, 0]] * (tensor.shape.rank - 1)
        return tf.pad(tensor, padding)

    predictions = predict(tf.nest.map_structure(pad, features))
    return tf.nest.map_structure(lambda tensor: tensor[:batch_size], predictions)


def _classify(outputs, class_names):
    """Of all classes in their order, or of the likeliest, if they are asked for."""
    if "top_classes" in outputs:
        return _Classify(scores=outputs["top_probabilities"], classes=outputs["top_class_names"])
    scores = outputs["probabilities"]
    names = tf.tile([tf.constant(class_names)], [tf.shape(scores)[0], 1])
    return _Classify(scores=scores, classes=names)
