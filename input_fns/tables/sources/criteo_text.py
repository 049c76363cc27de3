"""Reads the lines of click logs in blocks of bytes, from any row; see `criteo`."""

from __future__ import annotations

import dataclasses
import itertools
import os
import threading
from collections.abc import Iterator

import numpy as np

from input_fns.convert import encodings, files
from input_fns.convert.files import PACKED
from input_fns.convert.shared_array import SharedArray
from input_fns.tables.sources.criteo_rows import Block, InvalidLineError, find_problem, parse

_BLOCK_BYTES = 2**21
_START_BYTES = 2**16
_MAX_LINE_BYTES = 2**26
_DECODED_LINES = 2**12  # of a block


@dataclasses.dataclass(frozen=True)
class LogFile:
    """A file of a click log.

    Attributes:
      path: local or gs://.
      size: number of rows.
      places: int64 `[n, 2]`, some rows and the bytes of the file where they begin, in order.
    """

    path: str
    size: int
    places: SharedArray

    def blocks(self, rows: range) -> Iterator[tuple[int, bytes]]:
        r"""Yields the first row and the lines, which each end with \n, of blocks of some rows.

        A file that has only one place to begin is read on from the rows that the thread read last.
        """
        files.record(self.path)  # also if an earlier shard has opened it
        places = self.places.array
        place = np.searchsorted(places[:, 0], rows.start, "right") - 1
        row, offset = places[place].tolist()
        before = getattr(_reading, "last", None)
        _reading.last = None  # until its rows are read
        # A child process shares the place in a file that its parent has opened.
        key = os.getpid(), self.places.path  # a file of this run
        if before and before[0] == key and row <= before[1] <= rows.start:
            row, blocks = before[1:]
        else:
            blocks = iterate_blocks(self.path, offset, row=row)
        for begin, lines in blocks:
            end = row + lines.count(b"\n")
            inside = range(max(row, rows.start), min(end, rows.stop))
            if inside:
                yield inside.start, _chosen(lines, inside.start - row, inside.stop - row)
            if end >= rows.stop:
                # A later reader may need the rest of the block.
                _reading.last = key, row, itertools.chain([(begin, lines)], blocks)
                return
            row = end


@dataclasses.dataclass(frozen=True)
class ClickLog:
    """Consecutive rows in one file, or in a file for each day."""

    files: tuple[LogFile, ...]

    def blocks(self, rows: range, has_labels: bool) -> Iterator[Block]:
        """Yields consecutive rows.

        Raises:
          DataError: a row is invalid; the message names its line.
        """
        begin = 0
        for file in self.files:
            inside = range(max(0, rows.start - begin), min(file.size, rows.stop - begin))
            begin += file.size
            if not inside:
                continue
            try:
                for row, lines in file.blocks(inside):
                    yield parse(lines, has_labels, row)
            except InvalidLineError as error:
                raise find_problem(file.path, error.row + 1, error.line, has_labels) from None


# `last` of a thread: the file that it reads, the row of the next block, and the blocks.
_reading = threading.local()


def _chosen(lines, begin, end):
    """Returns some of the lines."""
    ends = np.flatnonzero(np.frombuffer(lines, np.uint8) == ord("\n"))
    if (begin, end) == (0, len(ends)):
        return lines
    return lines[ends[begin - 1] + 1 if begin else 0 : ends[end - 1] + 1]


def is_cut(path: str) -> bool:
    """Whether a file can be read from any of its bytes: it is not packed, and UTF-8."""
    if path.endswith(PACKED):
        return False
    return encodings.split_mark(files.read_start(path, _START_BYTES))[0] in ("", "utf-8")


def iterate_blocks(
    path: str, begin: int = 0, end: int | None = None, row: int = 0
) -> Iterator[tuple[int, bytes]]:
    r"""Yields lines of a file in blocks of 2 MiB, and the byte where each block begins.

    Args:
      path: local or gs://, plain, .gz or .xz.
      begin: first byte, of the unpacked file.
      end: the byte after the last one. The lines whose first byte is in this range are read.
      row: number of the first of them, for the error.

    Yields:
      A byte of the unpacked file, and lines, which each end with \n.

    Raises:
      InvalidLineError: a line is over 64 MiB.
      DataError: see `files.iterate_lines`.
    """
    if begin:
        place, mark, is_inside = begin - 1, 0, False  # the line that begins before is skipped
    else:
        start = files.read_start(path, _START_BYTES)
        encoding, mark = encodings.split_mark(start)
        if encoding not in ("", "utf-8"):
            lines = files.iterate_lines(path)
            while block := list(itertools.islice(lines, _DECODED_LINES)):
                yield 0, "\n".join([*block, ""]).encode()
            return
        encodings.check_start(path, start, False)
        place, is_inside = mark, True
    with files.opened(path) as file:
        file.seek(place)
        rest = b""
        for piece in iter(lambda: file.read(_BLOCK_BYTES), b""):
            if not is_inside:
                skipped = piece.find(b"\n") + 1
                is_inside = skipped > 0
                place += skipped or len(piece)
                piece = piece[skipped:] if is_inside else b""
            piece = rest + piece
            size = piece.rfind(b"\n") + 1
            if end is not None and place + len(piece) >= end:
                if place >= end:
                    return
                last = piece.find(b"\n", end - 1 - place)
                size = size if last < 0 else last + 1
            if size:
                lines = piece[:size]
                lines = lines.replace(b"\r\n", b"\n") if b"\r" in lines else lines
                yield 0 if place == mark else place, lines
                row += lines.count(b"\n")
            place, rest = place + size, piece[size:]
            if len(rest) > _MAX_LINE_BYTES:
                raise InvalidLineError(row, None)
        if rest and (end is None or place < end):
            yield 0 if place == mark else place, rest.removesuffix(b"\r") + b"\n"
