"""Files in zip archives, from the list at their end: the central directory.

An archive is untrusted: names are never paths, files must not overlap, and `MemberFile` unpacks no
more than its reader asks for.
"""

from __future__ import annotations

import errno
import stat
import struct
import zipfile

from common import folders
from common.names import printable
from input_fns import DataError
from input_fns.convert import files
from input_fns.convert.archive_members import LINKS, METHODS, OUTSIDE, REPLACED
from input_fns.dataset_info import LeftOut

_HEADER_BYTES = 30  # before the name and the data of a file
_ENCRYPTED, _UTF_8 = 1, 1 << 11  # bits of the flags


def find(path: str, left_out: LeftOut) -> dict[str, tuple[int, int]]:
    """Returns `{name: (offset of its header, compressed size)}` of the files in an archive.

    Args:
      path: local or gs://.
      left_out: gets the members that are not files, and replaced ones.

    Raises:
      DataError: it is missing, truncated or not a zip, or has an encrypted file, overlapping files,
        or one whose compression is not deflate.
    """
    where = printable(path)
    with files.opened(path) as file:
        try:
            infos = zipfile.ZipFile(file).infolist()
        except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error) as error:
            raise _not_valid(where, error) from error
        except OSError as error:
            if error.errno != errno.EINVAL:  # of a wrong offset
                raise
            raise _not_valid(where, error) from error
    _require_apart(where, infos, folders.num_bytes(path))
    name_of = _names(where, infos)
    found: dict[str, tuple[int, int]] = {}
    for info in infos:
        # Some programs of Windows write back slashes.
        parts = [p for p in name_of[info].replace("\\", "/").split("/") if p not in ("", ".")]
        name = "/".join(parts)
        kind = stat.S_IFMT(info.external_attr >> 16)
        if info.filename.endswith(("/", "\\")) or kind == stat.S_IFDIR:
            continue
        if kind not in (0, stat.S_IFREG):
            left_out.add(LINKS, name)
        elif ".." in parts or not parts:
            left_out.add(OUTSIDE, name)
        else:
            _require_readable(where, info, name)
            if name in found:
                left_out.add(REPLACED, name)
            found[name] = info.header_offset, info.compress_size
    return found


def _not_valid(where, error):
    reason = printable(str(error))[:100]
    return DataError(f"{where} is truncated, or not a zip ({reason}). Download it again")


def _names(where, infos):
    """Returns `{info: name}`. macOS writes UTF-8 without saying so, and Windows its own code."""
    names = {info: info.filename for info in infos}
    silent = [i for i in infos if not (i.flag_bits & _UTF_8 or i.filename.isascii())]
    written = {info: info.filename.encode("cp437") for info in silent}  # zipfile decoded it so
    try:
        return {**names, **{info: name.decode() for info, name in written.items()}}
    except UnicodeDecodeError:
        files.note(
            f"{where}: its names of files do not say their encoding and are read as those of DOS, "
            f"such as {printable(silent[0].filename)}. Unpack it if they are wrong"
        )
        return names


def _require_apart(where, infos, end):
    """Checks that the files do not overlap: zip bombs have a billion bytes in one place."""
    for info in sorted(infos, key=lambda info: info.header_offset, reverse=True):
        last = info.header_offset + _HEADER_BYTES + info.compress_size
        if info.header_offset < 0 or last > end:
            raise DataError(
                f"{where} is not valid: {printable(info.filename)} overlaps another file or the "
                "end of the archive. Download it again"
            )
        end = info.header_offset


def _require_readable(where, info, name):
    if info.flag_bits & _ENCRYPTED:
        raise DataError(f"{where} is encrypted: {printable(name)}. Unpack it with its password")
    if info.compress_type not in METHODS:
        method = zipfile.compressor_names.get(info.compress_type, info.compress_type)
        raise DataError(
            f"{where}: {printable(name)} is compressed with {method}, not with deflate. Unpack it"
        )
