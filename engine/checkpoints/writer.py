"""Writes checkpoints without a graph."""

from __future__ import annotations

import os

import numpy as np
import tensorflow as tf


def write(path: str, values) -> None:
    """Writes `{name of a variable: array}` as a checkpoint; creates its folder."""
    tf.io.gfile.makedirs(os.path.dirname(path) or ".")
    values = {name: np.asarray(value) for name, value in values.items()}
    names = sorted(values)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        save = tf.raw_ops.SaveV2(
            prefix=path,
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=[tf.compat.v1.placeholder(_dtype(values[name])) for name in names],
        )
        session.run(save, {t: values[name] for t, name in zip(save.inputs[3:], names)})


def _dtype(value):
    return tf.string if value.dtype.kind in "OSU" else value.dtype
