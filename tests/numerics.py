"""Tolerances of floating-point comparisons, derived from the arithmetic.

Two correct programs round the same sums differently: the order of the terms, the vector width, the
split over threads and fused multiply-add depend on the CPU. So a comparison of two programs, batch
sizes or shapes needs a tolerance. Results are bit-identical only for the same program, shapes and
machine.

The error of a sum of n terms, each rounded with a relative error of at most the unit roundoff u,
grows like sqrt(n) * u (N. J. Higham and T. Mary, "A New Approach to Probabilistic Rounding Error
Analysis", SIAM J. Sci. Comput. 41(5), 2019, theorem 2.4: it exceeds lambda * sqrt(n) * u with a
probability below 2 * exp(-lambda**2 / 2)). The errors of consecutive sums, such as those of the
layers of a network or the steps of a training, add up.
"""

from __future__ import annotations

import numpy as np

# Unit roundoff: half of the distance from 1 to the next number.
UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "bfloat16": 2.0**-8}
# Lambda of the bound above: the probability of a false alarm is below 1e-7 for each number.
CONFIDENCE = 6
# In a negative control a fault must differ by more than this many tolerances.
FAR = 2


def tolerance(terms: int = 1, depth: int = 1, dtype: str = "float32", sides: int = 2) -> float:
    """Returns the largest difference due to rounding, relative to the largest number.

    Args:
      terms: number of terms of the longest sum: input units of a layer, or
        `kernel * kernel * channels`, or examples of a global batch. For bfloat16 layers, which
        sum in float32: the number of consecutive independent roundings to bfloat16, whose errors
        add up to its square root by the same theorem.
      depth: number of consecutive rounded results: operations on each element, layers of a
        network, steps of a training. A factor, as if all errors had the same sign.
      dtype: dtype of the computation; a key of `UNIT_ROUNDOFF`.
      sides: number of compared sides that are rounded; 1 if the other is exact in comparison, as
        float32 is to bfloat16.
    """
    return sides * CONFIDENCE * UNIT_ROUNDOFF[dtype] * terms**0.5 * depth


def assert_close(
    actual,
    expected,
    terms: int = 1,
    depth: int = 1,
    dtype: str = "float32",
    magnitude: float | None = None,
    name: str = "",
    sides: int = 2,
) -> None:
    """Raises `AssertionError` unless two arrays have one shape and differ by at most `tolerance`.

    Args:
      actual: an array or a number.
      expected: another of the same shape.
      terms: see `tolerance`.
      depth: see `tolerance`.
      dtype: see `tolerance`.
      magnitude: magnitude of the terms of the sums; default: the largest of `expected`. Needed if
        large terms cancel, such as in a loss near 0.
      name: name of the compared value, for the message.
      sides: see `tolerance`.
    """
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    if magnitude is None:
        magnitude = np.abs(expected).max(initial=0)
    assert actual.shape == expected.shape, name
    np.testing.assert_allclose(
        actual,
        expected,
        rtol=0,
        atol=tolerance(terms, depth, dtype, sides) * magnitude,
        err_msg=f"{name} {terms} terms, depth {depth}, {dtype}, magnitude {magnitude:.3g}",
    )


def excess(actual: dict, expected: dict, **arithmetic) -> float:
    """Returns the largest difference of two dicts of arrays, in multiples of `tolerance`.

    It is at most 1 between two correct programs, and far larger in a negative control.

    Args:
      actual: `{name: array}`.
      expected: another with the same names and shapes.
      **arithmetic: `terms`, `depth` and `dtype` of `tolerance`, and `magnitude` of `assert_close`,
        whose default here is the largest number in all arrays.
    """
    assert actual.keys() == expected.keys()
    arrays = {name: np.asarray(value, np.float64) for name, value in expected.items()}
    magnitude = arithmetic.pop("magnitude", None)
    if magnitude is None:
        magnitude = max(np.abs(value).max(initial=0) for value in arrays.values())
    assert all(np.shape(actual[name]) == value.shape for name, value in arrays.items())
    differences = [np.abs(actual[name] - value).max(initial=0) for name, value in arrays.items()]
    largest = np.max(differences)  # NaN if one is
    return float(np.nan_to_num(largest, nan=np.inf) / (tolerance(**arithmetic) * magnitude))


def assert_far(actual, expected, *, magnitude: float | None = None, **arithmetic) -> None:
    """Raises `AssertionError` unless two arrays differ by more than `FAR` tolerances.

    This is the negative control of a comparison: the fault under test must exceed the tolerance.
    The arguments are those of `assert_close`.
    """
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    if magnitude is None:
        magnitude = np.abs(expected).max(initial=0)
    assert actual.shape == expected.shape
    assert np.isfinite(actual).all()
    largest = np.abs(actual - expected).max(initial=0)
    assert largest > FAR * tolerance(**arithmetic) * magnitude, "the tolerance is too wide"


def assert_all_close(actual: dict, expected: dict, **arithmetic) -> None:
    """Calls `assert_close` for each array of two dicts `{name: array}` with the same names."""
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert_close(actual[name], value, name=name, **arithmetic)
