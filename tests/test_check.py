"""run_tpu.py --mode=check: the shipped recipes and its exit status."""

import importlib.util
import json
import pathlib
import re
import subprocess
import sys

import pytest
import tensorflow as tf
from absl import flags

from benchmarks import recipe_memory
from common.errors import UsageError
from input_fns.convert import writer
from tests.marks import runs_bfloat16, slow
from tpu.check import compiler

ROOT = pathlib.Path(__file__).parents[1]
RECIPES_DIR = ROOT / "configs"
RECIPES = sorted(RECIPES_DIR.glob("*.cfg"))
# Recipes of the fast tests; the others are slow tests.
COMPILED = ("digits",)
# For speed: one layer instead of a stack of equal layers, a smaller backbone and images.
SMALLER = {
    "coco_instances": ["--image_size=256x256", "--params=backbone=resnet18"],
    "multi30k": ["--params=num_layers=1"],
    "wmt14": ["--params=num_layers=1"],
}

# Data sets of images whose small copies are stored; others are random examples.
STORED = ("apple_leaf", "cifar10", "digits", "fashion_mnist", "imagenet", "mnist")
HAS_COMPILER = importlib.util.find_spec("libtpu") is not None


@pytest.fixture(scope="module")
def data_dir_of(like_real, tmp_path_factory):
    """Writes a small data set with the shapes of a real one: `data_dir_of("mnist")`."""

    def make(name):
        path = str(tmp_path_factory.mktemp(name))
        writer.write(like_real(name), path)
        return path

    return make


@pytest.fixture
def check_with(run_tpu_with, tmp_path):
    """Runs a check with flags; returns the exit status and the report."""

    def run(*arguments):
        report, model_dir = tmp_path / "report.json", tmp_path / "model"
        with pytest.raises(SystemExit) as exit_info:
            run_tpu_with(
                *arguments, f"--model_dir={model_dir}", "--mode=check", f"--check_report={report}"
            )
        assert not model_dir.exists()
        return exit_info.value.code, json.loads(report.read_text())

    return run


@pytest.fixture
def check_in_child(tmp_path):
    """`check_with` in a child process: a check of a large model keeps half a GiB until the end."""

    def run(*arguments):
        report = tmp_path / "report.json"
        given = [*arguments, f"--model_dir={tmp_path}/model", f"--check_report={report}"]
        command = [sys.executable, "run_tpu.py", *given, "--mode=check"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert report.exists(), done.stderr
        assert not (tmp_path / "model").exists()
        return done.returncode, json.loads(report.read_text())

    return run


@pytest.fixture
def check(check_with, tiny_flags):
    """Checks a tiny model: `check("--tpu_topology=v3-8", ...)`."""
    return lambda *arguments: check_with(*tiny_flags, *arguments)


# Of recipes for a CPU, whose batches are small or not divisible by the cores.
FOR_CPUS = {
    "fsdd": ["--eval_batch_size=128"],
    "people": ["--eval_batch_size=128"],
    "shapes": ["--eval_batch_size=128"],
    "shapes_instances": ["--eval_batch_size=128"],
    "tinyshakespeare": ["--train_batch_size=16"],
}


def recipes():
    """Yields each recipe with the slice in its name, or v3-8."""
    slow = pytest.mark.slow(cost=5)
    for path in RECIPES:
        (name,) = re.findall(r"_(v\d-\d+)$", path.stem) or ["v3-8"]
        marks = () if path.stem in COMPILED else slow
        yield pytest.param(path, name, id=f"{path.stem}-{name}", marks=marks)
    yield pytest.param(RECIPES_DIR / "digits.cfg", "v2-8", id="digits-v2-8", marks=slow)


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(("recipe", "name"), recipes())
def test_every_recipe_passes(check_with, check_in_child, data_dir_of, recipe, name):
    (dataset,) = re.findall(r"(?m)^--dataset=(.*)", recipe.read_text())
    if dataset in STORED:
        data = [f"--data_dir={data_dir_of(dataset)}", "--eval_split=test"]
    else:
        data = recipe_memory.data_flags(recipe)
    run = check_with if recipe.stem in COMPILED else check_in_child
    status, report = run(
        f"--flagfile={recipe}",
        *SMALLER.get(dataset, []),
        *data,
        *FOR_CPUS.get(dataset, []),
        "--predict_batch_size=128",
        f"--tpu_topology={name}",
        f"--check_compiler={'quick' if HAS_COMPILER else 'off'}",
    )
    assert status == report["num_errors"] == 0
    # Of several hosts one evaluates, and with TPU embeddings a CPU.
    only_trains = name.endswith("-32") or dataset == "criteo"
    modes = ["train"] if only_trains else ["train", "eval", "predict"]
    assert list(report["modes"]) == modes
    for of_mode in report["modes"].values():
        assert of_mode["sizes"]["parameters"] > 1000
        if HAS_COMPILER:
            assert of_mode["compiled"]["fits"]
            assert of_mode["step_time"]["seconds"] > 0


@runs_bfloat16
@pytest.mark.slow
def test_bfloat16_and_gradient_accumulation_pass(check):
    status, report = check(
        "--model=convnet",
        "--params=layers=[conv:8:3,batch_norm,relu,flatten,dense:8]",
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
    ("params", "level"),
    [slow("dropout=0,hidden_units=8,optimizer=momentum", "note"), slow("dropout=0.5", "warning")],
)
def test_rehearsal_compares_the_wrappers(check, params, level, monkeypatch):
    monkeypatch.setattr(tf.nn, "relu", tf.nn.softplus)  # as conftest.smooth_activations
    sizes = [f"--{mode}_batch_size=64" for mode in ("train", "eval", "predict")]
    arguments = [f"--params={params}", "--check_run_steps=3", "--train_steps=9", *sizes]
    status, report = check("--tpu_topology=1x2", "--check_compiler=off", *arguments)
    assert status == 0
    (found,) = [finding for finding in report["findings"] if finding["code"] == "run"]
    assert found["level"] == level


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_has_random_data(recipe):
    assert recipe_memory.data_flags(recipe)[0] == "--dataset=synthetic"


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("beam_size", [1, 2])
def test_generation_counts_each_token_of_a_row(check_with, beam_size):
    _, report = check_with(
        "--model=gpt",
        f"--params=size=nano,num_layers=1,max_positions=7,beam_size={beam_size}",
        "--dataset=synthetic",
        "--synthetic_task=language_model",
        "--synthetic_text=7x13",
        "--eval_split=test",
        "--train_steps=10",
        "--train_batch_size=8",
        "--eval_batch_size=8",
        "--predict_batch_size=8",
        "--tpu_topology=v3-8",
        "--check_compiler=off",
    )
    not_counted = report["modes"]["predict"]["sizes"]["not_counted"]
    assert not any("all but one iteration" in reason for reason in not_counted)


def test_pjrt_devices_are_checked_like_cores(check):
    """A v5p-8 is named for its 8 TensorCores, and has 4 devices."""
    sizes = [f"--{mode}_batch_size=64" for mode in ("train", "eval", "predict")]
    flags = ["--tpu_topology=v5p-8", "--check_compiler=off", "--train_steps=9"]
    status, report = check(*flags, *sizes)
    assert status == report["num_warnings"] == 0
    assert report["topology"]["name"] == "v5p-8"
    assert {mode["batch_size"] for mode in report["modes"].values()} == {16}


def test_check_needs_tpu_topology(run_tpu_in, tmp_path):
    with pytest.raises(flags.IllegalFlagValueError, match="--mode=check needs --tpu_topology"):
        run_tpu_in(tmp_path, "--mode=check", "--tpu_topology=", "--train_steps=9")


def test_check_mode_is_for_run_tpu_only(run_in, tmp_path):
    with pytest.raises(UsageError, match=r"--mode=check is only available in run_tpu\.py"):
        run_in(tmp_path, "--mode=check", "--tpu_topology=v3-8")


def test_exit_status_is_1_on_errors(check):
    status, report = check("--tpu_topology=v3-8", "--train_batch_size=13", "--train_steps=9")
    assert status == 1
    assert report["num_errors"] >= 1
    messages = [finding["message"] for finding in report["findings"]]
    assert "13 / 8 = 1.62. Use 8 or 16" in messages[0]
    assert any("divisible by number of replicas 8" in message for message in messages)


@pytest.mark.slow  # like test_check_finds_no_error of tests/contract/test_cases.py
def test_other_stages_run_without_compiler(check):
    sizes = [f"--{mode}_batch_size=64" for mode in ("train", "eval", "predict")]
    status, report = check("--tpu_topology=v3-8", "--check_compiler=off", "--train_steps=9", *sizes)
    assert status == 0
    assert report["modes"]["train"]["compiled"] is None
    assert report["modes"]["train"]["sizes"]["hbm_bytes"] > 0


@pytest.mark.slow(cost=0.1)
def test_largest_batch_is_a_multiple_of_accumulate_steps(check, monkeypatch):
    asked = []

    def compile_hlo(program_hlo, target, effort):
        asked.append(effort)
        no_room = len(asked) <= 2  # with either effort
        return compiler.Compiled(not no_room, "a stand-in", out_of_memory=no_room, error="no room")

    monkeypatch.setattr(compiler, "compile_hlo", compile_hlo)
    flags = ["--accumulate_steps=3", "--train_batch_size=384", "--tpu_topology=v3-8"]
    _, report = check(*flags, "--check_compiler=quick")
    (message,) = [f["message"] for f in report["findings"] if f["code"] == "hbm"]
    assert "--train_batch_size=192 fits" in message  # 24 a core: a multiple of 8 and of 3
