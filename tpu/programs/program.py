"""A Python program of other people, run in this process as `python PROGRAM ARGS...` runs it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import runpy
import sys
import threading
from unittest import mock

import tpu
from tpu.programs import processes, streams

TENSORFLOW = "tensorflow"  # the devices of `python -m tpu run` that TensorFlow finds, not JAX
# Folders of this name are no reason to hide the packages of a checkout from a program.
_SHARED = ("tpu", "tests")


@dataclasses.dataclass(frozen=True)
class Program:
    """A program and its arguments.

    Attributes:
      target: path of a file, or dotted name of a module.
      is_module: True if `target` is a module, as in `python -m`.
      arguments: arguments after the program.
    """

    target: str
    is_module: bool
    arguments: tuple[str, ...]

    def run(self, on_end=None) -> None:
        """Runs the program as `__main__`.

        While it runs, `sys.path` begins with the entry that Python would set for it, not with that
        of this package. Returns after its threads that are not daemons, as Python does. Afterwards
        `sys.stdout` and `sys.stderr` write to where they did before.

        Args:
          on_end: `(how, status) -> exit status`; called if the program ends this process by
            `os._exit`, or replaces it by `os.exec*`, which is not done (status None). By default,
            the exit status is that of the program.

        Raises:
          Any exception of the program, SystemExit included.
        """
        from tensorflow.python.util import deprecation  # slow: not before the arguments are valid

        deprecation._PRINT_DEPRECATION_WARNINGS = False  # an old program has dozens
        # Python makes the path of the program absolute, and follows links to find its folder.
        path = os.path.abspath(self.target)
        folder = os.getcwd() if self.is_module else os.path.dirname(os.path.realpath(path))
        argv = mock.patch.object(sys, "argv", [self.target, *self.arguments])
        entries = mock.patch.object(sys, "path", _without_checkout([folder, *sys.path[1:]]))
        # A program may have a package `tpu` too, such as tensorflow/tpu's EfficientNet.
        theirs = [os.path.join(entry, "tpu") for entry in (folder, *sys.path[1:])]
        package = mock.patch.object(tpu, "__path__", [*tpu.__path__, *theirs])
        with argv, entries, package, processes.owned(on_end or _default_end), _joined_threads():
            if self.is_module:
                runpy.run_module(self.target, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(path, run_name="__main__")


def log(message: str) -> None:
    """Prints a line of a command to stderr, apart from the output of the program."""
    streams.write(f"tpu: {message}\n", sys.stderr)


def _default_end(how, status):
    log(f"the program ended by {how}")
    return 1 if status is None else status


def _without_checkout(entries):
    """Returns entries of `sys.path` without that of this package, if it hides theirs.

    The folder of a checkout is in PYTHONPATH for `tpu` only, but has packages named `common` and
    `models` too. Wherever it is in `sys.path`, they hide folders without `__init__.py`.
    """
    checkout = os.path.dirname(os.path.dirname(os.path.realpath(tpu.__file__)))
    if os.path.basename(checkout) in ("site-packages", "dist-packages"):
        return entries
    others = [entry for entry in entries if os.path.realpath(entry) != checkout]
    packages = [
        name
        for name in os.listdir(checkout)
        if os.path.exists(os.path.join(checkout, name, "__init__.py")) and name not in _SHARED
    ]
    is_hidden = any(
        os.path.isdir(os.path.join(entry, name)) for entry in others for name in packages
    )
    # A program in the checkout imports its packages.
    return others if is_hidden and os.path.realpath(entries[0]) != checkout else entries


@contextlib.contextmanager
def _joined_threads():
    """A context manager that joins the threads started in it, unless it ends with an error."""
    before = threading.enumerate()

    def join():
        for thread in threading.enumerate():
            if thread not in before and not thread.daemon:
                thread.join()

    try:
        yield
    except SystemExit:
        join()
        raise
    join()
