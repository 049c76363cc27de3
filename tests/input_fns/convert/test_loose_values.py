"""Values of JSON in the types that tools write them."""

import math

import pytest

from input_fns.convert import loose_values


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (7, 7),
        (7.0, 7),
        ("7", 7),
        (" 7 ", 7),
        ("0", 0),
        (-3, -3),
        ("007", "007"),
        ("7.0", "7.0"),
        ("frame_7", "frame_7"),
        ("e\u0301", "\xe9"),
        (2**63 - 1, 2**63 - 1),
        (2**63, str(2**63)),
        (7.5, None),
        (True, None),
        ("", None),
        ("new\nline", None),
        (None, None),
        ([7], None),
        (math.nan, None),
    ],
)
def test_ids_to_compare(value, expected):
    found = loose_values.identifier(value)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("value", "expected"),
    [(3, 3.0), ("3.5", 3.5), ("1e2", 100.0), (True, None), ("1_0", None), ("", None), ({}, None)],
)
def test_numbers(value, expected):
    assert loose_values.number(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(96.0, 96), ("96", 96), (96.5, None), ("x", None), (10**30, 10**30)]
)
def test_whole_numbers(value, expected):
    assert loose_values.integral(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1, True), (0.0, False), ("1", True), ("False", False), (2, None), ("yes", None)],
)
def test_booleans(value, expected):
    assert loose_values.boolean(value) is expected
