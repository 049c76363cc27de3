"""Files in tar archives are ranges of bytes of the archive."""

import io
import os
import tarfile

import numpy as np
import pytest

from input_fns import DataError
from input_fns.convert import tar_members
from input_fns.dataset_info import LeftOut
from tests.archive_files import pack

LONG = "a" * 90 + "/" + "b" * 120 + ".jpg"


def find(tmp_path, data, left_out=None):
    path = tmp_path / "a.tar"
    path.write_bytes(data)
    found = tar_members.find(str(path), LeftOut() if left_out is None else left_out)
    return {name: data[offset : offset + size] for name, (offset, size) in found.items()}


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_all_forms_with_long_names_and_archives_inside(tmp_path, form):
    long = LONG if form != tarfile.USTAR_FORMAT else "a" * 90 + "/" + "b" * 90 + ".jpg"
    inner = pack({"x.jpg": b"inner", "empty.jpg": b""}, format=form)
    data = pack({"./a/1.jpg": b"one", "n01.tar": inner, long: b"long" * 200}, format=form)
    assert find(tmp_path, data) == {
        "a/1.jpg": b"one",
        "n01/x.jpg": b"inner",
        "n01/empty.jpg": b"",
        long: b"long" * 200,
    }


def test_names_of_any_language_and_bytes(tmp_path):
    names = ["é/ü.jpg", os.fsdecode(b"\xff.jpg"), "日本" * 60 + ".jpg"]
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        data = pack(dict.fromkeys(names, b"1"), format=form)
        assert list(find(tmp_path, data)) == names


def test_a_pax_header_states_the_size_of_a_large_file(tmp_path):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo("a.jpg")
        info.size, info.pax_headers = 0, {"size": "3"}
        tar.addfile(info)
        tar.fileobj.write(b"abc" + bytes(509))
    assert find(tmp_path, data.getvalue()) == {"a.jpg": b"abc"}


def test_links_and_names_that_lead_out_are_left_out(tmp_path):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE):
            info = tarfile.TarInfo("link")
            info.type, info.linkname = kind, "/etc/passwd"
            tar.addfile(info)
        for name in ("../a.jpg", "/b.jpg"):
            tar.addfile(tarfile.TarInfo(name))
    left_out = LeftOut()
    assert list(find(tmp_path, data.getvalue(), left_out)) == ["b.jpg"]
    assert sorted(left_out.counts.values()) == [1, 3]


def test_the_last_file_of_a_name_counts(tmp_path):
    first = pack({"a.jpg": b"old"})
    left_out = LeftOut()
    data = first[:1024] + pack({"a.jpg": b"new"})
    assert find(tmp_path, data, left_out) == {"a.jpg": b"new"}
    assert left_out.counts == {"files in archives that a later one of the same name replaces": 1}


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_truncation_is_an_error(tmp_path, form):
    data = pack({"a/1.jpg": b"1" * 700, LONG: b"2" * 9, "in.tar": pack({"b": b"3"})}, format=form)
    end = len(data.rstrip(b"\0")) // 512 * 512 + 512  # of the inner archive's last file
    for size in (0, 100, *range(512, end, 512), 1500):
        with pytest.raises(DataError, match="truncated"):
            find(tmp_path, data[:size])


def test_changed_headers_are_errors_or_found_files(tmp_path):
    data = pack({"a/1.jpg": b"1" * 700, LONG: b"2" * 9, "in.tar": pack({"b": b"3"})})
    random = np.random.default_rng(0)
    for _ in range(50):
        changed = bytearray(data)
        for place in random.integers(0, len(data), 5):
            changed[place] = random.integers(256)
        try:
            found = find(tmp_path, bytes(changed))
        except DataError:
            continue
        assert sum(map(len, found.values())) <= len(data)


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz"])
def test_a_compressed_archive(tmp_path, mode):
    with pytest.raises(DataError, match=r"compressed.*do not unpack"):
        find(tmp_path, pack({"a.jpg": b"1"}, mode=mode))


def test_a_size_that_does_not_fit(tmp_path):
    data = bytearray(pack({"a.jpg": b"1"}))
    for size in (2**62, -5):
        info = tarfile.TarInfo("a.jpg")
        info.size = size
        data[:512] = info.tobuf(tarfile.GNU_FORMAT)
        with pytest.raises(DataError, match=r"truncated, or not valid: its member a.jpg"):
            find(tmp_path, bytes(data))
