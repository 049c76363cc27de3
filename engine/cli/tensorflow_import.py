"""Imports TensorFlow and Estimator in about 0.8 of the time of `import tensorflow`."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import sys

_API_CLIENT, _OLD_CREDENTIALS = "googleapiclient", "oauth2client"


def import_tensorflow() -> None:
    """Imports TensorFlow, Estimator and Keras, on which Estimator depends.

    The collector would search a growing number of modules for garbage again and again. It is on
    again after the import, which it then ignores.
    """
    with _without_unusable_api_client(), _without_collection():
        import tensorflow as tf

        # Attributes that TensorFlow imports on first use.
        _ = tf.estimator.Estimator, tf.keras.layers


@contextlib.contextmanager
def _without_collection():
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def _without_unusable_api_client():
    """Hides Google's API client if oauth2client is missing.

    TensorFlow imports both or uses neither (`tensorflow/python/tpu/client/client.py`).
    tpu/connect/cloud_api.py imports the client when it needs it.
    """
    hides = _API_CLIENT not in sys.modules and importlib.util.find_spec(_OLD_CREDENTIALS) is None
    if hides:
        sys.modules[_API_CLIENT] = None  # an import raises ImportError
    try:
        yield
    finally:
        if hides:
            del sys.modules[_API_CLIENT]
