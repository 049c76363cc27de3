"""Findings of the TPU checks, and the source lines they refer to."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import os
import sysconfig
import traceback

import tensorflow as tf

ERROR, WARNING, NOTE = "error", "warning", "note"
_THIS_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
# Those that raise NotImplementedError for what the cores do not support.
_CORES = tuple(os.path.join(_THIS_PACKAGE, name, "") for name in ("emulator", "graph", "pjrt"))
# Packages that call model_fn or that model_fn calls; a program may be installed beside them.
_LIBRARIES = (
    *("tensorflow", "tensorflow_estimator", "keras", "tf_keras", "tf_slim", "tensorflow_hub"),
    *("tensorflow_probability", "tensorflow_addons", "tensorflow_datasets", "tensorflow_text"),
    *("tensorflow_gan", "tensorflow_model_optimization", "tensorflow_ranking", "sonnet", "gin"),
    *("tensorboard", "absl", "numpy", "six", "wrapt", "decorator"),
)
_SITE_FOLDERS = ("site-packages", "dist-packages")
_GENERATED = "__autograph_generated_file"


@dataclasses.dataclass(frozen=True)
class Finding:
    """One finding.

    Attributes:
      level: ERROR (fails or gives wrong results), WARNING (may fail, or is slow) or NOTE.
      code: stable name of the rule, listed in docs/check.md.
      message: what is wrong, and what to do.
      where: "file:line" in the user's code; "" if unknown.
      mode: "train", "eval", "predict" or "export"; "" for all.
      waste: bytes of padding, infeed or memory that it costs; 0 if unknown.
    """

    level: str
    code: str
    message: str
    where: str = ""
    mode: str = ""
    waste: int = 0


def user_line(op: tf.Operation) -> str:
    """Returns the innermost "file:line" of user code that created an operation; "" if none.

    For a gradient, the line that created the forward operation.
    """
    op = getattr(op, "_original_op", None) or op
    return user_line_in(op.traceback or [])


def user_line_in(frames) -> str:
    """Returns the innermost "file:line" of user code in a stack (outermost frame first)."""
    for frame in reversed(frames):
        path = _user_path(frame.filename)
        if path:
            return f"{path}:{frame.lineno}"
    return ""


def is_unsupported(error: BaseException) -> bool:
    """Returns True for a NotImplementedError of the cores, not of a program that they run."""
    frames = traceback.extract_tb(error.__traceback__)
    return isinstance(error, NotImplementedError) and frames[-1].filename.startswith(_CORES)


def user_frames(frames) -> list:
    """Returns the frames of a stack that are user code."""
    return [frame for frame in frames if _user_path(frame.filename)]


def path_of(filename: str) -> str:
    """Returns the path of a source file, relative if it is user code below the current folder."""
    return _user_path(filename) or filename


@functools.cache
def _user_path(filename):
    """Returns the path of user code, relative if below the current folder; "" for a library."""
    path = os.path.abspath(filename)
    if filename.startswith("<") or os.path.basename(path).startswith(_GENERATED):
        return ""
    if any(path.startswith(folder) for folder in (_THIS_PACKAGE, *_library_folders())):
        return ""
    if not _is_installed(path) and any(path.startswith(folder) for folder in _standard_library()):
        return ""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def _is_installed(path):
    return any(f"{os.sep}{folder}{os.sep}" in path for folder in _SITE_FOLDERS)


@functools.cache
def _library_folders():
    folders = []
    for name in _LIBRARIES:
        spec = importlib.util.find_spec(name)
        if spec is not None:
            locations = spec.submodule_search_locations
            # A folder with its separator, or the file of a module.
            paths = [os.path.abspath(path) + os.sep for path in locations or ()]
            folders += paths or [os.path.abspath(spec.origin)]
    # A checkout of a library, such as tensorflow_gan, is user code: its examples are programs.
    site = os.path.dirname(os.path.dirname(os.path.abspath(tf.__file__))) + os.sep
    return tuple(path for path in folders if _is_installed(path) or path.startswith(site))


@functools.cache
def _standard_library():
    paths = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
    return tuple({os.path.abspath(path) + os.sep for path in paths})
