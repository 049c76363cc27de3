"""Arguments of `python -m tpu`: errors come before TensorFlow is imported."""

import os
import pathlib
import subprocess
import sys

import pytest

from tpu import software
from tpu.programs import command_line

ROOT = pathlib.Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "required: COMMAND"),
        (["emulat", "x.py"], "invalid choice: 'emulat'"),
        (["emulate"], "no program: give its file, or -m and its module"),
        (["emulate", "missing.py"], "program 'missing.py' does not exist"),
        (["emulate", "--topology=v3-7", "x.py"], "unknown TPU slice 'v3-7'. Valid: v3-8"),
        (["check", "--topology=v5e-7", "x.py"], "unknown TPU slice 'v5e-7'. Valid: v5e-1"),
        (["compare", "--steps=0", "x.py"], "'0' is not an integer of at least 1"),
        (["check", "--report=a.txt", __file__], "--report=a.txt must end in .json"),
        (["check", "--report=no/a.json", __file__], "no/a.json: the folder does not exist"),
        (["check", "--compiler=fast", __file__], "invalid choice: 'fast'"),
        (["check", "--explain=tile"], "unknown code 'tile'"),
        (["run", "--devices=tpus", __file__], "'tpus' is none of tpu, gpu, cpu"),
        (["run", "--devices=tensorflow", "--pjrt_host_id=0", __file__], "runs without JAX"),
    ],
)
def test_invalid_arguments(arguments, message, capsys):
    with pytest.raises(SystemExit) as error:
        command_line.main(arguments)
    assert error.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_options_after_the_program_are_its_own():
    arguments = command_line._parser().parse_args(
        [
            *("check", "--topology=v2-8"),
            *("-m", "their.module", "--topology=theirs", "--steps", "3", "--t=adam", "--comp"),
        ]
    )
    assert arguments.topology.name == "v2-8"
    assert arguments.is_module
    theirs = ["their.module", "--topology=theirs", "--steps", "3", "--t=adam", "--comp"]
    assert arguments.program == theirs


def test_report_path_does_not_depend_on_the_folder_of_the_program(tmp_path, monkeypatch):
    (tmp_path / "a.json").write_text("an old report")
    monkeypatch.chdir(tmp_path)
    parser = command_line._parser()
    arguments = parser.parse_args(["check", "--report=a.json", __file__])
    command_line._check_report_path(parser, arguments)
    assert arguments.report == str(tmp_path / "a.json")
    assert not (tmp_path / "a.json").exists()


def test_an_unsupported_environment_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(software, "version_of", {"tensorflow": "2.16.1"}.get)
    assert command_line.main(["emulate", __file__]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("tpu: error: tensorflow 2.16.1 is unsupported: ")


def test_help_does_not_import_tensorflow():
    code = (
        "import sys; from tpu.programs import command_line\n"
        "try: command_line.main(['check', '--help'])\n"
        "finally: assert 'tensorflow' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--topology=SLICE" in done.stdout.replace(" SLICE", "=SLICE")


def test_explains_a_finding(capsys):
    assert command_line.main(["check", "--explain=tiles"]) == 0
    assert "128" in capsys.readouterr().out


@pytest.mark.slow
def test_runs_a_program_from_another_folder(tmp_path):
    program = ROOT / "tests" / "tpu" / "programs" / "linear_program.py"
    command = [sys.executable, "-m", "tpu", "emulate", "--topology=1x2", str(program)]
    done = subprocess.run(
        [*command, f"--model_dir={tmp_path}/model", "--steps=1"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "tpu: on emulated cores: 1 train"
    assert (tmp_path / "model" / "model.ckpt-1.index").exists()
