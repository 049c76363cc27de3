"""Parses rows of click logs in the format of Criteo, many at once; see `criteo`."""

from __future__ import annotations

import dataclasses
import re

import numpy as np

from common import names
from input_fns import DataError
from input_fns.convert import encodings

NUMBERS = tuple(f"I{i}" for i in range(1, 14))
CATEGORIES = tuple(f"C{i}" for i in range(1, 27))
WIDTH = 1 + len(NUMBERS) + len(CATEGORIES)  # values of a row
# Tools that know no missing integers write 3.0.
_NUMBER, _CATEGORY = re.compile(r"-?[0-9]{1,18}(\.0+)?"), re.compile(r"[0-9a-fA-F]{8}")
_VALUES = (
    rf"(\t({_NUMBER.pattern})?){{{len(NUMBERS)}}}(\t({_CATEGORY.pattern})?){{{len(CATEGORIES)}}}"
)
_ROW, _ROW_WITHOUT_LABEL = re.compile(f"[01]{_VALUES}"), re.compile(_VALUES)
_PAD = 8  # bytes around a block, so that 8 bytes before and after any place can be read
_ZEROS = np.uint64(0x3030303030303030)  # "00000000"


class InvalidLineError(ValueError):
    """A line that is no row.

    Attributes:
      row: its number, from 0.
      line: its bytes, without line feed; None if it is too long.
    """

    def __init__(self, row: int, line: bytes | None):
        """Takes the attributes."""
        super().__init__(row, line)
        self.row, self.line = row, line


@dataclasses.dataclass(frozen=True)
class Block:
    """Consecutive rows.

    Attributes:
      labels: uint8 `[n]`; 0 if the rows have no labels.
      numbers: float64 `[n, 13]`, NaN if missing.
      keys: uint32 `[n, 26]`, the value of each category as a number, 0 if missing.
      is_missing: bool `[n, 26]`, of the categories.
    """

    labels: np.ndarray
    numbers: np.ndarray
    keys: np.ndarray
    is_missing: np.ndarray


def parse(lines: bytes, has_labels: bool = True, first: int = 0) -> Block:
    r"""Parses lines that each end with \n, of the rows from `first`.

    Raises:
      InvalidLineError: one is no row.
    """
    block = _parse(lines, has_labels)
    if block is None:
        for row, line in enumerate(lines.split(b"\n")[:-1], start=first):
            if not _is_row(line, has_labels):
                raise InvalidLineError(row, line)
    return block


def _is_row(line, has_labels):
    """Whether a line is valid, by the definition of the format."""
    # Without a label, the first integer follows a tab in the pattern.
    pattern, begin = (_ROW, "") if has_labels else (_ROW_WITHOUT_LABEL, "\t")
    try:
        return pattern.fullmatch(begin + line.decode()) is not None
    except UnicodeDecodeError:
        return False


def _parse(lines, has_labels):
    """Returns the rows; None if a line is invalid."""
    width = WIDTH if has_labels else WIDTH - 1
    padded = bytes(_PAD) + lines + bytes(_PAD)
    text = np.frombuffer(padded, np.uint8)
    is_end = text == ord("\n")
    ends = np.flatnonzero(is_end | (text == ord("\t")))
    if len(ends) % width:
        return None
    ends = ends.reshape(-1, width)
    # As many line feeds as rows, and one at the end of each.
    if not is_end[ends[:, -1]].all() or np.count_nonzero(is_end) != len(ends):
        return None
    begins = np.empty_like(ends)
    begins.ravel()[0] = _PAD
    begins.ravel()[1:] = ends.ravel()[:-1] + 1
    # The 8 bytes from any place, the first one as the lowest.
    words = np.ndarray(len(padded) - 7, "<u8", padded, strides=(1,))
    labels = np.zeros(len(ends), np.uint8)
    if has_labels:
        labels = text[begins[:, 0]] - np.uint8(ord("0"))
        if (labels > 1).any() or (ends[:, 0] - begins[:, 0] != 1).any():
            return None
    middle = width - len(CATEGORIES)
    first = middle - len(NUMBERS)
    numbers = _parse_numbers(padded, text, words, begins[:, first:middle], ends[:, first:middle])
    keys = _parse_categories(words, begins[:, middle:], ends[:, middle:])
    if numbers is None or keys is None:
        return None
    return Block(labels, numbers, *keys)


def _parse_numbers(padded, text, words, begins, ends):
    """Returns the integers, float64, NaN if missing; None if one is invalid."""
    is_missing, is_negative = begins == ends, text[begins] == ord("-")
    first, last = begins + is_negative, ends
    if b"." in padded:
        last = ends - 2 * (words[ends - 2] & np.uint64(0xFFFF) == ord(".") | ord("0") << 8)
    sizes = last - first
    # The digits in the high bytes, "0" in the others.
    shifts = (8 * (8 - np.clip(sizes, 1, 8))).astype(np.uint64)
    kept = np.where(sizes > 0, ~np.uint64(0) << shifts, np.uint64(0))
    digits = (words[last - 8] & kept | _ZEROS & ~kept) ^ _ZEROS
    # A digit is at most 9: neither it nor it and 6 has one of the four high bits.
    high = (digits | digits + np.uint64(0x0606060606060606)) & np.uint64(0xF0F0F0F0F0F0F0F0)
    is_other = (high != 0) | (sizes > 8) | ((sizes <= 0) & ~is_missing)
    for factor, shift, mask in _STEPS:
        digits = digits * factor >> shift & mask
    numbers = digits.astype(np.float64)
    np.negative(numbers, out=numbers, where=is_negative)
    numbers[is_missing] = np.nan
    for i in zip(*np.nonzero(is_other)):  # such as over 8 digits
        value = padded[begins[i] : ends[i]].decode("latin-1")
        if not _NUMBER.fullmatch(value):
            return None
        numbers[i] = float(value)
    return numbers


# Digits to pairs of digits, to pairs of these, to the number.
_STEPS = [
    (np.uint64(factor), np.uint64(shift), np.uint64(mask))
    for factor, shift, mask in (
        (10 << 8 | 1, 8, 0x00FF00FF00FF00FF),
        (100 << 16 | 1, 16, 0x0000FFFF0000FFFF),
        (10000 << 32 | 1, 32, 0xFFFFFFFF),
    )
]


def _hex_pairs():
    """Returns the number that each two characters are, 2**32 if they are none."""
    digit = {ord(f"{i:x}"): i for i in range(16)} | {ord(f"{i:X}"): i for i in range(16)}
    found = np.full(2**16, 2**32, np.int64)
    for first, high in digit.items():
        for second, low in digit.items():
            found[second << 8 | first] = high << 4 | low
    return found


_HEX_PAIRS = _hex_pairs()


def _parse_categories(words, begins, ends):
    """Returns keys and which are missing; None if one is invalid."""
    sizes = ends - begins
    is_missing = sizes == 0
    if not (is_missing | (sizes == 8)).all():
        return None
    pairs = np.where(is_missing, _ZEROS, words[begins])[..., None].view("<u2")
    keys = _HEX_PAIRS[pairs[..., 0]]
    for i in range(1, 4):
        keys = keys << 8 | _HEX_PAIRS[pairs[..., i]]
    return (keys.astype(np.uint32), is_missing) if keys.max(initial=0) < 2**32 else None


def find_problem(path: str, number: int, line: bytes | None, has_labels: bool) -> DataError:
    """Returns the error of a line that is no row.

    Args:
      path: its file.
      number: its number, from 1.
      line: see `InvalidLineError`.
      has_labels: whether rows have labels.
    """
    if line is None:
        return DataError(f"{path}, line {number}: over 64 MiB")
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        return encodings.error(path, line, error, "utf-8", False, number - 1)
    problem = _find_problem(text if has_labels else f"0\t{text}", has_labels)
    return DataError(f"{path}, line {number}: {problem}. Correct or remove it")


def _find_problem(line, has_labels):
    """Returns what is wrong with a row."""
    values = line.split("\t")
    if not has_labels and len(values) != WIDTH:
        return f"{len(values) - 1} values instead of {WIDTH - 1}: the first row has no label"
    if len(values) == WIDTH - 1:
        return f"{WIDTH - 1} values instead of {WIDTH}: a row without a label cannot be used"
    if len(values) != WIDTH:
        return f"{len(values)} value{'s' * (len(values) > 1)} instead of {WIDTH}"
    if values[0] not in ("0", "1"):
        return f"the label {names.shown(values[0])!a} is not 0 or 1"
    for name, value in zip((*NUMBERS, *CATEGORIES), values[1:]):
        if name in NUMBERS and value and not _NUMBER.fullmatch(value):
            return f"{name} {names.shown(value)!a} is not an integer"
        if name in CATEGORIES and value and not _CATEGORY.fullmatch(value):
            return f"{name} {names.shown(value)!a} is not 8 hexadecimal digits"
    return "invalid"


def transform_numbers(numbers: np.ndarray) -> np.ndarray:
    """Returns log(1 + x), and 0 for x < 0 and NaN."""
    return np.log1p(np.maximum(np.nan_to_num(numbers), 0))
