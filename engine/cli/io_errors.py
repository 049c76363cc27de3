"""What to say when a file or a disk is at fault. Imports no TensorFlow."""

from __future__ import annotations

import os
import re
import shutil

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
# As TensorFlow says it of a tensor that no memory is left for.
_TOO_LARGE = re.compile(r"when allocating tensor with shape\[[\d,]*\]")
_SMALLER = "a smaller batch size needs less, and so does training with a larger --accumulate_steps"
_KEPT = "what was saved before is whole, and the same command goes on from there"


def problem(error: Exception) -> str | None:
    """Returns a line about the file that could not be read or written; None for any other error.

    TensorFlow says it in many words, and of a full disk that memory may be short.
    """
    of_tensorflow = type(error).__module__.startswith("tensorflow")
    if not (of_tensorflow or isinstance(error, OSError)):
        return None
    message = " ".join(str(error).partition("[[")[0].split())
    too_large = _TOO_LARGE.search(message)
    if of_tensorflow and too_large:
        return f"out of memory, {too_large[0]}: {_SMALLER}"
    for cause in _CAUSES:
        if cause.lower() in message.lower():
            return _of_disk(cause, message)
    if of_tensorflow and "gs://" in message:
        return message
    return None


def _of_disk(cause, message):
    # TensorFlow names the file before the cause, Python after it.
    of_tensorflow = re.search(rf"(\S+)(?:; | is ){cause}", message, re.IGNORECASE)
    found = of_tensorflow or re.search(rf"{cause}: '([^']+)'", message)
    if not found:
        return f"{cause}: {message}"
    line = f"{cause}: {found[1]}"
    if cause == "No space left on device":
        line += f" ({_free(found[1])} MB are free)"
    return f"{line}; {_KEPT}"


def _free(path):
    while not os.path.exists(path or "."):
        path = os.path.dirname(path)
    return shutil.disk_usage(path or ".").free // 10**6
