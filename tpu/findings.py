"""Findings of the TPU checks, and the source lines they refer to."""

from __future__ import annotations

import dataclasses
import os

import tensorflow as tf

ERROR, WARNING, NOTE = "error", "warning", "note"
_THIS_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_LIBRARY_FOLDERS = ("site-packages", "dist-packages")


@dataclasses.dataclass(frozen=True)
class Finding:
    """One finding.

    Attributes:
      level: ERROR (fails or gives wrong results), WARNING (may fail, or is slow) or NOTE.
      code: stable name of the rule, listed in docs/check.md.
      message: what is wrong, and what to do.
      where: "file:line" in the user's code; "" if unknown.
      mode: "train", "eval" or "predict"; "" for all.
    """

    level: str
    code: str
    message: str
    where: str = ""
    mode: str = ""


def user_line(op: tf.Operation) -> str:
    """Returns the innermost "file:line" of user code that created an operation; "" if none.

    For a gradient, the line that created the forward operation.
    """
    op = getattr(op, "_original_op", None) or op
    return user_line_in(op.traceback or [])


def user_line_in(frames) -> str:
    """Returns the innermost "file:line" of user code in a stack (outermost frame first)."""
    for frame in reversed(frames):
        path = os.path.abspath(frame.filename)
        is_internal = path.startswith(_THIS_PACKAGE) or frame.filename.startswith("<")
        if not is_internal and not any(folder in path for folder in _LIBRARY_FOLDERS):
            relative = os.path.relpath(path)
            return f"{path if relative.startswith('..') else relative}:{frame.lineno}"
    return ""
