"""Standard output and error that may go away: a closed pipe, a terminal that hung up, a full disk.

Python raises at the next `print`, wherever that is, and a training would end with a traceback and
without its last steps.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, Callable

from common.errors import RunError


def _exit_as_by_sigpipe() -> None:
    sys.exit(128 + signal.SIGPIPE)


# Called when the reader of a pipe is gone, as in `run_cpu.py ... | head`.
on_closed_pipe: Callable[[], None] = _exit_as_by_sigpipe


class SafeStream:
    """A text stream that is dropped, instead of raising, when it cannot be written.

    Attributes:
      error: why it was dropped, other than by a closed pipe; None while it works.
    """

    def __init__(self, stream):
        """Takes the stream of the process."""
        self._stream = stream
        self.error: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        """Returns what the stream itself has."""
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Writes as the stream does, or nothing."""
        return self._try(self._stream.write, text) or len(text)

    def flush(self) -> None:
        """Flushes as the stream does, or does nothing."""
        self._try(self._stream.flush)

    def _try(self, do, *values):
        try:
            return do(*values)
        except OSError as error:
            self._drop()
            if isinstance(error, BrokenPipeError):
                on_closed_pipe()
            else:
                self.error = error
            return None

    def _drop(self):
        """Sends what is still in the buffer, and all that follows, to nowhere."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)


def protect() -> None:
    """Makes the standard streams safe, and able to print any character."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, SafeStream):
            if hasattr(stream, "reconfigure"):
                # A locale of ASCII, or a file name that is not UTF-8.
                stream.reconfigure(errors="backslashreplace")
            setattr(sys, name, SafeStream(stream))


def finish() -> None:
    """Writes out what is buffered.

    Raises:
      RunError: standard output could not be written, and a part of it is lost.
    """
    sys.stdout.flush()
    error = getattr(sys.stdout, "error", None)
    if error is not None:
        raise RunError(
            f"standard output could not be written ({error.strerror}), so some of it is lost; the "
            "run itself is complete"
        )
