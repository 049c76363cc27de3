"""Checks of names that come from files."""

import pytest

from common import names


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "a/b", "/a", "../a", "a\\b", "a\nb", "a\0b", "\x7f", "\x85", "\u2028"),
        *("\udcff", "x" * 256, "é" * 128, None, 3, b"a", ["a"]),
    ],
)
def test_invalid_file_names(name):
    assert not names.is_plain_name(name)


@pytest.mark.parametrize("name", ["a", "a b", "a.b", "...", "[*]?", "日本", "‌نام", "x" * 255, "🙂"])
def test_valid_file_names(name):
    assert names.is_plain_name(name)


def test_printable_escapes_control_characters():
    assert names.printable("a é") == "a é"
    assert names.printable("a\n\udcff'") == r"a\n\udcff'"


@pytest.mark.parametrize("wrong", [["a", ""], ["a", "a"], ["a\tb"], ["\ud800"], [3]])
def test_invalid_class_names(wrong):
    assert names.find_class_name_problem(["b", *wrong])
    assert names.find_class_name_problem(["a", "b"]) is None
