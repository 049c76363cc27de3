"""Errors of local files that are found without TensorFlow, whose import takes seconds."""

import json
import shutil
import subprocess
import sys

import pytest

# The import of TensorFlow, or of a module that needs it, fails.
PROGRAM = """
import runpy, sys
sys.modules["tensorflow"] = None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(program, *flags):
    """Returns the standard error of a program that cannot import TensorFlow."""
    command = [sys.executable, "-c", PROGRAM, program, *map(str, flags)]
    return subprocess.run(command, capture_output=True, text=True).stderr


@pytest.fixture
def run_flags(data_dir, tmp_path):
    """Returns a function that returns the flags of a run, with `changes`."""

    def make(**changes):
        (tmp_path / "empty").mkdir(exist_ok=True)
        (tmp_path / "file").touch()
        values = {"model": "mlp", "dataset": "stripes", "data_dir": data_dir, **changes}
        values.setdefault("model_dir", tmp_path / "run")
        if "mode" not in values:
            values["train_steps"] = 3
        return [f"--{name}={value}".format(tmp=tmp_path) for name, value in values.items()]

    return make


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data_dir": "nowhere"}, "--data_dir=nowhere does not exist; make it with"),
        ({"data_dir": "{tmp}/empty"}, "/empty holds no dataset.json"),
        ({"dataset": "digits"}, "holds the data set 'stripes', not --dataset=digits"),
        (
            {"eval_split": "dev"},
            "has no split 'dev'; it has: train, test. Set another one, such as --eval_split=test",
        ),
        (
            {"eval_splits": "test,dev"},
            "it has: train, test. Set another one, such as --eval_splits=test",
        ),
        (
            {"train_split": "all"},
            "it has: train, test. Set another one, such as --train_split=train",
        ),
        ({"mode": "eval"}, "error: no checkpoint in "),
        ({"mode": "predict", "checkpoint": "best"}, "train with --best_metric"),
        ({"mode": "eval", "checkpoint": "a"}, "no checkpoint in a"),
        ({"warm_start_from": "{tmp}/empty"}, "--warm_start_from: no checkpoint in "),
        ({"model_dir": "{tmp}/file/run"}, "/file/run cannot be written"),
    ],
)
def test_run_cpu(run_flags, changes, message):
    assert message in run("run_cpu.py", *run_flags(**changes))


def test_the_split_of_validation_is_proposed(run_flags, data_dir, tmp_path):
    shutil.copytree(data_dir, tmp_path / "data")
    path = tmp_path / "data" / "dataset.json"
    info = json.loads(path.read_text())
    info["splits"] = {"dev2": info["splits"]["test"], "validation": info["splits"]["train"]}
    path.write_text(json.dumps(info))
    stderr = run("run_cpu.py", *run_flags(data_dir=tmp_path / "data", mode="eval"))
    assert "has no split 'test'; it has: dev2, validation. Set another one, such as" in stderr
    assert stderr.endswith(" --eval_split=validation\n")


@pytest.mark.parametrize("more", [["--tpu=emulator"], ["--mode=check", "--tpu_topology=v3-8"]])
def test_run_tpu(run_flags, more):
    flags = run_flags(data_dir="nowhere")
    assert "--data_dir=nowhere does not exist" in run("run_tpu.py", *flags, *more)


@pytest.mark.parametrize(
    ("program", "flag", "other"),
    [
        ("run_cpu.py", "--tpu=local", "run_tpu.py"),
        ("run_tpu.py", "--group_by_length", "run_cpu.py"),
    ],
)
def test_a_flag_of_the_other_wrapper(program, flag, other):
    name = flag.partition("=")[0]
    assert run(program, flag) == f"{program}: error: {name} is a flag of {other}\n"


def test_a_run_without_problems_goes_on_to_import_tensorflow(run_flags):
    assert "import of tensorflow halted" in run("run_cpu.py", *run_flags())


def test_the_source_of_prepare_data(tmp_path):
    flags = ["--dataset=mnist", "--source=nowhere", f"--data_dir={tmp_path / 'data'}"]
    expected = "prepare_data.py: error: --source=nowhere is not a folder and not a file\n"
    assert run("prepare_data.py", *flags) == expected


def test_a_data_set_to_inspect(tmp_path):
    stderr = run("prepare_data.py", "--mode=inspect", f"--data_dir={tmp_path}")
    assert f"{tmp_path}/dataset.json is not there: prepare_data.py writes one" in stderr
