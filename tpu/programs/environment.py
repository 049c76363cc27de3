"""Checks of Python, TensorFlow and NumPy before TensorFlow is imported."""

from __future__ import annotations

import importlib.metadata
import sys
import tempfile

_PYTHONS = ((3, 9), (3, 11))
_TENSORFLOW = "2.15."
# Names of the distributions that contain TensorFlow.
_WHEELS = ("tensorflow", "tensorflow-cpu", "tensorflow-tpu", "tf-nightly")


def find_problem() -> str | None:
    """Returns why programs cannot run here, and what to do; None if they can."""
    python = ".".join(map(str, sys.version_info[:3]))
    if not _PYTHONS[0] <= sys.version_info[:2] <= _PYTHONS[1]:
        return f"Python {python} is not supported: TensorFlow 2.15 runs on 3.9, 3.10 and 3.11"
    tensorflow = [version for version in map(_version, _WHEELS) if version]
    if not tensorflow:
        return f"TensorFlow is not installed in {sys.prefix}. Run pip install tensorflow==2.15.1"
    if not tensorflow[0].startswith(_TENSORFLOW):
        return f"TensorFlow {tensorflow[0]} is not supported: 2.15 is the last with Estimator"
    numpy = _version("numpy")
    if numpy and not numpy.startswith(("0.", "1.")):
        return f"NumPy {numpy} is not supported by TensorFlow 2.15. Run pip install 'numpy<2'"
    try:
        tempfile.gettempdir()
    except FileNotFoundError as error:
        return f"{error.strerror}. Set TMPDIR to a folder that can be written"
    return None


def _version(distribution):
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
