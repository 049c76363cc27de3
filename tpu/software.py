"""Checks the installed versions of Python, TensorFlow and NumPy, without importing TensorFlow."""

from __future__ import annotations

import importlib.metadata
import sys

_PYTHONS = ((3, 9), (3, 11))
# Names of the distributions that contain TensorFlow.
WHEELS = ("tensorflow", "tensorflow-cpu", "tensorflow-tpu", "tf-nightly")


def find_problems() -> list[str]:
    """Returns why TPUEstimator cannot run here, and what to do; [] if it can."""
    problems = []
    python = ".".join(map(str, sys.version_info[:3]))
    if not _PYTHONS[0] <= sys.version_info[:2] <= _PYTHONS[1]:
        problems.append(f"Python {python} is unsupported: TensorFlow 2.15 needs 3.9, 3.10 or 3.11")
    found = {name: version for name in WHEELS if (version := version_of(name))}
    if not found:
        problems.append(
            f"TensorFlow is not installed in {sys.prefix}. Run pip install tensorflow==2.15.1"
        )
    problems += [
        f"{name} {version} is unsupported: 2.15 is the last release with TPUEstimator"
        for name, version in found.items()
        if not version.startswith("2.15.")
    ]
    numpy = version_of("numpy")
    if numpy and not numpy.startswith(("0.", "1.")):
        problems.append(
            f"NumPy {numpy} is unsupported: TensorFlow 2.15 needs 1.x. Run pip install 'numpy<2'"
        )
    return problems


def version_of(distribution: str) -> str | None:
    """Returns the version of an installed distribution, or None."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
