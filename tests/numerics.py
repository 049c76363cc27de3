"""Tolerances of floating-point comparisons, derived from the arithmetic instead of from one CPU.

Two correct programs round the same sums differently: kernels choose the order of the terms, the
width of the vectors, the split over threads and fused multiply-add by the CPU. So a comparison of
two programs, two batch sizes or two shapes needs a tolerance. Bit-identical results are expected
only of the same program on the same shapes and the same machine.

The error of a sum of n terms, each rounded with a relative error of at most the unit roundoff u,
grows like sqrt(n) * u (N. J. Higham and T. Mary, "A New Approach to Probabilistic Rounding Error
Analysis", SIAM J. Sci. Comput. 41(5), 2019, theorem 2.4: it exceeds lambda * sqrt(n) * u with a
probability below 2 * exp(-lambda**2 / 2)). The errors of sums that follow one another, such as the
layers of a network or the steps of a training, add up.
"""

from __future__ import annotations

import numpy as np

# Unit roundoff: half of the distance from 1 to the next number.
UNIT_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "bfloat16": 2.0**-8}
# Lambda of the bound above: the probability of a false alarm is below 1e-7 for each number.
CONFIDENCE = 6
# How many tolerances a fault must differ by in a negative control.
FAR = 2


def tolerance(terms: int = 1, depth: int = 1, dtype: str = "float32", sides: int = 2) -> float:
    """Returns the difference that rounding explains, relative to the largest number.

    Args:
      terms: numbers that the longest sum adds up: units or `kernel * kernel * channels` that a
        layer reads, examples of a global batch. Of layers in bfloat16, which add up in float32,
        the roundings to bfloat16 that follow one another, where they are independent: by the same
        theorem their errors too add up to the square root of their number.
      depth: rounded results that follow one another: operations on each element, layers of a
        network, steps of a training. It is a factor, as if all errors had one sign.
      dtype: of the computation; a key of `UNIT_ROUNDOFF`.
      sides: of the comparison that are rounded; 1 if the other is exact beside it, as float32 is
        beside bfloat16.
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
    """Raises `AssertionError` unless two arrays of one shape differ by no more than rounding does.

    Args:
      actual: an array or a number.
      expected: another of the same shape.
      terms: see `tolerance`, as for depth and dtype.
      depth: how many roundings follow one another.
      dtype: of the computation.
      magnitude: of the numbers that were added up; the default is the largest of `expected`. Give
        it where the result is small because large terms cancel, such as a loss near 0.
      name: what is compared, for the message.
      sides: of the comparison that are rounded.
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

    At most 1 between two correct programs. A negative control shows that a fault gives far more.

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

    The negative control of a comparison: the fault that the test is for exceeds its tolerance.
    Takes the arguments of `assert_close`.
    """
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    if magnitude is None:
        magnitude = np.abs(expected).max(initial=0)
    assert actual.shape == expected.shape
    assert np.isfinite(actual).all()
    largest = np.abs(actual - expected).max(initial=0)
    assert largest > FAR * tolerance(**arithmetic) * magnitude, "the tolerance is too wide"


def assert_all_close(actual: dict, expected: dict, **arithmetic) -> None:
    """`assert_close` for two dicts of arrays, `{name: array}`, with the same names."""
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert_close(actual[name], value, name=name, **arithmetic)
