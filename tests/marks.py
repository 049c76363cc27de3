"""Marks for tests and test cases."""

import pytest

from engine.cli import cpu_kernels

_BFLOAT16_FAULT = cpu_kernels.explain_bfloat16_fault()
# For tests that execute bfloat16 operations.
runs_bfloat16 = pytest.mark.skipif(_BFLOAT16_FAULT is not None, reason=str(_BFLOAT16_FAULT))


def slow(*values):
    """Returns a `parametrize` case for `make test-all` only; a faster case covers the same code."""
    return pytest.param(*values, marks=pytest.mark.slow)
