"""The mean of the newest checkpoints, which is often better than any of them."""

from __future__ import annotations

import os
import re

import numpy as np
import tensorflow as tf

from common.errors import UsageError
from engine.checkpoints import recovery, writer

_FOLDER = "average_{}"


def of_newest(model_dir: str, count: str) -> str:
    """Writes the mean of the newest `count` checkpoints; returns its path.

    Variables of whole numbers, the global step among them, are those of the newest.

    Args:
      model_dir: folder of checkpoints; the mean lies in `model_dir/average_N`.
      count: as it was given, a number above 1.

    Raises:
      UsageError: it is none, there are fewer checkpoints that can be used, or they are of
        different models.
    """
    if not re.fullmatch("[0-9]{1,6}", count) or int(count) < 2:
        raise UsageError(f"--checkpoint=average:{count} must be average:N, such as average:5")
    paths, broken = _newest_readable(model_dir, int(count))
    if len(paths) < int(count):
        more = f", and {len(broken)} that cannot be used: {'; '.join(broken)}" if broken else ""
        raise UsageError(
            f"--checkpoint=average:{count}: {model_dir} has {len(paths)} checkpoint(s){more} "
            "(--keep_checkpoint_max in training says how many are kept)"
        )
    for line in broken:
        print(f"average: skipped {line}", flush=True)
    try:
        values = _means(paths)
    except (ValueError, tf.errors.OpError) as error:
        raise UsageError(
            f"--checkpoint=average:{count}: the checkpoints {paths[0]} to {paths[-1]} are not of "
            f"one model: {error}"
        ) from error
    path = os.path.join(model_dir, _FOLDER.format(int(count)), os.path.basename(paths[-1]))
    writer.write(path, values)
    print(f"average of {len(paths)} checkpoints, {paths[0]} to {paths[-1]}: {path}")
    return path


def _newest_readable(model_dir, count):
    """Returns up to `count` paths, oldest first, and a line for each newer one that is broken."""
    paths, broken = [], []
    # Not those of the file "checkpoint": if all are kept, that lists the newest only.
    for path in reversed(recovery.in_order(model_dir)):
        if len(paths) == count:
            break
        if not os.path.basename(path).startswith("model.ckpt-"):
            continue
        problem = recovery.problem_of(path)
        if problem:
            broken.append(f"{path}: {problem}")
        else:
            paths.append(path)
    return paths[::-1], broken


def _means(paths):
    readers = [tf.train.load_checkpoint(path) for path in paths]
    names = sorted(readers[-1].get_variable_to_shape_map())
    return {name: _mean([reader.get_tensor(name) for reader in readers]) for name in names}


def _mean(values):
    if isinstance(values[-1], bytes) or not np.issubdtype(values[-1].dtype, np.floating):
        return values[-1]
    return np.mean(values, axis=0, dtype=np.float64).astype(values[-1].dtype)
