"""Fine-tunes a SavedModel as the backbone of an image classifier, such as one of TF Hub.

`--model=saved_model --params=path=FOLDER`, a reusable SavedModel of TensorFlow 2
(https://www.tensorflow.org/hub/reusable_saved_models): it is called with images and returns
features, and has variables. Keras writes this format too. Its variables start with its values and
have its names; `logits` is the dense layer that follows.
"""

from __future__ import annotations

import dataclasses
import functools
import re

import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2
from tensorflow.python.util import tf_inspect

from models.layers import traced
from models.model import ModelError, check_fractions
from models.vision import classifier, keras_network

_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


def default_params():
    """Returns the hyperparameters of `inference` and `classification.losses`.

    Images are scaled to 0 to 1 by default, as models of TF Hub expect them.
    """
    params = classifier.default_params()
    del params["precision"]  # that of the SavedModel
    return {**params, "path": "", "dropout": 0.0}


def check_params(params):
    """Raises `ModelError` for a value out of range, or a folder that has no such SavedModel."""
    classifier.check_params(params)
    check_fractions(params, "dropout")
    path = params["path"].rstrip("/")
    if not path:
        raise ModelError("path is empty. Name the folder of a SavedModel: --params=path=FOLDER")
    if tf.io.gfile.exists(f"{path}/tfhub_module.pb"):
        raise ModelError(f"path={path} is a TF1 Hub module. Only SavedModels of TensorFlow 2 train")
    if not tf.io.gfile.exists(f"{path}/saved_model.pb"):
        advice = ". Unpack the archive" if path.endswith((".gz", ".tgz", ".tar", ".zip")) else ""
        raise ModelError(f"path={path} is not a SavedModel: it has no saved_model.pb{advice}")


def inference(features, params, training):
    """Computes class logits of images.

    Args:
      features: `{"image": uint8 or float32 [batch, height, width, channels]}`.
      params: see `default_params`.
      training: True calls the SavedModel as in training, unless `params["trainable"]` matches none
        of its variables.

    Returns:
      `{"logits": [batch, num_classes]}`, and in training "layer_losses", float32 `[batch]`, if the
      SavedModel has regularization losses: their sum, for each example.
    """
    images = classifier.scaled_images(features, {**params, "precision": "float32"})
    backbone = _load(params["path"].rstrip("/"))
    is_tuned = any(
        source.trainable and re.fullmatch(params["trainable"], name)
        for name, source in backbone.sources.items()
    )

    def call(images):
        arguments = {"training": training and is_tuned} if backbone.takes_training else {}
        outputs = backbone.function(images, **arguments)
        if not isinstance(outputs, tf.Tensor) or outputs.shape.rank not in (2, 4):
            raise ModelError(
                f"path={params['path']} must return one output [batch, features] or [batch, "
                f"height, width, features], not {outputs}. Use another SavedModel, or save one "
                "with this output"
            )
        losses = [loss() for loss in backbone.losses] if is_tuned else []
        return {"outputs": outputs, "losses": losses}

    try:
        results = traced.call(call, backbone.sources, images, training)
    except (ValueError, TypeError) as error:
        raise ModelError(
            f"path={params['path']} cannot be called with images {images.shape}: "
            f"{keras_network.first_line(error)}"
        ) from error
    return keras_network.logits_and_losses(results, params, training)


@dataclasses.dataclass(frozen=True)
class _Backbone:
    """A SavedModel, loaded in eager mode.

    Attributes:
      function: `(images[, training]) -> features`.
      takes_training: whether it has the argument `training`.
      sources: `{name: traced.Source}` of its variables.
      losses: functions that return regularization losses.
    """

    function: object
    takes_training: bool
    sources: dict
    losses: list


@functools.lru_cache(maxsize=1)
def _load(path):
    """Loads a SavedModel; the last one is kept for the next graph."""
    with traced.tensorflow_2():
        try:
            loaded = tf.saved_model.load(path)
        except (OSError, ValueError, KeyError, tf.errors.OpError) as error:
            raise ModelError(
                f"path={path} cannot be loaded: {keras_network.first_line(error)}"
            ) from error
        if not callable(loaded):
            raise ModelError(
                f"path={path} has only signatures, so it cannot be trained. Use a reusable "
                "SavedModel of TensorFlow 2, which can be called"
            )
        arguments = tf_inspect.getfullargspec(loaded.__call__)
        prefix = f"{path}/variables/variables"
        trainable = getattr(loaded, "trainable_variables", None)
        trained = None if trainable is None else {id(variable) for variable in trainable}
        sources = {}
        for variable, key in _keys(loaded, prefix):
            name = traced.unused_name(variable.name.partition(":")[0], sources)
            sources[name] = traced.Source(
                variable,
                functools.partial(_restore, prefix, key, variable.dtype, variable.shape),
                variable.trainable if trained is None else id(variable) in trained,
            )
    return _Backbone(
        loaded,
        "training" in arguments.args + arguments.kwonlyargs,
        sources,
        list(getattr(loaded, "regularization_losses", ())),
    )


def _keys(loaded, prefix):
    """Yields (variable, key in the checkpoint of the SavedModel) for each variable."""
    graph = trackable_object_graph_pb2.TrackableObjectGraph()
    graph.ParseFromString(tf.train.load_checkpoint(prefix).get_tensor(_OBJECT_GRAPH))
    view, waiting, seen = tf.train.TrackableView(loaded), [(loaded, 0)], {0}
    while waiting:
        parent, node = waiting.pop(0)
        if isinstance(parent, tf.Variable):
            yield parent, graph.nodes[node].attributes[0].checkpoint_key
        children = view.children(parent)
        for child in graph.nodes[node].children:
            if child.node_id not in seen and child.local_name in children:
                seen.add(child.node_id)
                waiting.append((children[child.local_name], child.node_id))


def _restore(prefix, key, dtype, shape):
    return tf.ensure_shape(
        tf.raw_ops.RestoreV2(
            prefix=prefix, tensor_names=[key], shape_and_slices=[""], dtypes=[dtype]
        )[0],
        shape,
    )


MODEL = keras_network.model("saved_model", default_params, inference, check_params)
