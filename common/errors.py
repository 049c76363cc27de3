"""Errors that a program reports in one line before it exits. Imports only the standard library."""


class OneLine:
    """An error that a notebook shows as a terminal does."""

    def _render_traceback_(self):
        """Returns what a notebook shows, as a terminal does: the message without the frames."""
        return [f"{type(self).__name__}: {self}"]


class UsageError(OneLine, ValueError):
    """Invalid flags, files or model. Exit status 2."""


class RunError(OneLine, Exception):
    """A run that cannot continue. Exit status 1. The message says why and what was saved."""


class Interrupted(OneLine, KeyboardInterrupt):
    """A run that Ctrl-C, or the stop button of a notebook, has ended."""
