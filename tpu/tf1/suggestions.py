"""Tells a program without --tf1 that it needs --tf1, in the error of a name of TensorFlow 1.x."""

from __future__ import annotations

import contextlib
import sys

from tpu.tf1 import areas


@contextlib.contextmanager
def add_option():
    """Adds "add --tf1" to errors of names and modules that only 1.15 has, in a `with` block."""
    import tensorflow as tf

    v1 = tf.compat.v1

    def missing(name):
        message = f"module 'tensorflow' has no attribute {name!r}"
        is_old = name == "contrib" or (not name.startswith("_") and hasattr(v1, name))
        raise AttributeError(f"{message}: TensorFlow 1.x has it. Add --tf1" if is_old else message)

    def missing_of_v1(name):
        message = f"module 'tensorflow.compat.v1' has no attribute {name!r}"
        is_old = name == "contrib"
        raise AttributeError(f"{message}: TensorFlow 1.15 has it. Add --tf1" if is_old else message)

    with contextlib.ExitStack() as stack:
        for module, function in ((tf, missing), (v1, missing_of_v1)):
            if "__getattr__" not in vars(module):
                module.__getattr__ = function
                stack.callback(delattr, module, "__getattr__")
        finder = _Finder()
        sys.meta_path.append(finder)
        stack.callback(sys.meta_path.remove, finder)
        yield


class _Finder:
    """The last finder: raises for a module that TensorFlow 1.15 had."""

    def find_spec(self, name, path=None, target=None):
        """Raises ModuleNotFoundError for a module of 1.15; finds no others."""
        if name.startswith("tensorflow.") and _is_old(name.partition(".")[2]):
            raise ModuleNotFoundError(
                f"No module named {name!r}: TensorFlow 1.x has it. Add --tf1", name=name
            )


def _is_old(name):
    """Returns whether 1.15 had a module, without `tensorflow.` in front."""
    parts = name.split(".")
    parents = {".".join(parts[:length]) for length in range(1, len(parts) + 1)}
    return bool(parents & {"contrib", "examples", *areas.MOVED})
