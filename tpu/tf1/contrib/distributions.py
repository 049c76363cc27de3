"""tf.contrib.distributions: from tensorflow_probability, or the few of tf.compat.v1."""

from __future__ import annotations

SOURCES = (
    "tensorflow_probability.python.distributions",
    "tensorflow_probability",
    "v1.distributions",
)
