"""tf.contrib.losses."""

from __future__ import annotations

SOURCES = ("tf_slim.losses",)
