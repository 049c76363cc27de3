"""Encodings of text files: UTF-8, as their byte order mark or a flag says, or Windows-1252.

A file without a byte order mark that is not UTF-8 is read as Windows-1252 only if nothing else is
likely: nearly all of it is ASCII, and its other characters are as in Western European text.
"""

from __future__ import annotations

import codecs
import itertools
import re
from collections.abc import Iterable
from typing import NamedTuple

from common.names import shown
from input_fns import DataError

WESTERN = "cp1252"
# UTF-32 first: its mark starts as that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# First bytes of files that are not text.
_NO_TEXT = {
    b"\x1f\x8b": "packed with gzip: its name must end in .gz",
    b"\xfd7zXZ": "packed with xz: its name must end in .xz",
    b"PK\x03\x04": "a ZIP archive, such as of Excel (.xlsx): unpack it, or save it as CSV",
    b"\xd0\xcf\x11\xe0": "a file of Excel (.xls): save it as CSV",
    b"PAR1": "Parquet: write it as CSV or JSON lines, such as with pandas",
    b"SQLite format 3": "a data base of SQLite: write its table as CSV",
}
_MULTI_BYTE = ("gb18030", "shift_jis", "euc_jp", "big5", "euc_kr")
_SINGLE_BYTE = {WESTERN: "Western Europe", "cp1250": "Central Europe", "cp1251": "Cyrillic"}
_MAX_LISTED = 5  # lines in an error
_LOOKED_AT = 2**16
_RUN = re.compile(rb"[\x80-\xff]+")
# Text in other encodings, read as Windows-1252: letters of other languages, ...
_ODD = re.compile(
    "[ðþýšžÐÞÝŠŽÿŸ¤¦¨¯¸¹ƒˆ˜†‡‰]"  # noqa: RUF001
    # ... symbols inside a word, ...
    "|(?<=[A-Za-z])[€‚„‹›“”•¡¢£¥§©«¬±²³µ¶»¼½¾¿×÷](?=[A-Za-z])"  # noqa: RUF001
    # ... a capital after a small letter, ...
    "|(?<=[a-z])[À-ÖØ-Þ]"
    # ... and a letter of Portuguese that is elsewhere in a word than there.
    "|[õÕ](?![eE])"
)
_LONGEST_RUN = 3
_FEWEST, _FEW, _SOME, _MANY = 0.001, 0.01, 0.1, 0.2  # shares


def split_mark(start: bytes) -> tuple[str, int]:
    """Returns the encoding that a byte order mark names and its size; ("", 0) without one."""
    for mark, encoding in _MARKS:
        if start.startswith(mark):
            return encoding, len(mark)
    return "", 0


def name_of(encoding: str | None) -> str:
    """Returns the name of an encoding of bytes without a byte order mark; UTF-8 for "" or None."""
    name = codecs.lookup(encoding or "utf-8").name
    return f"{name}-le" if name in ("utf-16", "utf-32") else name


def is_western(pieces: Iterable[bytes]) -> bool:
    """Whether the bytes of a file that is not UTF-8 are evidently text in Windows-1252."""
    size = high = runs = alone = utf8 = odd = 0
    for piece in pieces:
        found = _RUN.findall(piece)
        if max(map(len, found), default=0) > _LONGEST_RUN or b"\0" in piece:
            return False
        try:
            odd += len(_ODD.findall(piece.decode(WESTERN)))
        except UnicodeDecodeError:  # 5 bytes have no character
            return False
        size += len(piece)
        high += sum(map(len, found))
        runs += len(found)
        alone += sum(len(run) == 1 for run in found)
        utf8 += sum(map(is_utf8, found))
    if not runs or utf8 > _SOME * runs:  # UTF-8 with some broken characters
        return False
    if high <= _FEWEST * size:
        return alone >= _SOME * runs
    if high <= _FEW * size:
        return alone >= _SOME * runs and odd <= 0.4 * high
    return high <= _MANY * size and alone >= 0.6 * runs and odd <= 0.02 * high


def is_utf8(data: bytes) -> bool:
    """Whether bytes are valid UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def error(
    path: str,
    data: bytes,
    problem: UnicodeError,
    name: str,
    has_flag: bool,
    lines_before: int = 0,
    pieces: Iterable[bytes] = (),
    is_marked: bool = False,
) -> DataError:
    """Returns the error for bytes that have no text.

    Args:
      path: the file.
      data: the bytes that were decoded.
      problem: the error of the decoder.
      name: the encoding.
      has_flag: whether --encoding can name the encoding.
      lines_before: number of lines before `data`.
      pieces: bytes of the whole file without a byte order mark; () if `data` are.
      is_marked: whether a byte order mark names the encoding.
    """
    advice = _advice(data, name, has_flag, _survey(pieces or [data]), is_marked)
    if not isinstance(problem, UnicodeDecodeError):  # of encodings of host names
        return DataError(f"{path}: no {name} ({shown(str(problem))}). {advice}")
    line = lines_before + _count_lines(data[: problem.start], name) + 1
    name = "UTF-8" if name == "utf-8" else name
    place = "" if lines_before else f", byte {problem.start}"
    return DataError(f"{path}, line {line}{place}: no {name} ({problem.reason}). {advice}")


def _count_lines(data, name):
    if not name.startswith(("utf-16", "utf-32")):
        return data.count(b"\n")
    return data.decode(name, "replace").count("\n")


class _Survey(NamedTuple):
    """Lines of a file, read as UTF-8.

    Attributes:
      num_valid: number of lines with characters beyond ASCII.
      num_invalid: number of lines that are not UTF-8.
      first: numbers of the first of these, from 1.
    """

    num_valid: int
    num_invalid: int
    first: list[int]

    @property
    def is_utf8(self) -> bool:
        """Whether the file is UTF-8, but for some lines."""
        return self.num_valid >= self.num_invalid

    @property
    def invalid(self) -> str:
        """The invalid lines, for a message: "line 7" or "each of the 12 lines 7, 9, ..."."""
        listed = ", ".join(map(str, self.first))
        if self.num_invalid == 1:
            return f"line {listed}"
        more = ", ..." if self.num_invalid > len(self.first) else ""
        return f"each of the {self.num_invalid} lines {listed}{more}"


def _survey(pieces):
    num_lines, num_valid, num_invalid, rest = 0, 0, 0, b""
    first: list[int] = []
    for piece in itertools.chain(pieces, [b"\n"]):
        *lines, rest = (rest + piece).split(b"\n")
        for number, line in enumerate(lines, start=num_lines + 1):
            if line.isascii():
                continue
            if is_utf8(line):
                num_valid += 1
                continue
            num_invalid += 1
            if len(first) < _MAX_LISTED:
                first.append(number)
        num_lines += len(lines)
    return _Survey(num_valid, num_invalid, first)


def _advice(data, name, has_flag, survey, is_marked):
    if name == "utf-8" and (survey.is_utf8 or is_marked):
        return f"All other lines are UTF-8. Write {survey.invalid} in UTF-8, or remove it"
    if is_marked or not has_flag:
        return "Convert the file to UTF-8, for example with iconv"
    if name != "utf-8" and not survey.num_invalid:
        return "The file is UTF-8: leave out --encoding"
    if name != "utf-8" and survey.is_utf8:
        return (
            f"All other lines are UTF-8. Write {survey.invalid} in UTF-8, or remove it, and leave "
            "out --encoding"
        )
    start = data[:_LOOKED_AT]
    longest = max(map(len, _RUN.findall(start)), default=0)
    likely = [n for n in _MULTI_BYTE if longest > _LONGEST_RUN and n != name and _decodes(start, n)]
    if likely:
        return f"It may be {' or '.join(likely)}: name its encoding, such as --encoding={likely[0]}"
    others = [f"{other} ({region})" for other, region in _SINGLE_BYTE.items() if other != name]
    return f"Name its encoding, such as --encoding={', '.join(others[:-1])} or {others[-1]}"


def _decodes(data, encoding):
    try:
        codecs.getincrementaldecoder(encoding)().decode(data)
    except UnicodeDecodeError:
        return False
    return True


def check_start(path: str, start: bytes, has_flag: bool) -> None:
    """Raises `DataError` if text without a byte order mark is UTF-16, or a file is not text.

    Half of UTF-16 is NUL bytes.
    """
    for magic, kind in _NO_TEXT.items():
        if start.startswith(magic):
            raise DataError(f"{path} is not text but {kind}")
    start = start[:_LOOKED_AT]
    if start.count(0) <= len(start) / 4:
        return
    encoding = "utf-16-be" if start[::2].count(0) > start[1::2].count(0) else "utf-16-le"
    what = f"Name its encoding: --encoding={encoding}" if has_flag else "Convert the file to UTF-8"
    raise DataError(
        f"{path} has {start.count(0)} NUL bytes in its first {len(start)}: it may be {encoding} "
        f"without a byte order mark. {what}"
    )
