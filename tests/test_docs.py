"""Links and file names in the docs are valid; the examples in own_model.md and own_data.md run."""

import csv
import json
import pathlib
import re
import shlex

import numpy as np
import pytest

from input_fns import dataset_info
from input_fns.convert import SOURCES
from tests import numerics

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY")),
    ROOT / "tpu" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]


def fenced(page, language):
    """Returns the fenced code blocks of a page in one language."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return [block for name, block in blocks if name == language]


def anchors(page):
    """Returns the anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_are_valid(page):
    for link in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        target, _, anchor = link.partition("#")
        if "://" not in link:
            linked = page.parent / target if target else page
            assert linked.exists(), f"{page.name} links {link}"
            assert not anchor or anchor in anchors(linked), f"{page.name} links {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_files_exist(page):
    folders = "common|engine|models|input_fns|tpu|tests|tools|benchmarks|configs|examples"
    for name in re.findall(rf"\b((?:{folders})/[\w/]+\.(?:py|cfg|sh|c))\b", page.read_text()):
        assert (ROOT / name).exists(), f"{page.name} names {name}"


def test_the_data_page_lists_each_source():
    sources = (ROOT / "docs" / "data.md").read_text().partition("## Sources")[2]
    named = set(re.findall(r"`([\w:]+)`", sources.partition("## ")[0]))
    assert {name for name in SOURCES if name != "tfds"} <= named
    assert "tfds:NAME" in named


def test_predictions_are_joined_with_the_rows_of_texts(tmp_path, monkeypatch):
    (code,) = fenced(ROOT / "docs" / "text.md", "python")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "new.csv").write_text('\ufeffreview,id\n"a, ""b""\nc",7\n\nd,8\n', "utf-8")
    rows = [
        {"index": 1, "class_names": "bad", "probabilities": [0.75, 0.25]},
        {"index": 0, "class_names": "good", "probabilities": [0.375, 0.625]},
    ]
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    (tmp_path / "runs" / "mine" / "new.jsonl").write_text(lines)
    exec(code, {})
    with open("predicted.csv", newline="", encoding="utf-8") as file:
        assert list(csv.reader(file)) == [
            ["review", "id", "class", "probability"],
            ['a, "b"\nc', "7", "good", "0.625"],
            ["d", "8", "bad", "0.75"],
        ]


def test_own_data_example(tmp_path, monkeypatch, run_with, run_tpu_with, result):
    code, _ = fenced(ROOT / "docs" / "own_data.md", "python")
    (tmp_path / "houses.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    random = np.random.default_rng(1)
    (tmp_path / "data" / "houses").mkdir(parents=True)
    for name, size in (("train", 211), ("test", 37)):
        columns = random.normal(size=[size, 5])
        rows = np.column_stack([columns, columns[:, 0] - columns[:, 1] ** 2])
        path = tmp_path / "data" / "houses" / f"{name}.csv"
        np.savetxt(path, rows, delimiter=",", header="a,b,c,d,e,price", comments="")
    block, _ = fenced(ROOT / "docs" / "own_data.md", "")
    block = block.replace("data/", f"{tmp_path}/data/").replace("runs/", f"{tmp_path}/runs/")
    train, predict, export, evaluate = (shlex.split(line)[2:] for line in block.splitlines())
    run_with(*train, "--seed=1")
    model_dir = tmp_path / "runs" / "houses"
    trained = result(model_dir, 500)["eval"]
    assert trained["examples"] == 37
    assert trained["mae"] < 0.5
    run_with(*predict)
    (path,) = model_dir.glob("predictions_test_*.jsonl")
    assert len(path.read_text().splitlines()) == 37
    run_with(*export, "--noexport_check")  # tests/contract has that of custom data
    assert list((model_dir / "export").glob("*/saved_model.pb"))
    run_tpu_with(*evaluate)
    # Mean over 37 examples of the output of a few small layers.
    numerics.assert_close(result(model_dir, 500)["eval"]["mae"], trained["mae"], terms=37, depth=5)


def test_own_format_example(tmp_path, monkeypatch, prepare):
    _, code = fenced(ROOT / "docs" / "own_data.md", "python")
    (tmp_path / "my_ratings.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "u.data").write_text("".join(f"{i} {i % 7} {i % 5}\n" for i in range(40)))
    _, block = fenced(ROOT / "docs" / "own_data.md", "")
    convert, inspect, _ = (shlex.split(line)[2:] for line in block.splitlines())
    here = {"raw": str(tmp_path), "data/my_ratings": str(tmp_path / "data")}
    for arguments in (convert, inspect):
        parts = [argument.partition("=") for argument in arguments]
        prepare(*(f"{name}={here.get(value, value)}" for name, _, value in parts))
    data = dataset_info.load(str(tmp_path / "data"), "my_ratings")
    assert data.properties == {"num_users": 40, "num_items": 7}
    assert data.labels == ("rating",)
    assert {name: split.num_examples for name, split in data.splits.items()} == {
        "train": 36,
        "validation": 4,
    }
