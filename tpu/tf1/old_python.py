"""Names that Python, NumPy and other libraries removed since, put back for old programs.

Only additions: a library that looks a name up finds what it found in the days of TensorFlow 1.x.
"""

from __future__ import annotations

import collections
import collections.abc
import contextlib
import inspect
import sys
import time

import numpy as np


@contextlib.contextmanager
def names():
    """Provides the removed names in a `with` block."""
    with contextlib.ExitStack() as stack:
        for owner, name, value in _removed():
            if name not in vars(owner):
                setattr(owner, name, value)
                stack.callback(delattr, owner, name)
        yield


def library_without(module: str, name: str) -> str:
    """Returns the library, with its version, that removed a name; "" for other names."""
    if not any(owner.__name__ == module and removed == name for owner, removed, _ in _removed()):
        return ""
    if module == "numpy":
        return f"NumPy {np.__version__}"
    return f"Python {sys.version_info.major}.{sys.version_info.minor}"


def _removed():
    """Yields (module, name, value)."""
    # Removed in NumPy 1.24: aliases of Python types.
    for value in (bool, int, float, complex, object, str):
        yield np, value.__name__, value
    yield np, "unicode", str
    yield np, "long", int
    # Removed in NumPy 1.23.
    yield np, "asscalar", lambda array: array.item()
    # Removed in Python 3.10: moved to collections.abc in 3.3.
    for name in collections.abc.__all__:
        yield collections, name, getattr(collections.abc, name)
    # Removed in Python 3.11.
    yield inspect, "getargspec", lambda function: _ArgSpec(*inspect.getfullargspec(function)[:4])
    # Removed in Python 3.8.
    yield time, "clock", time.perf_counter


_ArgSpec = collections.namedtuple("ArgSpec", "args varargs keywords defaults")


def patch(name: str) -> None:
    """Puts removed names of a library back, once it is imported."""
    library = name.partition(".")[0]
    if library in _LIBRARIES:
        module, patch_module = _LIBRARIES[library]
        found = sys.modules.get(module)
        # Its own imports come here too, before it is complete.
        if found is not None and not getattr(found.__spec__, "_initializing", False):
            patch_module(found)


def _patch_yaml(yaml):
    # PyYAML 6 requires the Loader of yaml.load; 5 warned and used FullLoader.
    if yaml.load.__defaults__ is None:
        real_load = yaml.load
        yaml.load = lambda stream, Loader=yaml.FullLoader: real_load(stream, Loader)  # noqa: N803


def _patch_pillow(image):
    # Removed in Pillow 10.
    if not hasattr(image, "ANTIALIAS"):
        image.ANTIALIAS = image.LANCZOS


_LIBRARIES = {"yaml": ("yaml", _patch_yaml), "PIL": ("PIL.Image", _patch_pillow)}
