"""A Python program of other people, run in this process as `python PROGRAM ARGS...` runs it."""

from __future__ import annotations

import dataclasses
import os
import runpy
import sys
from unittest import mock

import tpu


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

    def __str__(self):
        return f"-m {self.target}" if self.is_module else self.target

    def run(self) -> None:
        """Runs the program as `__main__`.

        While it runs, `sys.path` begins with the entry that Python would set for it, not with that
        of this package.

        Raises:
          Any exception of the program, SystemExit included.
        """
        from tensorflow.python.util import deprecation  # slow: not before the arguments are valid

        deprecation._PRINT_DEPRECATION_WARNINGS = False  # an old program has dozens
        folder = os.getcwd() if self.is_module else os.path.dirname(os.path.abspath(self.target))
        argv = mock.patch.object(sys, "argv", [self.target, *self.arguments])
        path = mock.patch.object(sys, "path", [folder, *sys.path[1:]])
        # A program may have a package `tpu` too, such as tensorflow/tpu's EfficientNet.
        theirs = [os.path.join(entry, "tpu") for entry in (folder, *sys.path[1:])]
        package = mock.patch.object(tpu, "__path__", [*tpu.__path__, *theirs])
        with argv, path, package:
            if self.is_module:
                runpy.run_module(self.target, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(self.target, run_name="__main__")
