"""Files in uncompressed tar archives, also in archives within archives, as ranges of bytes.

Nothing is unpacked: a member of a tar is a range of the outer file, which any process reads with
one seek. An archive is untrusted: names are never paths, and every size is checked.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator

from common import folders
from common.names import printable
from input_fns import DataError
from input_fns.convert import files
from input_fns.convert.archive_members import LINKS, OUTSIDE, REPLACED
from input_fns.dataset_info import LeftOut

_ENDING = ".tar"
_BLOCK = 512
_MAX_DEPTH = 3  # ILSVRC has archives of classes in one archive
_MAX_HEADER_BYTES = 2**20  # of a long name, or of the records of pax
_COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ")


def find(path: str, left_out: LeftOut) -> dict[str, tuple[int, int]]:
    """Returns `{name: (offset, size)}` of the files in an archive, in its order.

    The name of a file in an inner archive "a.tar" starts with "a/". Names may have any characters.

    Args:
      path: local or gs://; read once from start to end, without the contents on a local disk.
      left_out: gets the members that are not files, and replaced ones.

    Raises:
      DataError: it is missing, truncated, compressed or not a tar.
    """
    found: dict[str, tuple[int, int]] = {}
    with files.opened(path) as file:
        for name, offset, size in _members(file, path, "", 0, folders.num_bytes(path), left_out):
            if name in found:  # as `tar --append` updates a file
                left_out.add(REPLACED, name)
            found[name] = offset, size
    return found


def _members(file, path, above, begin, end, left_out, depth=1):
    """Yields name, offset and size of the files of the archive in a range of a file."""
    where = printable(f"{path} ({above.rstrip('/')}{_ENDING})" if above else path)
    place, long_name, long_size = begin, "", None
    while head := _block(file, where, place, begin, end):
        info = _header(where, place, head)
        place += _BLOCK
        is_file = info.isreg() or info.type not in tarfile.SUPPORTED_TYPES
        is_header = info.type in (b"L", b"K", b"x", b"g", b"X")
        size = info.size if is_header or long_size is None else long_size
        num_bytes = size if is_file or is_header else 0
        if not 0 <= num_bytes <= end - place:
            raise DataError(
                f"{where} is truncated, or not valid: its member {printable(info.name)} at byte "
                f"{place} has {size} bytes, and {max(0, end - place)} are left. Download it again"
            )
        if is_header:
            long_name, long_size = _long(file, where, place, info, long_name, long_size)
        else:
            parts = [p for p in (long_name or info.name).split("/") if p not in ("", ".")]
            name = above + "/".join(parts)
            long_name, long_size = "", None
            is_inner = name.lower().endswith(_ENDING) and depth < _MAX_DEPTH
            if info.type == tarfile.GNUTYPE_SPARSE:
                raise DataError(f"{where} has a sparse file, {printable(name)}. Pack it again")
            if not info.isreg():
                if not info.isdir():
                    left_out.add(LINKS, name)
            elif ".." in parts or not parts:
                left_out.add(OUTSIDE, name)
            elif is_inner:
                inner = name[: -len(_ENDING)] + "/"
                inside = file, path, inner, place, place + size, left_out, depth + 1
                yield from _members(*inside)
            else:
                yield name, place, size
        place += -(-num_bytes // _BLOCK) * _BLOCK


def _block(file, where, place, begin, end):
    """Returns the block at a place; b"" for the empty one at the end of an archive."""
    file.seek(place)
    head = file.read(min(_BLOCK, end - place)) if place < end else b""
    if place == begin and head.startswith(_COMPRESSED):
        raise DataError(
            f"{where} is compressed. Decompress it, such as with gunzip, but do not unpack it"
        )
    if len(head) < _BLOCK:
        raise DataError(
            f"{where} is truncated: it has no end after byte {place}. Download it again"
        )
    return head if any(head) else b""


def _header(where, place, head):
    try:
        return tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError, OverflowError) as error:
        raise DataError(
            f"{where} has no valid header of a tar at byte {place}. Download it again"
        ) from error


def _long(file, where, place, info, name, size):
    """Returns the name and the size of the next member that a header states before it."""
    if info.type in (b"g", b"K"):  # of all members; of a link
        return name, size
    if info.size > _MAX_HEADER_BYTES:
        raise DataError(f"{where}: the header at byte {place} has {info.size} bytes, too many")
    data = file.read(info.size)  # it follows the block
    if info.type == b"L":
        return data.rstrip(b"\0").decode("utf-8", "surrogateescape"), size
    try:
        records = dict(_pax_records(data))
        size = int(records[b"size"]) if b"size" in records else size
    except ValueError as error:
        raise DataError(f"{where}: the header at byte {place} is not valid") from error
    return records.get(b"path", name.encode("utf-8", "surrogateescape")).decode(
        "utf-8", "surrogateescape"
    ), size


def _pax_records(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields keys and values of lines "LENGTH KEY=VALUE" (POSIX.1-2001, pax format)."""
    place = 0
    while place < len(data) and data[place]:
        digits = data[place : place + 8].partition(b" ")[0]
        length = int(digits)
        if length <= len(digits) + 2:
            raise ValueError("a record without a value")
        key, _, value = data[place + len(digits) + 1 : place + length - 1].partition(b"=")
        yield key, value
        place += length
