"""Listing folders with symlink cycles and names that are not UTF-8."""

import os

from common import folders


def listed(folder):
    found = folders.files(str(folder), {folders.identity(str(folder))})
    return [os.path.relpath(path, folder) for path in found]


def test_each_folder_is_visited_once(tmp_path):
    for name in ("a/x", "a/y", "b/z", "w"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    (tmp_path / "a" / "up").symlink_to("..")
    (tmp_path / "c").symlink_to("b")
    (tmp_path / "d").symlink_to("d")
    assert listed(tmp_path) == ["d", "w", "a/x", "a/y", "b/z"]


def test_names_that_are_not_utf8(tmp_path):
    (tmp_path / "a").touch()
    open(bytes(tmp_path) + b"/\xff", "wb").close()
    assert folders.names(str(tmp_path)) == ["a", "\udcff"]
    assert listed(tmp_path) == ["a", "\udcff"]
    assert folders.names(str(tmp_path / "none")) == []
