"""What a check finds: how bad, what, where, and what to do."""

from __future__ import annotations

import dataclasses
import os

import tensorflow as tf

ERROR, WARNING, NOTE = "error", "warning", "note"
_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_LIBRARIES = ("site-packages", "dist-packages")


@dataclasses.dataclass(frozen=True)
class Finding:
    """One finding.

    Attributes:
      level: ERROR: it will fail or be wrong; WARNING: it may, or is slow; NOTE: good to know.
      code: stable name of the rule.
      message: what is wrong, and what to do.
      where: "file:line" of the user's code, or "".
      mode: train, eval or predict, or "" for all.
    """

    level: str
    code: str
    message: str
    where: str = ""
    mode: str = ""


def where(op: tf.Operation) -> str:
    """Returns "file:line" of the innermost line outside of TensorFlow that made an operation.

    Of a gradient, the line that made what it is the gradient of.
    """
    op = getattr(op, "_original_op", None) or op
    return where_in(op.traceback or [])


def where_in(frames) -> str:
    """Returns the same of a stack, the outermost frame first."""
    for frame in reversed(frames):
        path = os.path.abspath(frame.filename)
        ours = path.startswith(_PACKAGE) or frame.filename.startswith("<")
        if not ours and not any(folder in path for folder in _LIBRARIES):
            return f"{_short(path)}:{frame.lineno}"
    return ""


def _short(path):
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
