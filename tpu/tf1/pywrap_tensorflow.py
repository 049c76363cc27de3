"""tensorflow.pywrap_tensorflow: the checkpoint reader, and what 2.15 still has."""

from __future__ import annotations

import tensorflow as tf
from tensorflow.python import pywrap_tensorflow as _pywrap_tensorflow

NewCheckpointReader = tf.compat.v1.train.NewCheckpointReader


def __getattr__(name):
    return getattr(_pywrap_tensorflow, name)
