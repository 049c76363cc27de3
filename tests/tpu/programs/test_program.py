"""Programs run in this process as Python runs them."""

import os
import sys

import pytest

import tpu
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


def test_program_finds_its_files_after_chdir(script, tmp_path, monkeypatch, capsys):
    source = "import os\nos.chdir('/')\nprint(os.path.dirname(os.path.abspath(__file__)))"
    path = script(source).target
    monkeypatch.chdir(tmp_path)
    Program(path.rpartition("/")[2], False, ()).run()
    assert capsys.readouterr().out == f"{tmp_path}\n"


def test_link_to_a_program_finds_its_siblings(script, tmp_path, capsys):
    (tmp_path / "sibling_for_test.py").write_text("value = 5")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "link").symlink_to(
        script("import sibling_for_test\nprint(sibling_for_test.value)").target
    )
    Program(str(tmp_path / "bin" / "link"), False, ()).run()
    assert capsys.readouterr().out == "5\n"


def test_threads_of_the_program_end_first(script, capsys):
    program = script(
        "import sys, threading, time\n"
        "def work():\n"
        "    time.sleep(0.2)\n"
        "    print('done')\n"
        "threading.Thread(target=work).start()\n"
        "sys.exit(0)"
    )
    with pytest.raises(SystemExit):
        program.run()
    assert capsys.readouterr().out == "done\n"


def test_packages_of_the_program_are_not_hidden(script, tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(os.path.dirname(os.path.dirname(tpu.__file__)))
    for name in [name for name in sys.modules if name.partition(".")[0] == "models"]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "models" / "theirs").mkdir(parents=True)
    (tmp_path / "models" / "theirs" / "net.py").write_text("value = 5")
    script("from models.theirs import net\nprint(net.value)").run()
    assert capsys.readouterr().out == "5\n"
