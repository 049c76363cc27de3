"""The mean of the newest checkpoints, which is often better than any of them."""

from __future__ import annotations

import os

import numpy as np
import tensorflow as tf

from common.errors import UsageError
from training import checkpoint_writer

_FOLDER = "average_{}"


def of_newest(model_dir: str, count: str) -> str:
    """Writes the mean of the newest `count` checkpoints; returns its path.

    Variables of whole numbers, the global step among them, are those of the newest.

    Args:
      model_dir: folder of checkpoints; the mean lies in `model_dir/average_N`.
      count: as it was given, a number above 1.

    Raises:
      UsageError: it is none, or there are fewer checkpoints.
    """
    if not count.isdigit() or int(count) < 2:
        raise UsageError(f"--checkpoint=average:{count} must be average:N, such as average:5")
    # Not those of its file "checkpoint": where all are kept, that lists the newest alone.
    found = tf.io.gfile.glob(os.path.join(model_dir, "model.ckpt-*.index"))
    paths = sorted((path[: -len(".index")] for path in found), key=_step_in_name)[-int(count) :]
    if len(paths) < int(count):
        raise UsageError(
            f"--checkpoint=average:{count}: {model_dir} has {len(paths)} checkpoint(s) "
            "(--keep_checkpoint_max in training says how many are kept)"
        )
    readers = [tf.train.load_checkpoint(path) for path in paths]
    names = sorted(readers[-1].get_variable_to_shape_map())
    values = {name: _mean([reader.get_tensor(name) for reader in readers]) for name in names}
    path = os.path.join(model_dir, _FOLDER.format(count), os.path.basename(paths[-1]))
    checkpoint_writer.write(path, values)
    print(f"average of {len(paths)} checkpoints, {paths[0]} to {paths[-1]}: {path}")
    return path


def _step_in_name(path):
    return int(path.rpartition("-")[2])


def _mean(values):
    if not np.issubdtype(values[-1].dtype, np.floating):
        return values[-1]
    return np.mean(values, axis=0, dtype=np.float64).astype(values[-1].dtype)
