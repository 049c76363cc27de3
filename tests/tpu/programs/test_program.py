"""Programs run in this process as Python runs them."""

import sys

import pytest

from tpu.programs.program import Program


def test_script_runs_as_main_with_its_arguments(script, tmp_path, capsys):
    before = sys.argv, sys.path
    script("import sys\nprint(__name__, sys.argv[1:], sys.path[0])", "--x=1", "y").run()
    assert capsys.readouterr().out == f"__main__ ['--x=1', 'y'] {tmp_path}\n"
    assert (sys.argv, sys.path) == before


def test_module_runs_as_main(tmp_path, monkeypatch, capsys):
    (tmp_path / "package_for_test").mkdir()
    (tmp_path / "package_for_test" / "tool.py").write_text("import sys\nprint(__name__, sys.argv)")
    monkeypatch.chdir(tmp_path)
    Program("package_for_test.tool", True, ("z",)).run()
    out = capsys.readouterr().out
    assert out.startswith("__main__")
    assert out.endswith("tool.py', 'z']\n")


def test_exit_status_of_the_program(script):
    with pytest.raises(SystemExit, match="3"):
        script("import sys\nsys.exit(3)").run()


def test_main_module_is_the_program(script, capsys):
    script("import sys\nvalue = 7\nprint(sys.modules['__main__'].value)").run()
    assert capsys.readouterr().out == "7\n"


def test_program_with_a_package_of_the_same_name(script, tmp_path, capsys):
    (tmp_path / "tpu").mkdir()
    (tmp_path / "tpu" / "their_module.py").write_text("value = 5")
    script("from tpu import their_module\nprint(their_module.value)").run()
    assert capsys.readouterr().out == "5\n"
