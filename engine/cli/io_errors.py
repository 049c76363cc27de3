"""One-line messages for errors of files, disks, buckets and memory. Imports no TensorFlow."""

from __future__ import annotations

import functools
import os
import re
import shutil
import threading

_CAUSES = (
    "No space left on device",
    "Disk quota exceeded",
    "File too large",
    "Read-only file system",
    "Permission denied",
    "Input/output error",
    "Stale file handle",
    "No such file or directory",
    "Is a directory",
    "File exists",
    "Not a directory",
    "Too many levels of symbolic links",
    "File name too long",
)
# TensorFlow's writer of summaries raises errors of Python, by the code of the Status.
_EVENTS_FILE = "events.out.tfevents"
_EVENTS_ERRORS = (IndexError, NotImplementedError, RuntimeError, ValueError)
_OUT_OF_MEMORY = re.compile(r"when allocating tensor with shape\[[\d,]*\]")
_KEPT = "files saved before are intact. Run the same command again to resume"


def describe(error: Exception) -> str | None:
    """Returns a line that names the cause and the file; None for any other kind of error.

    TensorFlow's own messages are long, and report a full disk as exhausted memory.
    """
    is_tensorflow = type(error).__module__.startswith("tensorflow")
    is_of_events = isinstance(error, _EVENTS_ERRORS) and _EVENTS_FILE in str(error)
    if not (is_tensorflow or is_of_events or isinstance(error, OSError)):
        return None
    message = " ".join(str(error).partition("[[")[0].split())
    out_of_memory = _OUT_OF_MEMORY.search(message)
    if is_tensorflow and out_of_memory:
        return (
            f"out of memory {out_of_memory[0]}. Use a smaller batch size, or in training a larger "
            "--accumulate_steps"
        )
    for cause in _CAUSES:
        if cause.lower() in message.lower():
            return _describe_disk_error(cause, message)
    if is_tensorflow and "gs://" in message:
        return message
    return None


@functools.cache  # once in a process
def hide_in_threads() -> None:
    """Hides the stack of a disk error in a thread of TensorFlow that writes summaries.

    The next write or close of the summaries raises the same error in the main thread.
    """
    show = threading.excepthook

    def show_others(args):
        is_of_events = _EVENTS_FILE in str(args.exc_value)
        if not is_of_events or describe(args.exc_value) is None:
            show(args)

    threading.excepthook = show_others


def _describe_disk_error(cause, message):
    # TensorFlow writes the file before the cause, Python after it.
    found = re.search(rf"(\S+)(?:; | is ){cause}", message, re.IGNORECASE)
    found = found or re.search(rf"{cause}: '([^']+)'", message)
    if not found:
        return f"{cause}: {message}"
    line = f"{cause}: {found[1]}"
    if cause == "No space left on device":
        line += f" ({_free_megabytes(found[1])} MB are free)"
    return f"{line}; {_KEPT}"


def _free_megabytes(path):
    while not os.path.exists(path or "."):
        path = os.path.dirname(path)
    return shutil.disk_usage(path or ".").free // 10**6
