"""Files that are whole or not there, on local disk and gs://."""

from __future__ import annotations

import contextlib
import os

import tensorflow as tf

from training.program import UsageError


@contextlib.contextmanager
def atomic_write(path: str, mode: str = "w"):
    """Yields a file that takes the name `path` when the `with` ends without an error."""
    partial = f"{path}.partial"
    tf.io.gfile.makedirs(os.path.dirname(path) or ".")
    try:
        with tf.io.gfile.GFile(partial, mode) as file:
            yield file
    except BaseException:
        if tf.io.gfile.exists(partial):
            tf.io.gfile.remove(partial)
        raise
    tf.io.gfile.rename(partial, path, overwrite=True)


def write_checkpoint(path: str, values) -> None:
    """Writes `{name of a variable: array}` as a checkpoint; its index, last, makes it one."""
    tf.io.gfile.makedirs(os.path.dirname(path) or ".")
    names = sorted(values)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        save = tf.raw_ops.SaveV2(
            prefix=path,
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=[tf.compat.v1.placeholder(values[name].dtype) for name in names],
        )
        session.run(save, {t: values[name] for t, name in zip(save.inputs[3:], names)})


def require_writable(flag: str, directory: str) -> None:
    """Checks that `directory` can be written, or made, and leaves nothing behind.

    Raises:
      UsageError: it cannot.
    """
    existing = directory
    # On gs:// there are no folders to be made, and what is above a bucket is nothing.
    while "://" not in directory and not tf.io.gfile.exists(existing or "."):
        existing = os.path.dirname(existing.rstrip("/"))
    marker = os.path.join(existing, f".writable-{os.getpid()}")
    try:
        with tf.io.gfile.GFile(marker, "w") as file:
            file.write("")
        tf.io.gfile.remove(marker)
    except tf.errors.OpError as error:
        raise UsageError(f"--{flag}={directory} cannot be written: {error.message}") from error
