"""Tolerances: sums in any order are within them, faults are not."""

import numpy as np
import pytest
import tensorflow as tf

from tests import numerics

TERMS, COLUMNS, SHARDS = 4096, 64, 8
BFLOAT16 = tf.bfloat16.as_numpy_dtype


@pytest.fixture(params=["signs", "positive"])
def terms(request):
    """Float32 `[TERMS, COLUMNS]` whose sums over columns cancel, or grow."""
    random = np.random.default_rng(1)
    values = random.normal(size=[TERMS, COLUMNS])
    return (values if request.param == "signs" else np.abs(values)).astype(np.float32)


def one_after_another(terms):
    return np.cumsum(terms, axis=0, dtype=np.float32)[-1]


def in_blocks(terms):
    parts = terms.reshape(TERMS // 16, 16, COLUMNS)
    return one_after_another(parts).sum(axis=0)


ORDERS = {
    "numpy": lambda terms: terms.sum(axis=0),
    "one after another": one_after_another,
    "reversed": lambda terms: one_after_another(terms[::-1]),
    "in blocks": in_blocks,
    "by size": lambda terms: one_after_another(np.sort(terms, axis=0)),
}


def magnitude(terms):
    """The largest partial sum in the worst order of the terms."""
    return np.abs(np.cumsum(np.sort(terms, axis=0), axis=0, dtype=np.float64)).max()


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_a_sum_in_any_order_is_close(terms, order):
    exact = terms.sum(axis=0, dtype=np.float64)
    numerics.assert_close(order(terms), exact, TERMS, magnitude=magnitude(terms))


def test_a_sum_without_one_of_eight_shards_is_far(terms):
    exact = terms.sum(axis=0, dtype=np.float64)
    shards = terms.reshape(SHARDS, TERMS // SHARDS, COLUMNS)
    lost = shards[1:].sum(axis=(0, 1))
    numerics.assert_far(lost, exact, terms=TERMS, magnitude=magnitude(terms))


def test_a_scale_error_of_one_percent_is_far(terms):
    exact = terms.sum(axis=0, dtype=np.float64)
    numerics.assert_far(np.float32(1.01) * terms.sum(axis=0), exact, terms=TERMS)


def test_bfloat16_products_summed_in_float32():
    random = np.random.default_rng(2)
    left, right = (random.normal(size=[COLUMNS, COLUMNS]).astype(np.float32) for _ in range(2))
    exact = left @ right
    rounded = left.astype(BFLOAT16).astype(np.float32) @ right.astype(BFLOAT16).astype(np.float32)
    operands = {"terms": 2, "dtype": "bfloat16", "sides": 1}
    numerics.assert_close(rounded, exact, **operands)
    numerics.assert_far(rounded, exact, terms=COLUMNS)  # not float32
    numerics.assert_far(1.1 * rounded, exact, **operands)


def test_a_sum_in_bfloat16_is_far():
    total = BFLOAT16(0)
    for _ in range(1000):
        total = total + BFLOAT16(1)
    numerics.assert_far(total, 1000, terms=2, dtype="bfloat16", sides=1)


def test_cancelling_terms_need_a_magnitude():
    large = np.float32(1000.1)
    found, exact = (large + np.float32(0.3)) - large, 0.3
    numerics.assert_close(found, exact, depth=2, magnitude=1000)
    numerics.assert_far(found, exact, depth=2)
    numerics.assert_far(found + 0.01, exact, depth=2, magnitude=1000)


def test_tolerance_grows_with_terms_depth_and_roundoff():
    assert numerics.tolerance(terms=400) == pytest.approx(20 * numerics.tolerance())
    assert numerics.tolerance(depth=20) == pytest.approx(20 * numerics.tolerance())
    assert numerics.tolerance(sides=1) == numerics.tolerance() / 2
    by_digits = [numerics.tolerance(dtype=dtype) for dtype in ("float64", "float32", "bfloat16")]
    assert by_digits == sorted(by_digits)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (np.ones([3]), np.ones([1, 3])),
        (np.ones([3]), 1.0),
        ([1.0, np.nan], [1.0, 1.0]),
        ([1.0, np.inf], [1.0, 1.0]),
        ([1e-30], [0.0]),
    ],
    ids=["another shape", "a scalar", "NaN", "infinity", "not zero"],
)
def test_other_shapes_and_nan_are_never_close(actual, expected):
    with pytest.raises(AssertionError):
        numerics.assert_close(actual, expected, terms=TERMS, depth=100)


def test_empty_arrays_are_close():
    numerics.assert_close(np.zeros([0, 3]), np.zeros([0, 3]))


def test_assert_far_fails_if_the_tolerance_is_too_wide():
    with pytest.raises(AssertionError, match="too wide"):
        numerics.assert_far(1.01, 1.0, dtype="bfloat16")
    for not_a_rounding_fault in (np.nan, [1.0]):
        with pytest.raises(AssertionError):
            numerics.assert_far(not_a_rounding_fault, 1.0)


def test_dicts_are_compared_by_name():
    numerics.assert_all_close({"a": 1.0, "b": [2.0]}, {"b": [2.0], "a": 1.0})
    for other in ({"a": 1.0}, {"a": 1.0, "b": [2.1]}):
        with pytest.raises(AssertionError):
            numerics.assert_all_close(other, {"a": 1.0, "b": [2.0]})


def test_excess_is_measured_in_tolerances():
    expected = {"large": np.array([4.0, -8.0]), "small": np.array([0.5])}
    assert numerics.excess(expected, expected) == 0
    off = {**expected, "small": expected["small"] + 8 * 5 * numerics.tolerance(terms=9)}
    assert numerics.excess(off, expected, terms=9) == pytest.approx(5)
    assert numerics.excess({**expected, "small": [np.nan]}, expected) == np.inf
