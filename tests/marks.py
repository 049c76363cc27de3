"""Marks for test cases."""

import pytest


def slow(*values):
    """Returns a `parametrize` case for `make test-all` only; a faster case covers the same code."""
    return pytest.param(*values, marks=pytest.mark.slow)
