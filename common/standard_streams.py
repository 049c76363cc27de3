"""Standard output and error that may fail: a closed pipe, a closed terminal, a full disk.

Without this module the next `print` raises: training ends with a traceback, and loses the steps
since the last checkpoint. Imports no TensorFlow.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, Callable

from common.errors import RunError


def _exit_as_sigpipe() -> None:
    sys.exit(128 + signal.SIGPIPE)


# Called when the reader of a pipe has exited, as in `run_cpu.py ... | head`.
on_closed_pipe: Callable[[], None] = _exit_as_sigpipe


class SafeStream:
    """A text stream that discards its output, instead of raising, after a failed write.

    Attributes:
      error: why a write failed, except for a closed pipe; None if none did.
    """

    def __init__(self, stream):
        """Wraps sys.stdout or sys.stderr."""
        self._stream = stream
        self.error: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute of the wrapped stream."""
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Writes `text`, or discards it after a failed write."""
        return self._try(self._stream.write, text) or len(text)

    def flush(self) -> None:
        """Flushes the stream."""
        self._try(self._stream.flush)

    def _try(self, function, *args):
        try:
            return function(*args)
        except OSError as error:
            # Sends what is buffered, and all later output, to /dev/null.
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._stream.fileno())
            os.close(null)
            if isinstance(error, BrokenPipeError):
                on_closed_pipe()
            else:
                self.error = error
            return None


def protect() -> None:
    """Replaces the standard streams by `SafeStream`s that can print any character."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, SafeStream):
            if hasattr(stream, "reconfigure"):
                # For an ASCII locale, and file names that are not UTF-8.
                stream.reconfigure(errors="backslashreplace")
            setattr(sys, name, SafeStream(stream))


def finish() -> None:
    """Flushes standard output at the end of a program.

    Raises:
      RunError: a write failed, and some output is lost.
    """
    sys.stdout.flush()
    error = getattr(sys.stdout, "error", None)
    if error is not None:
        raise RunError(
            f"standard output could not be written ({error.strerror}), so some of it is lost; the "
            "run itself is complete"
        )
