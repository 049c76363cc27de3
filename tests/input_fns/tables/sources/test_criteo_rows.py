"""Rows of click logs that are parsed together are those of a parser of one line."""

import re

import numpy as np
import pytest

from input_fns.tables.sources import criteo_rows

NUMBERS = [
    "",
    "0",
    "7",
    "-1",
    "12345678",
    "123456789",
    "-" + "9" * 18,
    "3.0",
    "-3.0",
    "4.00",
    "007",
]
CATEGORIES = ["", "00000000", "ffffffff", "ABCDEF01", "09afAF90"]
WRONG = (
    *["-", ".0", "3.", "3.1", "-.0", "3.0.0", "+1", "1e3", "--1", "9" * 19, "1 ", " 1", "nan"],
    *["0000000", "000000000", "0000000g", "0x000000", "+0000000", "0000000:", "0000000/", "é"],
    *[
        "0000000@",
        "0000000`",
        "0000000\x11",
        "abc\rdef0",
        "0000\x00000",
        "1:",
        "1/",
        "\u0661",
        "\r",
    ],
)


def value_of(text):
    """The number, or NaN; None if the text is not valid."""
    if not re.fullmatch(r"(-?[0-9]{1,18}(\.0+)?)?", text):
        return None
    return float(text or "nan")


def key_of(text):
    """The number of a category, -1 if it is missing; None if the text is not valid."""
    if not re.fullmatch("([0-9a-fA-F]{8})?", text):
        return None
    return int(text or "-1", 16)


def random_rows(random, size, has_labels):
    """Texts of the values of valid rows."""
    return [
        [
            *random.choice(["0", "1"], int(has_labels)),
            *random.choice(NUMBERS, 13),
            *random.choice(CATEGORIES, 26),
        ]
        for _ in range(size)
    ]


def as_bytes(rows):
    return "".join("\t".join(row) + "\n" for row in rows).encode()


@pytest.mark.parametrize("has_labels", [True, False])
def test_numbers_keys_and_labels_of_valid_rows(has_labels):
    rows = random_rows(np.random.default_rng(1), 50, has_labels)
    block = criteo_rows.parse(as_bytes(rows), has_labels)
    labels = [int(row[0]) if has_labels else 0 for row in rows]
    assert block.labels.tolist() == labels
    expected = [[value_of(text) for text in row[has_labels : has_labels + 13]] for row in rows]
    np.testing.assert_array_equal(block.numbers, expected)
    keys = np.array([[key_of(text) for text in row[has_labels + 13 :]] for row in rows])
    assert (block.is_missing == (keys < 0)).all()
    assert (block.keys == np.maximum(keys, 0)).all()


@pytest.mark.parametrize("wrong", [*WRONG, *NUMBERS, *CATEGORIES], ids=ascii)
def test_the_first_line_with_an_invalid_value_is_named(wrong):
    random = np.random.default_rng(2)
    for column in range(40):
        rows = random_rows(random, 5, True)
        rows[3][column] = rows[4][column] = wrong
        check = (lambda text: text in ("0", "1") or None) if column == 0 else value_of
        if (key_of if column > 13 else check)(wrong) is not None:
            criteo_rows.parse(as_bytes(rows))
            continue
        with pytest.raises(criteo_rows.InvalidLineError) as found:
            criteo_rows.parse(as_bytes(rows), first=10)
        assert (found.value.row, found.value.line) == (13, as_bytes(rows[3:4])[:-1])


@pytest.mark.parametrize(
    "change",
    [
        lambda values: values[:-1],
        lambda values: [*values, ""],
        lambda values: [],
        lambda values: [*values[:20], values[20] + "\n", *values[20:-1]],
    ],
)
def test_a_line_with_another_number_of_values_is_named(change):
    rows = random_rows(np.random.default_rng(3), 6, True)
    for row in (0, 4, 5):
        lines = as_bytes([*rows[:row], change(rows[row]), *rows[row + 1 :]])
        with pytest.raises(criteo_rows.InvalidLineError) as found:
            criteo_rows.parse(lines)
        assert found.value.row == row
    # 39 values and then 41.
    lines = as_bytes([rows[0][:-1], [*rows[1], "0"], *rows[2:]])
    with pytest.raises(criteo_rows.InvalidLineError) as found:
        criteo_rows.parse(lines)
    assert found.value.row == 0


def test_a_line_that_is_not_utf_8_is_named_with_its_number():
    error = criteo_rows.find_problem("a.txt", 7, b"1\t\xff", True)
    assert str(error).startswith("a.txt, line 7: no UTF-8 (invalid start byte). Convert the file")
