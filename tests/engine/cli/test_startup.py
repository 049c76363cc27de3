"""Start and end of a program."""

import collections
import importlib.metadata
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import warnings

import pytest
from absl import flags
from tensorflow.python.tpu.client import client

import run_cpu
from common.errors import RunError, UsageError
from engine.cli import startup
from input_fns import DataError
from models.model import ModelError

Version = collections.namedtuple("Version", "major minor micro releaselevel serial")


def installed(monkeypatch, **versions):
    """Replaces the installed distributions."""

    def version(name):
        if name.replace("-", "_") not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name.replace("-", "_")]

    monkeypatch.setattr(importlib.metadata, "version", version)


@pytest.mark.parametrize("version", [(3, 8, 18), (3, 12, 1), (2, 7, 18)])
def test_unsupported_python_versions_are_rejected(monkeypatch, version):
    monkeypatch.setattr(sys, "version_info", Version(*version, "final", 0))
    with pytest.raises(UsageError, match=r"runs on Python 3\.9, 3\.10 and 3\.11"):
        startup.check_versions()


def test_windows_is_rejected(monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with pytest.raises(UsageError, match="Windows is not supported"):
        startup.check_versions()


def test_a_main_without_flags_names_the_python_call(monkeypatch):
    run_cpu.FLAGS.unparse_flags()
    with pytest.raises(UsageError, match=r"call estimator_models\.train"):
        run_cpu.main()


@pytest.mark.parametrize(
    "wheel",
    ["tensorflow", "tensorflow_cpu", "tensorflow_tpu", "tensorflow_rocm", "tensorflow_macos"],
)
def test_all_wheels_of_tensorflow_2_15_are_accepted(monkeypatch, wheel):
    installed(monkeypatch, **{wheel: "2.15.0", "tensorflow_estimator": "2.15.0"})
    startup.check_versions()


@pytest.mark.parametrize(
    ("versions", "message"),
    [
        ({}, "TensorFlow is not installed in"),
        ({"tensorflow": "2.16.1"}, "tensorflow 2.16.1: this package needs tensorflow 2.15.x"),
        ({"tensorflow": "2.15.1"}, "tensorflow-estimator is missing"),
        (
            {"tensorflow": "2.15.1", "tensorflow_estimator": "2.14.0"},
            "tensorflow-estimator 2.14.0: this package needs",
        ),
        (
            {"tensorflow": "2.15.1", "tensorflow_estimator": "2.15.0", "keras": "3.4.1"},
            r"Keras 3\.4\.1 is not supported: .* -m pip install 'keras~=2\.15\.0'",
        ),
        (
            {"tensorflow": "2.15.1", "tensorflow_estimator": "2.15.0", "numpy": "2.0.2"},
            r"NumPy 2\.0\.2 is not supported: .* -m pip install 'numpy<2'",
        ),
    ],
)
def test_other_versions_of_packages_are_rejected(monkeypatch, versions, message):
    installed(monkeypatch, **versions)
    with pytest.raises(UsageError, match=message):
        startup.check_versions()


def test_a_machine_without_a_temporary_folder_is_one_line(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/proc/none", "/dev/null"])
    message = r"No usable temporary directory found in \['/proc/none', .*\. Set TMPDIR to a folder"
    with pytest.raises(UsageError, match=message):
        startup.check_environment()


# Runs each program with Python 3.8 and no installed package.
OLD_PYTHON = """
import collections, runpy, sys
sys.version_info = collections.namedtuple("V", "major minor micro")(3, 8, 18)
sys.path.insert(0, ".")
for path in sys.argv[1:]:
    for name in [n for n in sys.modules if n.split(".")[0] in ("common", "engine", "tools", "tpu")]:
        del sys.modules[name]
    sys.argv = [path]
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        assert end.code == 2, path
"""


def test_every_program_reports_an_unsupported_python_version_first():
    own = {"tools/kernel_table.py", "tools/serve_one.py", "tools/triton_once.py"}  # environments
    files = [
        "prepare_data.py",
        "run_cpu.py",
        "run_tpu.py",
        *map(str, pathlib.Path().glob("tools/*.py")),
    ]
    programs = sorted(
        path for path in files if path not in own and "__main__" in pathlib.Path(path).read_text()
    )
    command = [sys.executable, "-S", "-c", OLD_PYTHON, *programs]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [
        line.partition(": error: Python 3.8.18 is not supported")[0]
        for line in done.stderr.splitlines()
    ]
    assert lines == [os.path.basename(path) for path in programs], done.stderr


@pytest.mark.parametrize("error", [UsageError, DataError, ModelError])
def test_invalid_input_is_one_line_and_status_2(monkeypatch, capsys, error):
    monkeypatch.setattr(sys, "argv", ["/some/where/run_cpu.py"])

    def main():
        raise error("this is\n  wrong")

    with pytest.raises(SystemExit) as exit_info:
        startup.run(main)
    assert exit_info.value.code == 2
    assert capsys.readouterr().err == "run_cpu.py: error: this is wrong\n"


def test_a_locale_without_utf8_restarts_python_in_utf8_mode(monkeypatch):
    started = []
    monkeypatch.setattr(os, "execv", lambda program, argv: started.append(argv))
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "ascii")
    monkeypatch.setenv("PYTHONUTF8", "0")
    startup._use_utf8()
    startup._use_utf8()  # already in UTF-8 mode
    assert len(started) == 1
    assert os.environ["PYTHONUTF8"] == "1"


def test_an_argument_that_is_not_utf8_is_rejected(capsys):
    with pytest.raises(SystemExit) as end:
        startup.start(["run_cpu.py", "--data_dir=\udcff"], "", "engine.cli.flags")
    assert end.value.code == 2
    assert r"argument '--data_dir=\udcff' is not UTF-8" in capsys.readouterr().err


def test_unexpected_exceptions_are_raised():
    def main():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        startup.run(main)


@pytest.fixture
def flags_module(monkeypatch):
    """Returns the name of a module that defines `--number`."""
    module = types.ModuleType("flags_of_a_test")
    module.FLAGS = flags.FlagValues()
    flags.DEFINE_integer("number", 1, "A number of things.", flag_values=module.FLAGS)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module.__name__


def test_start_parses_the_flags(flags_module):
    startup.start(["program", "--number=7"], "", flags_module)
    assert sys.modules[flags_module].FLAGS.number == 7


def test_a_flag_overrides_a_flagfile_that_follows_it(flags_module, tmp_path):
    (tmp_path / "recipe.cfg").write_text("--number=3\n")
    startup.start(["program", "--number=7", f"--flagfile={tmp_path}/recipe.cfg"], "", flags_module)
    assert sys.modules[flags_module].FLAGS.number == 7


def test_help_prints_the_doc_and_the_flags(flags_module, capsys):
    with pytest.raises(SystemExit) as exit_info:
        startup.start(["program", "--help"], "What it does.", flags_module)
    assert exit_info.value.code == 0
    out = capsys.readouterr().out
    assert "What it does." in out
    assert "A number of things." in out


@pytest.mark.parametrize(
    ("message", "category", "module", "is_hidden"),
    [
        ("pkg_resources is deprecated as an API.", UserWarning, "tensorflow_hub", True),
        ("You are using Python 3.9", FutureWarning, "google.api_core", True),
        ("pkg_resources is deprecated as an API.", UserWarning, "mine", False),
    ],
)
def test_warnings_of_imported_packages_are_hidden(message, category, module, is_hidden):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        startup.hide_logs()
        warnings.warn_explicit(message, category, "a.py", 1, module)
    assert bool(found) != is_hidden


def test_missing_requirements_are_reported_without_imports():
    code = (
        "import runpy, sys; sys.path.insert(0, '.'); runpy.run_path(sys.argv[1], None, '__main__')"
    )
    command = [sys.executable, "-S", "-c", code]  # -S: no installed packages
    for name in ("run_cpu.py", "prepare_data.py"):
        done = subprocess.run([*command, name], capture_output=True, text=True)
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert "TensorFlow is not installed in" in line


def test_flags_remain_parsed_for_the_preemption_poller():
    """A thread of TPUEstimator reads absl flags; unparsed flags would stop it silently."""
    flags.FLAGS.unparse_flags()
    names = ["--model=mlp", "--dataset=digits", "--data_dir=d", "--model_dir=m", "--train_steps=1"]
    startup.start(["run_tpu.py", *names], "", "engine.cli.flags", "tpu.connect.flags")
    assert client.FLAGS.runtime_oom_exit
    assert client.FLAGS.hbm_oom_exit


@pytest.mark.parametrize(
    ("message", "printed"),
    [
        (
            "https://s/o?X-Goog-Signature=ab12&X-Goog-Date=1: 403",
            "https://s/o?X-Goog-Signature=...&X-Goog-Date=1: 403",
        ),
        ("HTTP 401, access_token: ya29.abc, retry", "HTTP 401, access_token=..., retry"),
        ("a row of 64 tokens: too long", "a row of 64 tokens: too long"),
    ],
)
def test_secrets_are_redacted(capsys, message, printed):
    def fails():
        raise RunError(message)

    with pytest.raises(SystemExit):
        startup.run(fails)
    assert capsys.readouterr().err.partition("error: ")[2] == f"{printed}\n"
