"""Names that come from a file or a flag: those that are safe as a file name, and as a line of text.

Imports no TensorFlow: the flags of prepare_data.py are checked with it.
"""

from __future__ import annotations

import unicodedata

# Control characters, halves of surrogate pairs, and what ends a line or a paragraph.
_NOT_TEXT = {"Cc", "Cs", "Zl", "Zp"}
_MAX_BYTES = 255  # of a file name, on every common file system


def is_line(text: object) -> bool:
    """Whether `text` is a string that prints as one line and can be stored as UTF-8."""
    return isinstance(text, str) and not any(unicodedata.category(c) in _NOT_TEXT for c in text)


def printable(text: str) -> str:
    """Returns `text` as one line that any file takes, with what is not text escaped."""
    return text if is_line(text) else ascii(text)[1:-1]


def shown(text: str) -> str:
    """Returns `text` for a terminal: what does not print, or changes what does, is escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def is_plain_name(name: object) -> bool:
    """Whether `name` is the name of a file inside a folder, and never a path that leaves it."""
    return (
        is_line(name)
        and name not in ("", ".", "..")
        and not set(name) & {"/", "\\"}
        and len(name.encode()) <= _MAX_BYTES
    )


def repeated(names) -> list[str]:
    """Returns the names that occur more than once, in order."""
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
    return [name for name, count in seen.items() if count > 1]


def problem_of_class_names(names) -> str | None:
    """Returns what is wrong with the names of classes: each is one line of text and unique."""
    for name in names:
        if not name or not is_line(name):
            return f"{name!a} is not a class name: it must be text without control characters"
    twice = repeated(names)
    return f"the class '{twice[0]}' is there more than once" if twice else None
