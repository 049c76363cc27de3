"""Writes report files."""

from __future__ import annotations

import os
import tempfile


def write(path, text: str) -> None:
    """Replaces a file by `text`, at once: a reader never sees a part of it."""
    folder, name = os.path.split(os.path.abspath(path))
    with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=folder) as temporary:
        new = os.path.join(temporary, name)
        with open(new, "w") as file:
            file.write(text)
        os.replace(new, path)
