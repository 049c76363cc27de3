"""Files in zip archives are ranges of bytes of the archive."""

import gzip
import io
import stat
import struct
import zipfile

import numpy as np
import pytest

from input_fns import DataError
from input_fns.convert import files, zip_members
from input_fns.convert.archive_members import Member, MemberError
from input_fns.dataset_info import LeftOut
from tests.archive_files import pack_zip

CONTENTS = {"a/1.jpg": b"one" * 99, "b/é.jpg": b"", "2.jpg": bytes(range(256)) * 9000}


def find(tmp_path, data, left_out=None):
    """Returns `{name: content}`."""
    path = str(tmp_path / "a.zip")
    (tmp_path / "a.zip").write_bytes(data)
    found = {}
    for name, place in zip_members.find(path, LeftOut() if left_out is None else left_out).items():
        with files.open_file(Member(name, path, *place)) as file:
            found[name] = file.read()
    return found


def without_utf_8(data):
    """Returns a zip that does not say that its names are UTF-8."""
    for start, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        pieces = data.split(start)
        data = start.join([pieces[0], *(_cleared(p, flags - len(start)) for p in pieces[1:])])
    return data


def _cleared(piece, place):
    return piece[: place + 1] + bytes([piece[place + 1] & ~8]) + piece[place + 2 :]


def test_names_of_macos_are_utf_8(tmp_path):
    data = without_utf_8(pack_zip({"th\u00e9/1.jpg": b"x", "cafe\u0301/2.jpg": b"y"}))
    with files.recording((notes := []).append):
        assert find(tmp_path, data) == {"th\u00e9/1.jpg": b"x", "cafe\u0301/2.jpg": b"y"}
    assert not notes


def test_names_of_windows_are_those_of_dos_with_a_note(tmp_path):
    data = without_utf_8(pack_zip({"th\u00e9/1.jpg": b"x"})).replace("\u00e9".encode(), b"\x82a")
    with files.recording((notes := []).append):
        assert find(tmp_path, data) == {"th\u00e9a/1.jpg": b"x"}
    assert "do not say their encoding" in notes[0]


class Stream(io.RawIOBase):
    """A file that cannot seek, as a pipe: sizes and checksums follow the data of each member."""

    def __init__(self):
        self.data = b""

    def writable(self):
        return True

    def write(self, data):
        self.data += bytes(data)
        return len(data)


def entry(name, mode=0, **changes):
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    for key, value in changes.items():
        setattr(info, key, value)
    return info


def zip_of(*entries):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for info in entries:
            archive.writestr(info, b"content")
    return packed.getvalue()


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_stored_and_deflated_files(tmp_path, method):
    assert find(tmp_path, pack_zip(CONTENTS, method)) == CONTENTS
    assert find(tmp_path, b"#!/bin/sh" + pack_zip(CONTENTS, method)) == CONTENTS
    stream = Stream()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, content in CONTENTS.items():
            with archive.open(name, "w", force_zip64=True) as file:
                file.write(content)
    assert find(tmp_path, stream.data) == CONTENTS
    changed = bytearray(stream.data)
    changed[stream.data.index(b"PK\7\x08") + 4] ^= 1
    with pytest.raises(MemberError, match="checksum"):
        find(tmp_path, bytes(changed))


def test_a_file_is_read_in_parts(tmp_path):
    data = pack_zip({"zeros": bytes(2**27)})
    assert len(data) < 2**18
    (tmp_path / "a.zip").write_bytes(data)
    place = zip_members.find(str(tmp_path / "a.zip"), LeftOut())["zeros"]
    with files.open_file(Member("zeros", str(tmp_path / "a.zip"), *place)) as file:
        assert file.read(1000) == bytes(1000)  # a small archive may hold any number of bytes
        assert file.read(7) == bytes(7)


def test_links_and_names_that_lead_out_are_left_out(tmp_path):
    left_out = LeftOut()
    data = zip_of(
        *(entry("link", stat.S_IFLNK), entry("pipe", stat.S_IFIFO), entry("../a.jpg")),
        *(entry("/b.jpg", stat.S_IFREG | 0o644), entry("./c\\d.jpg"), entry("folder/")),
    )
    assert list(find(tmp_path, data, left_out)) == ["b.jpg", "c/d.jpg"]
    assert sorted(left_out.counts.values()) == [1, 2]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_the_last_file_of_a_name_counts(tmp_path):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a.jpg", b"old")
        archive.writestr("a.jpg", b"new")
    left_out = LeftOut()
    assert find(tmp_path, packed.getvalue(), left_out) == {"a.jpg": b"new"}
    assert left_out.counts == {"files in archives that a later one of the same name replaces": 1}


def directory(data):
    """The offset of the first entry of the central directory."""
    return data.index(b"PK\1\2")


def test_an_encrypted_file(tmp_path):
    data = bytearray(pack_zip({"a.jpg": b"1"}))
    data[directory(data) + 8] |= 1
    with pytest.raises(DataError, match=r"is encrypted: a.jpg. Unpack it with its password"):
        find(tmp_path, bytes(data))


def test_another_compression(tmp_path):
    with pytest.raises(DataError, match=r"a.jpg is compressed with lzma, not with deflate"):
        find(tmp_path, pack_zip({"a.jpg": b"1"}, zipfile.ZIP_LZMA))


def test_files_that_overlap(tmp_path):
    data = bytearray(pack_zip({"a.jpg": b"1" * 99, "b.jpg": b"2" * 99}))
    second = data.index(b"PK\1\2", directory(data) + 4)
    struct.pack_into("<I", data, second + 42, 0)  # the offset of its header: that of the first
    with pytest.raises(DataError, match="overlaps another file"):
        find(tmp_path, bytes(data))


def test_every_truncation_is_an_error(tmp_path):
    data = pack_zip({"a/1.jpg": b"1" * 700, "2.jpg": b"2" * 9})
    for size in (0, 10, *range(30, len(data), 30), len(data) - 1):
        with pytest.raises(DataError, match="truncated"):
            find(tmp_path, data[:size])


def test_changed_bytes_are_errors_or_other_names(tmp_path):
    data = pack_zip({"a/1.jpg": b"1" * 700, "2.jpg": b"2" * 9})
    random = np.random.default_rng(0)
    for _ in range(200):
        changed = bytearray(data)
        for place in random.integers(0, len(data), 3):
            changed[place] = random.integers(256)
        try:
            found = find(tmp_path, bytes(changed))
        except (DataError, MemberError):
            continue
        assert set(found.values()) <= {b"1" * 700, b"2" * 9}


def test_lines_and_packed_files_in_an_archive(tmp_path):
    contents = {"a.txt": b"one\ntwo\n", "b.txt.gz": gzip.compress(b"three\n", mtime=0)}
    path = str(tmp_path / "a.zip")
    (tmp_path / "a.zip").write_bytes(pack_zip(contents))
    found = zip_members.find(path, LeftOut())
    members = [Member(f"/x/{name}", path, *place) for name, place in found.items()]
    assert [list(files.iterate_lines(member)) for member in members] == [["one", "two"], ["three"]]
    assert files.read_lines(members[1]) == [b"three"]
    with files.recording() as opened:
        files.read_text(members[0])
    assert opened == {path}
    broken = Member("/x/a.txt", path, members[1].offset, members[0].size)
    with pytest.raises(DataError, match=r"/x/a.txt: .*a.zip again"):
        files.read_text(broken)
