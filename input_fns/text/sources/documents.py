"""Documents of text files, in parts that worker processes read.

`document_forms` says what a document is. A plain file in UTF-8 is cut between documents; any other
file is read from its start.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from common import files, folders
from input_fns import DataError
from input_fns.convert import encodings
from input_fns.convert import files as source_files
from input_fns.convert.runners import Runner
from input_fns.convert.shard_tasks import CHANGED
from input_fns.text.sources import document_forms

_PART_BYTES = 2**22
_MAX_PARTS = 256  # of a split: larger texts have larger parts
_READ_BYTES = 2**16


@dataclasses.dataclass(frozen=True)
class Piece:
    """A range of a text file with whole documents.

    Attributes:
      path: the file.
      encoding: see `files.decode`.
      begin: where it begins.
      end: where it ends; None for the whole file.
      num_bytes: its size in the file.
      num_documents: number of its documents.
      form: see `document_forms.documents`.
    """

    path: str
    encoding: str | None
    begin: int
    end: int | None
    num_bytes: int
    num_documents: int = 0
    form: str = ""

    def __iter__(self) -> Iterator[list[str]]:
        """Yields the sentences of each document."""
        # Another encoding than UTF-8 must be decoded from the start of the file.
        encoding = self.encoding if self.end is None else None
        lines = source_files.iterate_lines(self.path, encoding, self.begin, self.end)
        yield from document_forms.documents(lines, self.form, self.path)


@dataclasses.dataclass(frozen=True)
class Part:
    """Some documents of successive pieces, which one task reads.

    Attributes:
      pieces: the pieces.
      indices: sorted numbers of the documents in these pieces, `[documents]`.
    """

    pieces: tuple[Piece, ...]
    indices: np.ndarray

    def __iter__(self) -> Iterator[list[str]]:
        """Yields the sentences of each document.

        Raises:
          DataError: a file has changed since its documents were counted.
        """
        is_chosen = np.zeros(sum(piece.num_documents for piece in self.pieces), bool)
        is_chosen[self.indices] = True
        begin = 0
        for piece in self.pieces:
            count = -1
            for count, document in enumerate(piece):
                if count < piece.num_documents and is_chosen[begin + count]:
                    yield document
            if count + 1 != piece.num_documents:
                raise DataError(
                    f"{piece.path} has {count + 1} documents instead of {piece.num_documents} in a "
                    f"part of it. {CHANGED}"
                )
            begin += piece.num_documents


@dataclasses.dataclass(frozen=True)
class Sentences:
    """The sentences of a part."""

    part: Part

    def __iter__(self) -> Iterator[str]:
        return itertools.chain.from_iterable(self.part)


def find_pieces(paths: Sequence[str], encoding: str | None, runner: Runner) -> tuple[Piece, ...]:
    """Returns the pieces of files, with their numbers of documents.

    Raises:
      DataError: a file is missing or has another encoding.
    """
    size = _part_bytes(sum(map(_num_bytes, paths)))
    pieces = [piece for path in paths for piece in _cut(path, encoding, size)]
    found = list(_counted(pieces, size, runner))
    # Cut, but not in UTF-8: these are read as a whole, which names the line of an error.
    odd = {piece.path for piece in found if piece.num_documents < 0}
    whole = (_whole(path, encoding) for path in paths if path in odd)
    again = {piece.path: piece for piece in _counted(whole, size, runner)}
    kept = {(piece.path, piece.begin * (piece.path not in odd)): piece for piece in found}
    return tuple(again.get(path, piece) for (path, _), piece in kept.items())


def cut_split(pieces: Sequence[Piece], indices: np.ndarray) -> Iterator[Part]:
    """Yields the parts of sorted numbers of documents, `[documents]`; none is empty."""
    begin = 0
    for some in _grouped(pieces, _part_bytes(sum(piece.num_bytes for piece in pieces))):
        end = begin + sum(piece.num_documents for piece in some)
        first, last = np.searchsorted(indices, [begin, end]).tolist()
        if first < last:
            yield Part(tuple(some), indices[first:last] - indices.dtype.type(begin))
        begin = end


def _part_bytes(total):
    return max(_PART_BYTES, -(-total // _MAX_PARTS))


def _grouped(pieces, size):
    """Yields lists of successive pieces of `size` bytes."""
    some, num_bytes = [], 0
    for piece in pieces:
        some.append(piece)
        num_bytes += piece.num_bytes
        if num_bytes >= size:
            yield some
            some, num_bytes = [], 0
    if some:
        yield some


def _counted(pieces, size, runner):
    """Yields the pieces with their numbers of documents, -1 if one is not in UTF-8."""
    for some in runner.apply(_count, _grouped(pieces, size)):
        for piece, notes in some:
            for line in notes:
                source_files.note(line)
            yield piece


def _count(pieces):
    found = []
    for piece in pieces:
        notes: list[str] = []
        with source_files.recording(notes.append):
            try:
                count = sum(1 for _ in piece)
            except DataError:
                if piece.end is None:
                    raise
                count = -1
        found.append((dataclasses.replace(piece, num_documents=count), notes))
    return found


def _num_bytes(path):
    return folders.num_bytes(path) if folders.is_file(path) else 0  # reading it is an error


def _whole(path, encoding):
    return Piece(path, encoding, 0, None, _num_bytes(path))


def _cut(path, encoding, size):
    """Yields the pieces of a file, of some `size` bytes."""
    num_bytes = _num_bytes(path)
    if num_bytes <= size or source_files.split_packed(path)[1]:
        yield _whole(path, encoding)
        return
    with files.open_bytes(path) as file:
        marked, _ = encodings.split_mark(file.read(4))
        if (marked or encodings.name_of(encoding)) != "utf-8":
            yield _whole(path, encoding)
            return
        lines = source_files.iterate_lines(path, encoding)
        form = document_forms.form_of(next(filter(str.strip, lines), ""))
        begin = 0
        while begin < num_bytes:
            end = num_bytes
            if begin + size < num_bytes:
                end = _next_document(file, begin + size, document_forms.ENDS[form])
            yield Piece(path, encoding, begin, end, end - begin, form=form)
            begin = end


def _next_document(file, offset, pattern):
    """Returns where a document ends at or after an offset; the end of the file without one."""
    file.seek(offset)
    data = b""
    for piece in iter(functools.partial(file.read, _READ_BYTES), b""):
        data += piece
        if found := pattern.search(data):
            return offset + found.end()
        start = max(0, data.rfind(b"\n"))
        data, offset = data[start:], offset + start
    return offset + len(data)
