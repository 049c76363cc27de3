"""Findings refer to lines of the program, wherever it is installed."""

import functools
import os
import runpy
import types

import absl
import pytest
import tensorflow as tf

from tpu import findings
from tpu.findings import user_line, user_line_in

TENSORFLOW = os.path.join(os.path.dirname(tf.__file__), "python", "ops.py")


def stack(*paths):
    return [types.SimpleNamespace(filename=path, lineno=i) for i, path in enumerate(paths)]


@pytest.mark.parametrize(
    "path",
    [
        "/opt/venv/lib/python3.11/site-packages/their_model/main.py",
        "/home/me/venv/project/model.py",
        os.path.join(os.path.dirname(os.path.dirname(tf.__file__)), "their_model", "main.py"),
    ],
)
def test_programs_in_site_packages_and_virtual_environments(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # lines below the current folder have a relative path
    frames = stack("/their/run.py", path, TENSORFLOW, absl.__file__, runpy.__file__)
    assert user_line_in(frames) == f"{path}:1"


def test_program_in_a_checkout_of_a_library(tmp_path, monkeypatch):
    path = tmp_path / "gan" / "tensorflow_gan" / "examples" / "train.py"
    path.parent.mkdir(parents=True)
    (tmp_path / "gan" / "tensorflow_gan" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path / "gan")
    for cached in (findings._library_folders, findings._user_path):
        monkeypatch.setattr(findings, cached.__name__, functools.cache(cached.__wrapped__))
    assert user_line_in(stack("/their/run.py", str(path), TENSORFLOW)) == f"{path}:1"


@pytest.mark.parametrize("name", ["/tmp/__autograph_generated_fileab12.py", "<frozen runpy>"])
def test_generated_code_is_skipped(name):
    assert user_line_in(stack("/their/run.py", name)) == "/their/run.py:0"


def test_no_line_of_the_program():
    assert user_line_in(stack(TENSORFLOW)) == ""


def test_program_run_by_runpy(tmp_path):
    program = tmp_path / "site-packages" / "program.py"
    program.parent.mkdir()
    program.write_text("import tensorflow as tf\n\nop = tf.constant(1).op\n")
    op = runpy.run_path(str(program), run_name="__main__")["op"]
    assert user_line(op) == f"{program}:3"
