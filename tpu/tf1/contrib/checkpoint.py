"""tf.contrib.checkpoint."""

from __future__ import annotations

NAMES = {"tensorflow.python.trackable.data_structures": "List NoDependency"}
