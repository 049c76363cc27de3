"""Files in tar and zip archives, which are read as ranges of bytes, without unpacking the archive.

Imports no TensorFlow: worker processes read them.
"""

from __future__ import annotations

import struct
import zlib
from typing import BinaryIO

ENDINGS = (".tar", ".zip")
# Why a file in an archive is left out.
LINKS = "links and special files in archives"
OUTSIDE = "files in archives whose names have '..'"
REPLACED = "files in archives that a later one of the same name replaces"
# The header before the data of a file in a zip (PKWARE's APPNOTE.TXT, 4.3.7).
_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_STORED, _DEFLATED = METHODS = (0, 8)
_HAS_DESCRIPTOR = 8  # the checksum follows the data
_PIECE_BYTES = 2**20


class MemberError(ValueError):
    """A file in an archive that cannot be read; the message is the reason."""


class Member(str):
    """The path that a file in an archive would have if the archive were unpacked.

    Attributes:
      archive: path of the archive, local or gs://.
      offset: where its bytes begin in a tar, or its header in a zip.
      size: number of its bytes in the archive, compressed or not.
      copy: path of the decompressed archive, a temporary file; "" if it is not compressed.
    """

    archive: str
    offset: int
    size: int
    copy: str

    def __new__(cls, path: str, archive: str, offset: int, size: int, copy: str = ""):
        """Takes the path and the attributes."""
        self = super().__new__(cls, path)
        self.archive, self.offset, self.size, self.copy = archive, offset, size, copy
        return self

    def __reduce__(self):
        return Member, (str(self), self.archive, self.offset, self.size, self.copy)


class MemberFile:
    """The content of a file in an archive: in a zip it is read once, from its start.

    A wrong checksum of a zip is found when the end is read.
    """

    def __init__(self, file: BinaryIO, member: Member):
        """Takes the opened archive, which is closed with this object.

        Raises:
          MemberError: the header is not valid.
        """
        self._file, self._member, self._left = file, member, member.size
        self._inflate, self._crc = None, None
        file.seek(member.offset)
        if member.archive.lower().endswith(".zip"):
            self._read_header(member)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._file.close()

    def _read_header(self, member):
        head = self._file.read(_LOCAL.size)
        if len(head) < _LOCAL.size or not head.startswith(b"PK\3\4"):
            raise MemberError("its header in the archive is not valid")
        _, _, flags, method, _, _, crc, _, _, *sizes = _LOCAL.unpack(head)
        if method not in METHODS or flags & 1:
            raise MemberError("its header in the archive differs from the list of files")
        self._file.read(sum(sizes))  # the name again, and extra fields
        self._inflate = zlib.decompressobj(-zlib.MAX_WBITS) if method == _DEFLATED else None
        self._found_crc, self._crc = 0, crc
        # Where the checksum is, if it is not in the header.
        end = member.offset + _LOCAL.size + sum(sizes) + member.size
        self._descriptor = end if flags & _HAS_DESCRIPTOR else None

    def seek(self, place: int) -> None:
        """Moves to a byte of a file in a tar."""
        self._file.seek(self._member.offset + place)
        self._left = max(0, self._member.size - place)

    def read(self, size: int = -1) -> bytes:
        """Returns the next bytes, as many as asked for; all if `size` is negative.

        Raises:
          MemberError: the file is truncated or damaged.
        """
        pieces = []
        while size:
            piece = self._inflated(size) if self._inflate else self._stored(size)
            if not piece:
                self._check()
                break
            if self._crc is not None:
                self._found_crc = zlib.crc32(piece, self._found_crc)
            pieces.append(piece)
            size -= len(piece) if size > 0 else 0
        return b"".join(pieces)

    def _stored(self, size):
        wanted = min(size, self._left) if size > 0 else self._left
        piece = self._file.read(wanted) if wanted else b""
        self._left -= len(piece)
        if wanted and not piece:
            raise MemberError("the archive is truncated")
        return piece

    def _inflated(self, size):
        most = min(size, _PIECE_BYTES) if size > 0 else _PIECE_BYTES
        while not self._inflate.eof:
            packed = self._inflate.unconsumed_tail
            if not packed:
                packed = self._file.read(min(self._left, _PIECE_BYTES))
                self._left -= len(packed)
            try:
                piece = self._inflate.decompress(packed, most)
            except zlib.error as error:
                raise MemberError(f"its compressed data are not valid: {error}") from error
            if piece:
                return piece
            if not (packed or self._inflate.eof):
                raise MemberError("its compressed data end too early")
        return b""

    def _check(self):
        """Checks the checksum, once."""
        expected, self._crc = self._crc, None
        if expected is None:
            return
        if self._descriptor is not None:
            self._file.seek(self._descriptor)
            expected = int.from_bytes(self._file.read(8).removeprefix(b"PK\7\x08")[:4], "little")
        if expected != self._found_crc:
            raise MemberError("its checksum differs from that in the archive")
