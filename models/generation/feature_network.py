"""A classifier on the host whose features judge generated images.

    network = load("runs/classifier/export/1795428843")
    features, classes = network(images)

`load` takes the folder of a SavedModel, or `keras:NETWORK:WEIGHTS`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from tensorflow.python.saved_model import loader_impl

from models.layers import traced
from models.model import ModelError
from models.vision import keras_network

_KERAS = "keras:"
_SIGNATURE, _CLASSES, _PROBABILITIES = "serving_default", "classes", "probabilities"
_BATCH = 256  # images at a time


def check(path: str) -> None:
    """Raises `ModelError` if `path` is not a network, without loading it."""
    if path.startswith(_KERAS):
        network, _, weights = path[len(_KERAS) :].partition(":")
        keras_network.find(network)
        if not weights or not tf.io.gfile.exists(weights):
            raise ModelError(
                f"feature_network={path}: there are no weights '{weights}'. Write "
                "keras:tf.keras.applications.NETWORK:FILE.h5, with weights without the top"
            )
    elif not tf.io.gfile.exists(f"{path}/saved_model.pb"):
        raise ModelError(
            f"feature_network={path} is not a SavedModel: it has no saved_model.pb. Export a "
            "classifier: run_cpu.py --mode=export --export_dir=..., and name the folder in it"
        )


def num_classes(path: str) -> int:
    """Returns the number of classes of a network; 0 for one that returns features only."""
    if path.startswith(_KERAS):
        return 0
    found = loader_impl.parse_saved_model(path)
    signatures = [graph.signature_def.get(_SIGNATURE) for graph in found.meta_graphs]
    outputs = [signature.outputs for signature in signatures if signature is not None]
    shapes = [o[_PROBABILITIES].tensor_shape for o in outputs if _PROBABILITIES in o]
    return shapes[0].dim[-1].size if shapes else 0


@functools.lru_cache(maxsize=1)  # an evaluation after the other uses the same network
def load(path: str) -> Callable:
    """Returns a function from images to features and classes.

    Args:
      path: the folder of a SavedModel with a signature of an image classifier, whose features are
        the inputs of its last dense layer; or of a reusable SavedModel of TensorFlow 2, which is
        called with images in [0, 1] and returns features; or `keras:NETWORK:WEIGHTS`, a network of
        `models.vision.keras_network` and a file of its weights.

    Returns:
      Function of uint8 `[n, height, width, channels]` that returns features, float32 `[n, size]`,
      and classes, ints `[n]`, or None from a network without classes.

    Raises:
      ModelError: the file is no such network.
    """
    check(path)
    if path.startswith(_KERAS):
        call, shape, has_classes = _keras(path), None, False
    else:
        call, shape, has_classes = _saved_model(path)

    def features_and_classes(images):
        parts = [call(_fitted(part, shape)) for part in _batches(images)]
        features = np.concatenate([_pooled(found) for found, _ in parts])
        return features, np.concatenate([c for _, c in parts]) if has_classes else None

    return features_and_classes


def _batches(images):
    return (images[begin : begin + _BATCH] for begin in range(0, len(images), _BATCH))


def _pooled(features):
    """Returns `[n, size]`: the mean over rows and columns of feature maps."""
    return features.mean(axis=(1, 2)) if features.ndim == 4 else features


def _fitted(images, shape):
    """Returns images with the size and the channels of a network; `shape` of None: RGB."""
    height, width, channels = shape or (*images.shape[1:3], 3)
    if images.shape[-1] == 1 and channels == 3:
        images = np.repeat(images, 3, axis=-1)
    elif images.shape[-1] == 3 and channels == 1:
        images = np.round(images.mean(axis=-1, keepdims=True)).astype(np.uint8)
    if images.shape[1:3] != (height, width):
        with traced.tensorflow_2():
            resized = tf.image.resize(images, [height, width]).numpy()
        images = np.round(resized).astype(np.uint8)
    return images


def _saved_model(path):
    """Returns `(call, image shape, has classes)` of a SavedModel."""
    graph = tf.Graph()
    session = tf.compat.v1.Session(graph=graph)
    with graph.as_default():
        try:
            loaded = tf.compat.v1.saved_model.load(session, ["serve"], path)
        except (OSError, RuntimeError, tf.errors.OpError) as error:
            first_line = keras_network.first_line(error)
            raise ModelError(f"feature_network={path} cannot be loaded: {first_line}") from error
    signature = loaded.signature_def.get(_SIGNATURE)
    if signature is None or _PROBABILITIES not in signature.outputs:
        session.close()
        return _reusable(path), None, False
    (image,) = signature.inputs.values()
    shape = tuple(size.size for size in image.tensor_shape.dim[1:])
    probabilities = graph.get_tensor_by_name(signature.outputs[_PROBABILITIES].name)
    features = _last_features(probabilities, path)
    classes = signature.outputs.get(_CLASSES)
    fetches = [features.name, classes.name if classes else probabilities.name]

    def call(images):
        found, classes_or_scores = session.run(fetches, {image.name: images})
        return found, classes_or_scores if classes else classes_or_scores.argmax(axis=1)

    return call, shape, True


def _last_features(probabilities, path):
    """Returns the input of the last dense layer before the probabilities of a graph."""
    seen, waiting = set(), [probabilities.op]
    while waiting:
        op = waiting.pop(0)
        if op.type == "MatMul":
            return op.inputs[0]
        waiting += [tensor.op for tensor in op.inputs if tensor.op not in seen]
        seen.update(waiting)
    raise ModelError(f"feature_network={path} has no dense layer before its probabilities")


def _reusable(path):
    """Returns a function from images to the features of a SavedModel that can be called."""
    with traced.tensorflow_2():
        loaded = tf.saved_model.load(path)
    if not callable(loaded):
        raise ModelError(
            f"feature_network={path} is neither a classifier, whose signature {_SIGNATURE} returns "
            f"{_PROBABILITIES}, nor a SavedModel that can be called with images"
        )

    def call(images):
        with traced.tensorflow_2():
            return loaded(tf.constant(images, tf.float32) / 255).numpy(), None

    return call


def _keras(path):
    """Returns a function from images to the features of a Keras network with weights of a file."""
    network, _, weights = path[len(_KERAS) :].partition(":")
    built = {}  # for a size of images

    def call(images):
        shape = images.shape[1:]
        if shape not in built:
            params = {**keras_network.find(network).default_params(), "precision": "float32"}
            built[shape] = keras_network.build(network, shape, params)
            with traced.tensorflow_2():
                try:
                    built[shape].model.load_weights(weights)
                except (OSError, ValueError) as error:
                    raise ModelError(
                        f"feature_network={path}: {keras_network.first_line(error)}"
                    ) from error
        found = built[shape]
        with traced.tensorflow_2():
            inputs = found.preprocess(tf.constant(images, tf.float32))
            return found.model(inputs, training=False).numpy(), None

    return call
