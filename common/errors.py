"""Errors that a program reports in one line before it exits. Imports only the standard library."""


class UsageError(ValueError):
    """Invalid flags, files or model. Exit status 2."""


class RunError(Exception):
    """A run that cannot continue. Exit status 1. The message says why and what was saved."""
