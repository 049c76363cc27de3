"""Output of commands: report files, and streams that a program may close or redirect."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile

_NAMES = ("stdout", "stderr")


@contextlib.contextmanager
def restored():
    """A context manager that yields a function, which is also called at its end.

    The function lets `sys.stdout` and `sys.stderr` write to where they did at the start.
    """
    streams = {name: getattr(sys, name) for name in _NAMES}
    copies = {}
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):  # closed at the start
            copies[descriptor] = os.dup(descriptor)

    def restore():
        for name in _NAMES:
            with contextlib.suppress(Exception):  # of the program: missing, closed or broken
                getattr(sys, name).flush()
        for descriptor, copy in copies.items():
            if not _is_same_file(descriptor, copy):
                os.dup2(copy, descriptor)
        for name, stream in streams.items():
            is_closed = bool(getattr(stream, "closed", False))
            setattr(sys, name, _opened(stream, name) if is_closed else stream)

    try:
        yield restore
    finally:
        restore()
        for copy in copies.values():
            os.close(copy)


def write(text: str, stream) -> None:
    """Writes text to a stream of this process, which may be missing, closed or a broken pipe."""
    if stream is None:
        return
    encoding = getattr(stream, "encoding", None) or "utf-8"
    text = text.encode(encoding, "backslashreplace").decode(encoding)
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:  # the reader is gone: no error when Python flushes at its end
        with contextlib.suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
    except (OSError, ValueError):
        pass


def report(text: str) -> None:
    """Writes the lines of a report to stdout, or to stderr if there is no stdout."""
    write(f"{text}\n", sys.stdout if sys.stdout is not None else sys.stderr)


def write_file(path, text: str) -> None:
    """Replaces a file by `text`, at once: a reader never sees a part of it."""
    folder, name = os.path.split(os.path.abspath(path))
    with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=folder) as temporary:
        new = os.path.join(temporary, name)
        with open(new, "w") as file:
            file.write(text)
        os.replace(new, path)


def is_terminal() -> bool:
    """Returns True if stdout is a terminal."""
    try:
        return sys.stdout is not None and sys.stdout.isatty()
    except (OSError, ValueError):
        return False


def _opened(stream, name):
    """Returns a stream for the descriptor of a closed one."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return open(1 + _NAMES.index(name), "w", encoding=encoding, buffering=1, closefd=False)


def _is_same_file(a, b):
    try:
        return os.path.sameopenfile(a, b)
    except OSError:
        return False
