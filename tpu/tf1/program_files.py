"""Tells the files of a program from those of libraries and of this package."""

from __future__ import annotations

import os
import sys
import sysconfig

_OWN_ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__))) + os.sep
_LIBRARY_ROOTS = tuple(
    os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib")
)


def is_program_file(path: str) -> bool:
    """Returns whether a source file belongs to the program, not to a library or to this package."""
    real_path = os.path.realpath(path)
    # Installers may link site-packages to a cache, and a checkout may be linked into site-packages.
    parts = {*path.split(os.sep), *real_path.split(os.sep)}
    return not (
        parts & {"site-packages", "dist-packages"}
        or real_path.startswith((*_LIBRARY_ROOTS, _OWN_ROOT))
        or path.startswith("<frozen")
    )


def running_line() -> tuple[str, int]:
    """Returns (path, line) of the innermost running line of the program; ("unknown", 0) if none."""
    frame = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith("<") and is_program_file(path):
            return path, frame.f_lineno
        frame = frame.f_back
    return "unknown", 0
