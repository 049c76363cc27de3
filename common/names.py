"""Checks of names and paths that come from a file or a flag. Imports no TensorFlow."""

from __future__ import annotations

import decimal
import re
import unicodedata
from collections.abc import Iterable

# Unicode categories: control characters, lone surrogates, line and paragraph separators.
_NOT_TEXT = {"Cc", "Cs", "Zl", "Zp"}
_NUMBER = re.compile(r"[+-]?([0-9]{1,300}\.?[0-9]*|\.[0-9]+)")
_MISSING = {"nan", "<na>", "nat", "#n/a"}
_MAX_BYTES = 255  # of a file name, on every common file system
# Names, in lower case, that operating systems and tools add to folders, besides hidden ones.
_SYSTEM = {
    *("__macosx", "thumbs.db", "ehthumbs.db", "desktop.ini", "icon\r", "lost+found"),
    *("@eadir", "#recycle", "$recycle.bin", "system volume information", "__pycache__"),
}


def is_remote(path: str) -> bool:
    """Returns True for a path such as gs://..., which only TensorFlow can read."""
    return "://" in path


def is_line(text: object) -> bool:
    """Returns True for a string that prints as one line and can be encoded as UTF-8."""
    return isinstance(text, str) and not any(unicodedata.category(c) in _NOT_TEXT for c in text)


def printable(text: str) -> str:
    """Returns `text`, escaped if it contains control characters or cannot be encoded as UTF-8."""
    return text if is_line(text) else ascii(text)[1:-1]


def shown(text: str) -> str:
    """Returns `text` with all unprintable characters escaped, for messages in a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def normalized(text: str) -> str:
    """Returns a name without surrounding white space, in Unicode's composed form (NFC).

    macOS decomposes the names of files, so names that look equal may differ.
    """
    return unicodedata.normalize("NFC", text).strip()


def is_system(name: str) -> bool:
    """Returns True for a hidden name, and for one that an operating system or a tool adds."""
    return name.startswith((".", "~$")) or name.lower() in _SYSTEM


def is_plain_name(name: object) -> bool:
    """Returns True for a file name without folders, which cannot leave the folder it is in."""
    return (
        is_line(name)
        and name not in ("", ".", "..")
        and not set(name) & {"/", "\\"}
        and len(name.encode()) <= _MAX_BYTES
    )


def counted(number: int, singular: str, plural: str = "") -> str:
    """Returns a number with a noun, such as "1 class" and "2 classes"; default: an "s" is added."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def first_of(count: int, noun: str = "row") -> str:
    """Returns what follows the first of several faults: " (the first of 3 such rows)"; "" for 1."""
    return f" (the first of {count} such {noun}s)" if count > 1 else ""


def repeated(names) -> list[str]:
    """Returns the names that occur more than once, in order of first occurrence."""
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
    return [name for name, count in seen.items() if count > 1]


def sorted_labels(labels: Iterable[str]) -> list[str]:
    """Returns labels, each once, in the order of classes: as numbers if all are, 2 before 10."""
    found = sorted(set(labels))
    return sorted(found, key=float) if all(map(_NUMBER.fullmatch, found)) else found


def one_number(labels: Iterable[str]) -> tuple[str, str] | None:
    """Returns two labels that are one number, such as "1" and "1.0" or "01", if there are any."""
    first: dict[decimal.Decimal, str] = {}
    for label in sorted(set(labels)):
        if _NUMBER.fullmatch(label):
            other = first.setdefault(decimal.Decimal(label), label)
            if other != label:
                return other, label
    return None


def missing_label(labels: Iterable[str]) -> str:
    """Returns a label that pandas and Excel write for a missing one, "" if there is none."""
    return next((label for label in sorted(set(labels)) if label.lower() in _MISSING), "")


def find_class_name_problem(names) -> str | None:
    """Returns an error message if a class name is empty, repeated or has control characters."""
    for name in names:
        if not name or not is_line(name):
            return f"{name!a} is not a class name: it must be text without control characters"
    twice = repeated(names)
    return f"the class name '{twice[0]}' occurs more than once" if twice else None
