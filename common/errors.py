"""Errors that end a program with one line. Imports nothing that must be installed."""


class UsageError(ValueError):
    """An invalid request: exit status 2."""


class RunError(Exception):
    """A run that cannot continue: exit status 1. The message says why, and what is kept."""
