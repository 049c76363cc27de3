"""Parts of error messages. Imports only the standard library."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def similar(name: str, valid: Iterable[str]) -> str:
    """Returns the valid name that is most similar, or the only one with these initials, or ""."""
    valid = sorted(valid)
    near = difflib.get_close_matches(name, valid, n=1)
    if near:
        return near[0]
    found = [word for word in valid if "".join(part[:1] for part in word.split("_")) == name]
    return found[0] if len(found) == 1 else ""


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """Returns " Did you mean 'X'?", or " Valid: ..." if no valid name is similar."""
    valid = sorted(valid)
    found = similar(name, valid)
    return f" Did you mean '{found}'?" if found else f" Valid: {', '.join(valid)}."
