"""tf.contrib.signal."""

from __future__ import annotations

SOURCES = ("v1.signal",)
