"""run_tpu.py --mode=check, through its real main: the shipped recipes, and its exit statuses."""

import importlib.util
import json
import pathlib

import numpy as np
import pytest

from input_fns.convert import source, writer
from training.program import UsageError

RECIPES = sorted((pathlib.Path(__file__).parents[1] / "configs").glob("*.cfg"))
SHAPES = {
    "digits": (8, 8, 1),
    "mnist": (28, 28, 1),
    "fashion_mnist": (28, 28, 1),
    "cifar10": (32, 32, 3),
}
HAS_COMPILER = importlib.util.find_spec("libtpu") is not None


@pytest.fixture(scope="module")
def data_dir_of(tmp_path_factory):
    """A small prepared data set with the shapes of a real one: `data_dir_of("mnist")`."""

    def make(name):
        split = source.RawArrays(np.zeros([20, *SHAPES[name]], np.uint8), np.arange(20) % 10)
        names = tuple(map(str, range(10)))
        path = str(tmp_path_factory.mktemp(name))
        writer.write(source.RawDataset(name, names, {"train": split, "test": split}), path)
        return path

    return make


@pytest.fixture
def check(run_tpu_in, tmp_path):
    """Checks; returns the exit status and the report: `check("--tpu_topology=v3-8", ...)`."""

    def run(*arguments):
        report = tmp_path / "report.json"
        with pytest.raises(SystemExit) as exit_info:
            run_tpu_in(
                tmp_path / "model", "--mode=check", f"--check_report={report}", "--tpu=", *arguments
            )
        assert not (tmp_path / "model").exists()
        return exit_info.value.code, json.loads(report.read_text())

    return run


@pytest.mark.parametrize("name", ["v2-8", "v3-8"])
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_passes(check, data_dir_of, recipe, name):
    (dataset,) = [
        line.split("=")[1] for line in recipe.read_text().splitlines() if "--dataset=" in line
    ]
    status, report = check(
        f"--flagfile={recipe}",
        f"--data_dir={data_dir_of(dataset)}",
        "--predict_batch_size=128",
        "--mode=check",
        f"--tpu_topology={name}",
    )
    assert status == report["num_errors"] == 0
    assert not report["not_checked"] or not HAS_COMPILER
    assert list(report["modes"]) == ["train", "eval", "predict"]
    for of_mode in report["modes"].values():
        assert of_mode["sizes"]["parameters"] > 1000
        if HAS_COMPILER:
            assert of_mode["compiled"]["fits"]
            assert of_mode["step_time"]["seconds"] > 0


def test_bfloat16_and_accumulation_are_checked_as_they_will_run(check):
    status, report = check(
        "--model=convnet",
        "--params=layers=conv:8:3 batch_norm relu flatten dense:8",
        "--precision=bfloat16",
        "--accumulate_steps=2",
        "--params=optimizer=lars,ema_decay=0.9,weight_decay=0.01,clip_norm=1",
        "--tpu_topology=v3-8",
        "--train_batch_size=128",
        "--eval_batch_size=64",
        "--predict_batch_size=64",
        "--train_steps=9",
    )
    assert status == report["num_errors"] == 0


@pytest.mark.parametrize(
    ("params", "level"), [("dropout=0,hidden_units=8", "note"), ("dropout=0.5", "warning")]
)
def test_a_rehearsal_compares_the_wrappers(check, params, level):
    sizes = [f"--{mode}_batch_size=64" for mode in ("train", "eval", "predict")]
    arguments = [f"--params={params}", "--check_run_steps=3", "--train_steps=9", *sizes]
    status, report = check("--tpu_topology=v3-8", "--check_compiler=off", *arguments)
    assert status == 0
    (found,) = [finding for finding in report["findings"] if finding["code"] == "run"]
    assert found["level"] == level


def test_a_slice_is_needed(run_tpu_in, tmp_path):
    with pytest.raises(UsageError, match="--mode=check needs --tpu_topology"):
        run_tpu_in(tmp_path, "--mode=check", "--tpu_topology=", "--train_steps=9")


def test_run_cpu_does_not_check(run_in, tmp_path):
    with pytest.raises(UsageError, match=r"--mode=check is run_tpu\.py's"):
        run_in(tmp_path, "--mode=check")


def test_an_error_is_status_1(check):
    status, report = check("--tpu_topology=v3-8", "--train_batch_size=13", "--train_steps=9")
    assert status == 1
    assert report["num_errors"] >= 1
    messages = [finding["message"] for finding in report["findings"]]
    assert "13 / 8 = 1.62; 8 or 16 can" in messages[0]
    assert any("divisible by number of replicas 8" in message for message in messages)


def test_without_a_compiler_the_rest_is_checked(check):
    sizes = [f"--{mode}_batch_size=64" for mode in ("train", "eval", "predict")]
    status, report = check("--tpu_topology=v3-8", "--check_compiler=off", "--train_steps=9", *sizes)
    assert status == 0
    assert report["modes"]["train"]["compiled"] is None
    assert report["modes"]["train"]["sizes"]["hbm_bytes"] > 0
