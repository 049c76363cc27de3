"""Fixtures of the tests of commands."""

import pathlib

import pytest

from tpu.programs.program import Program

HERE = pathlib.Path(__file__).parent


@pytest.fixture
def linear_program(tmp_path):
    """`linear_program(*flags)` returns the program in linear_program.py."""

    def make(*flags):
        path = str(HERE / "linear_program.py")
        return Program(path, False, (f"--model_dir={tmp_path}/model", *flags))

    return make


@pytest.fixture
def script(tmp_path):
    """`script(source, *arguments)` writes a program and returns it."""

    def write(source, *arguments):
        path = tmp_path / "script.py"
        path.write_text(source)
        return Program(str(path), False, arguments)

    return write
