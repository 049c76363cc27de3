"""Flagfiles on which absl would block or recurse."""

import os

import pytest

from common import flagfiles
from common.errors import UsageError


def test_valid_flagfiles_are_accepted(tmp_path):
    (tmp_path / "inner.cfg").write_text("--mode=train\n# comment\n")
    (tmp_path / "outer.cfg").write_text(f"--flagfile={tmp_path}/inner.cfg\n" * 2)
    flagfiles.check(["--flagfile", f"{tmp_path}/outer.cfg", f"-flagfile={tmp_path}/inner.cfg"])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (os.mkfifo, "is missing or not a file"),
        (os.mkdir, "is missing or not a file"),
        (lambda path: os.symlink(path, path), "is missing or not a file"),
        (lambda path: path.write_bytes(b"--mode=\xff"), "is not UTF-8 text"),
        (lambda path: path.write_text(f"--flagfile={path}"), "includes itself"),
        (lambda path: path.write_text(f"--flagfile\n{path}"), "includes itself"),
        (lambda path: path.write_text("#" * 2**21), "has more than 1048576 bytes"),
        (lambda path: path.write_text(f"--{'x' * 3000}=1"), "unknown flag --x+... of 3002 charact"),
    ],
    ids=["pipe", "folder", "link", "bytes", "circle", "circle in two lines", "huge", "long name"],
)
def test_invalid_flagfiles_are_rejected(tmp_path, make, message):
    make(tmp_path / "flags.cfg")
    with pytest.raises(UsageError, match=message):
        flagfiles.check([f"--flagfile={tmp_path}/flags.cfg"])


def test_a_flagfile_on_gs_is_to_be_copied():
    with pytest.raises(
        UsageError, match=r"--flagfile=gs://b/flags\.cfg is not a local file\. Copy"
    ):
        flagfiles.check(["--flagfile=gs://b/flags.cfg"])


def test_arguments_after_two_dashes_are_ignored():
    flagfiles.check(["--", "--flagfile=/no/such/file"])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--a=1 --flagfile=x --b=2 -flagfile=y", "--flagfile=x -flagfile=y --a=1 --b=2"),
        ("--a=1 --flagfile x --b=2", "--flagfile x --a=1 --b=2"),
        ("--a=1 -- --flagfile=x", "--a=1 -- --flagfile=x"),
        ("--a=1 --flagfile", "--flagfile --a=1"),
        ("--a --flagfiles=x", "--a --flagfiles=x"),
    ],
)
def test_flagfiles_are_moved_before_the_flags_that_override_them(arguments, expected):
    assert flagfiles.move_first(arguments.split()) == expected.split()
