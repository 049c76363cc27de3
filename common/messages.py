"""Parts of error messages. Imports only the standard library."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def similar(name: str, valid: Iterable[str]) -> str:
    """Returns the valid name that is most similar, "" if none is."""
    return next(iter(difflib.get_close_matches(name, sorted(valid), n=1)), "")


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """Returns " Did you mean 'X'?", or " Valid: ..." if no valid name is similar."""
    valid = sorted(valid)
    found = similar(name, valid)
    return f" Did you mean '{found}'?" if found else f" Valid: {', '.join(valid)}."
