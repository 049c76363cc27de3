"""Lines of progress: one after the other in a log, a single updating line in a notebook."""

from __future__ import annotations

import sys
from typing import Callable

_SECONDS_IN_A_LOG, _SECONDS_IN_A_NOTEBOOK = 5.0, 1.0


class ProgressLine:
    """The line of one task, such as a training or a split that is written."""

    def __init__(self, print_line: Callable[[str], None] | None = None):
        """Takes the function that prints a line where there is no notebook; default: `print`."""
        self._print = print_line or _print
        self._handle = None

    def show(self, text: str) -> None:
        """Prints a line; in a notebook it replaces the one before, also if others were printed."""
        if not in_notebook():
            self._print(text)
        elif self._handle is None:
            from IPython import display

            self._handle = display.display({"text/plain": text}, raw=True, display_id=True)
        else:
            self._handle.update({"text/plain": text}, raw=True)


def _print(text):
    print(text, flush=True)


def seconds_between() -> float:
    """Returns the seconds between two lines."""
    return _SECONDS_IN_A_NOTEBOOK if in_notebook() else _SECONDS_IN_A_LOG


def in_notebook() -> bool:
    """Returns True in a kernel of Jupyter, Colab or Kaggle; False in a terminal of IPython."""
    ipython = sys.modules.get("IPython")
    shell = ipython and ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None
