"""Marks of test cases."""

import pytest


def slow(*values):
    """Returns a case of `parametrize` for `make test-all` alone: a faster one is like it."""
    return pytest.param(*values, marks=pytest.mark.slow)
