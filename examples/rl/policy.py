"""Loads the SavedModel that a learner exported, for an actor that predicts batches."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

# `{feature: [n, ...]}` to `{output: [n, ...]}`.
Predict = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]

# Batches are padded to a multiple: kernels are prepared again for each batch size.
_MULTIPLE = 32


def load(path: str) -> Predict:
    """Returns the prediction function of a SavedModel."""
    saved_model = tf.saved_model.load(path)
    serve = saved_model.signatures["serving_default"]

    def predict(features):
        size = len(next(iter(features.values())))
        padded = {name: tf.constant(_pad(array)) for name, array in features.items()}
        return {name: value.numpy()[:size] for name, value in serve(**padded).items()}

    predict.saved_model = saved_model  # owns the variables that the signature reads
    return predict


def _pad(array):
    return np.pad(array, [(0, -len(array) % _MULTIPLE)] + [(0, 0)] * (array.ndim - 1))
