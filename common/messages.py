"""Parts of error messages. Imports only the standard library."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """Returns " Did you mean 'X'?", or " Valid: ..." if no valid name is similar."""
    valid = sorted(valid)
    similar = difflib.get_close_matches(name, valid, n=1)
    return f" Did you mean '{similar[0]}'?" if similar else f" Valid: {', '.join(valid)}."
