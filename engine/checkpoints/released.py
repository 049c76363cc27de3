"""Checkpoints of other programs, such as released weights, for evaluation, prediction and export.

They lack a global step, which an Estimator restores.
"""

from __future__ import annotations

import os
import zlib

import numpy as np
import tensorflow as tf

from engine.checkpoints import checkpoint_files, verify, writer

_STEP = tf.compat.v1.GraphKeys.GLOBAL_STEP


def find(which: str) -> str | None:
    """Returns the path of a checkpoint without a global step; None for any other value.

    Args:
      which: value of --checkpoint.
    """
    path = checkpoint_files.to_prefix(which)
    if tf.io.gfile.isdir(path) or not tf.io.gfile.exists(f"{path}.index"):
        return None
    if not verify.has_readable_index(path) or tf.train.load_checkpoint(path).has_tensor(_STEP):
        return None
    return path


def add_step(path: str, model_dir: str) -> str:
    """Writes a copy with the global step 0 to `model_dir`; returns its path.

    Args:
      path: a checkpoint, from `find`.
      model_dir: the copy is in `model_dir/released_<checksum of the path>`.
    """
    reader = tf.train.load_checkpoint(path)
    values = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    folder = f"released_{zlib.crc32(os.path.abspath(path).encode()):08x}"
    written = os.path.join(model_dir, folder, os.path.basename(path))
    writer.write(written, {**values, _STEP: np.int64(0)})
    print(f"{path} has no global step: step 0 in {written}")
    return written
