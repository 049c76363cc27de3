"""tf.contrib.hooks."""

from __future__ import annotations

NAMES = {"v1.train": "ProfilerHook"}
