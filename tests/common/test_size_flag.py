"""Flags that hold an image size."""

import pytest
from absl import flags

from common.size_flag import SizeParser, SizeSerializer


@pytest.fixture
def values():
    values = flags.FlagValues()
    flags.DEFINE(
        SizeParser(), "size", None, "A size.", flag_values=values, serializer=SizeSerializer()
    )
    return values


@pytest.mark.parametrize(
    ("text", "size"), [("224", (224, 224)), ("224x320", (224, 320)), ("1x1", (1, 1))]
)
def test_valid_sizes(values, text, size):
    values(["program", f"--size={text}"])
    assert values.size == size
    assert values["size"].serialize() == f"--size={size[0]}x{size[1]}"


@pytest.mark.parametrize("text", ["", "0", "224x", "x3", "2.5", "-3", "3x4x5", "224X224"])
def test_invalid_sizes(values, text):
    with pytest.raises(flags.IllegalFlagValueError, match="must be SIZE or HEIGHTxWIDTH"):
        values(["program", f"--size={text}"])
