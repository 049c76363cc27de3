"""docs/own_model.md: its files are those of the case `segmentation`, and its commands work."""

import pathlib
import re
import shlex

import pytest

from tests import numerics
from tests.contract.segmentation_data import write_images

ROOT = pathlib.Path(__file__).parents[2]
CASE = ROOT / "tests" / "contract" / "segmentation"


@pytest.fixture
def blocks():
    """The fenced blocks of the page: `{language: [text]}`."""
    page = (ROOT / "docs" / "own_model.md").read_text()
    found = {}
    for language, text in re.findall(r"^```(\w*)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        found.setdefault(language, []).append(text)
    return found


def test_its_code_is_that_of_the_case(blocks):
    assert blocks["python"] == [(CASE / f"{name}.py").read_text() for name in ("data", "model")]


def test_its_example_has_less_than_80_lines(blocks):
    lines = [line for text in blocks["python"] + blocks[""] for line in text.splitlines()]
    assert len(lines) < 80


@pytest.mark.slow
def test_its_commands_work(blocks, run_with, run_tpu_with, result, tmp_path, monkeypatch, capsys):
    (tmp_path / "segmentation").mkdir()
    for name, code in zip(("data", "model"), blocks["python"]):
        (tmp_path / "segmentation" / f"{name}.py").write_text(code)
    (tmp_path / "data" / "shapes").mkdir(parents=True)
    write_images(tmp_path / "data" / "shapes")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    (text,) = blocks[""]
    train, predict, evaluate, check = (shlex.split(line)[2:] for line in text.splitlines())
    run_with(*train, "--seed=1")
    cpu = result("runs/shapes", 200)["eval"]
    assert cpu["mean_iou"] > 0.7
    assert list(pathlib.Path("runs/shapes/export").glob("[0-9]*/saved_model.pb"))
    run_with(*predict)
    run_tpu_with(*evaluate)
    tpu = result("runs/shapes", 200)["eval"]
    for name in ("mean_iou", "pixel_accuracy", "average_loss"):
        # Two convolutions of 3x3 pixels and 16 channels, and a softmax.
        numerics.assert_close(tpu[name], cpu[name], terms=9 * 16, depth=4, name=name)
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        run_tpu_with(*check, "--check_compiler=off")
    assert end.value.code == 0, capsys.readouterr().out
