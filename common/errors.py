"""Errors that end a program with one line. Imports nothing that must be installed."""


class UsageError(ValueError):
    """The program was asked for something that it cannot do: exit status 2."""


class RunError(Exception):
    """A run cannot go on; the message says why, and what is kept: exit status 1."""
