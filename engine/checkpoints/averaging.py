"""Averages the newest checkpoints (--checkpoint=average:N), often better than each of them."""

from __future__ import annotations

import os
import re

import numpy as np
import tensorflow as tf

from common.errors import UsageError
from common.names import counted
from engine.checkpoints import checkpoint_files, verify, writer

_FOLDER = "average_{}"


def average_newest(model_dir: str, count: str) -> str:
    """Writes the mean of the newest `count` valid checkpoints; returns its path.

    Variables that are not floating-point, such as the global step, are copied from the newest.

    Args:
      model_dir: folder of the checkpoints; the mean is written to `model_dir/average_N`.
      count: N as text, an integer above 1.

    Raises:
      UsageError: `count` is invalid, there are fewer valid checkpoints, or their variables differ.
    """
    if not re.fullmatch("[0-9]{1,6}", count) or int(count) < 2:
        raise UsageError(f"--checkpoint=average:{count} must be average:N, such as average:5")
    paths, broken = _find_newest_valid(model_dir, int(count))
    if len(paths) < int(count):
        more = f", and {len(broken)} that cannot be used: {'; '.join(broken)}" if broken else ""
        raise UsageError(
            f"--checkpoint=average:{count}: {model_dir} has {counted(len(paths), 'checkpoint')}"
            f"{more}. Use a smaller N, or train with a larger --keep_checkpoint_max"
        )
    for line in broken:
        print(f"average: skipped {line}", flush=True)
    try:
        values = _means(paths)
    except (ValueError, tf.errors.OpError) as error:
        raise UsageError(
            f"--checkpoint=average:{count}: the checkpoints {paths[0]} to {paths[-1]} have "
            f"different variables: {error}"
        ) from error
    path = os.path.join(model_dir, _FOLDER.format(int(count)), os.path.basename(paths[-1]))
    writer.write(path, values)
    print(f"average of {len(paths)} checkpoints, {paths[0]} to {paths[-1]}: {path}")
    return path


def _find_newest_valid(model_dir, count):
    """Returns up to `count` paths, oldest first, and a message for each newer invalid one."""
    paths, broken = [], []
    # Not from the file `checkpoint`: with --keep_checkpoint_max=0 it lists the newest only.
    for path in reversed(checkpoint_files.list_paths(model_dir)):
        if len(paths) == count:
            break
        if not os.path.basename(path).startswith("model.ckpt-"):
            continue
        problem = verify.find_problem(path)
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
