"""docs/own_model.md: its code is that of the cases here, and its commands work."""

import pathlib
import re
import shlex

import pytest

from tests import numerics
from tests.contract.segmentation_data import write_images

ROOT = pathlib.Path(__file__).parents[2]
CASES = ROOT / "tests" / "contract"
FILES = ("data", "model")  # of the case segmentation, the first two blocks


@pytest.fixture
def blocks():
    """The fenced blocks of the page: `{language: [text]}`."""
    page = (ROOT / "docs" / "own_model.md").read_text()
    found = {}
    for language, text in re.findall(r"^```(\w*)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        found.setdefault(language, []).append(text)
    return found


def test_its_code_is_that_of_the_case(blocks):
    files = [(CASES / "segmentation" / f"{name}.py").read_text() for name in FILES]
    assert blocks["python"][: len(files)] == files


def test_its_excerpts_are_of_other_cases(blocks):
    models = [path.read_text() for path in CASES.glob("*/model.py")]
    excerpts = blocks["python"][len(FILES) :]
    assert len(excerpts) == 3
    assert all(any(excerpt in code for code in models) for excerpt in excerpts)


def test_its_example_has_less_than_80_lines(blocks):
    texts = blocks["python"][: len(FILES)] + blocks[""]
    lines = [line for text in texts for line in text.splitlines()]
    assert len(lines) < 80


@pytest.mark.slow
def test_its_commands_work(blocks, run_with, run_tpu_with, result, tmp_path, monkeypatch, capsys):
    (tmp_path / "segmentation").mkdir()
    for name, code in zip(FILES, blocks["python"]):
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
