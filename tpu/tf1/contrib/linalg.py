"""tf.contrib.linalg."""

from __future__ import annotations

SOURCES = ("v1.linalg",)
