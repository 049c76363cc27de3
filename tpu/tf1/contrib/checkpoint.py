"""tf.contrib.checkpoint."""

from __future__ import annotations

NAMES = {
    "tensorflow.python.trackable.autotrackable": "Checkpointable=AutoTrackable",
    "tensorflow.python.trackable.base": "CheckpointableBase=Trackable",
    "tensorflow.python.trackable.data_structures": "List Mapping NoDependency",
    "v1.train": "CheckpointManager",
}
