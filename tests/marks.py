"""Marks of test cases."""

import pytest


def slow(*values):
    """A case of `parametrize` that only `make test-all` runs, because a faster one is like it."""
    return pytest.param(*values, marks=pytest.mark.slow)
