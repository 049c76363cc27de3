"""The HTML report of a run."""

import html.parser
import json
import os
import re
import shutil

import pytest

from common.errors import UsageError
from tests.marks import slow
from tools import report
from tools.reporting import curves, evaluations, runs


class Tags(html.parser.HTMLParser):
    """Collects tags and the URLs of images and styles."""

    def __init__(self):
        super().__init__()
        self.found, self.sources = [], []

    def handle_starttag(self, tag, attributes):
        self.found.append(tag)
        self.sources += [value for name, value in attributes if name in ("src", "href")]


@pytest.fixture(scope="module")
def reported(run_in, tmp_path_factory):
    """A model_dir with everything that a report shows. Read only."""
    path = tmp_path_factory.mktemp("reported")
    run_in(path, "--train_steps=20", "--save_checkpoints_steps=10", "--summary_steps=5")
    run_in(path, "--mode=predict")
    return path


@pytest.mark.slow(cost=0.1)
def test_report_shows_the_run_without_external_resources(reported, tmp_path):
    report.main(str(reported), str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    tags = Tags()
    tags.feed(page)
    outside = [s for s in tags.sources if not s.startswith(("data:image/png;base64,", "#part"))]
    assert outside == []
    assert tags.found.count("img") == 1 + 24  # the confusion matrix, and the predictions
    assert re.findall("<h2 .*?>(.*?)</h2>", page) == [
        "Curves",
        "Evaluation",
        "Predictions of step 20",
        "Speed",
        "Flags",
    ]
    names = re.findall("<figcaption>(.*?)</figcaption>", page)
    assert {"examples/sec", "loss"} <= set(names)
    assert '"name":"evaluation"' in page  # in the plot of the loss
    assert "learning_rate 0." in page.partition("Constant: ")[2]
    assert "--model=mlp" in page
    assert page.count("<details open><summary>classes") == 1


@pytest.mark.slow(cost=0.1)
def test_report_shows_each_evaluation(reported, run_in, tmp_path):
    model_dir = shutil.copytree(reported, tmp_path / "model")
    run_in(model_dir, "--mode=eval", "--max_eval_examples=5")
    report.main(str(model_dir))
    page = (model_dir / "report.html").read_text()
    assert re.findall("<td>(eval[a-z_0-9]*)</td>", page) == ["eval", "eval_first_5"]
    assert "confusion matrix, rows are labels (eval_first_5)" in page


@pytest.mark.slow(cost=0.1)
def test_the_best_evaluation_is_beside_the_last_one(run_in, tmp_path):
    flags = ("--train_steps=20", "--save_checkpoints_steps=10", "--best_metric=average_loss:max")
    run_in(tmp_path, *flags, "--eval_every_steps=10")
    report.main(str(tmp_path))
    page = (tmp_path / "report.html").read_text()
    rows = re.findall(r"<td>(eval.*?)</td><td>(\d+)</td>", page)
    assert rows == [("eval (best average_loss)", "10"), ("eval", "20")]


@pytest.mark.slow(cost=0.1)
def test_predictions_whose_data_is_not_here_are_noted(reported, tmp_path):
    model_dir = shutil.copytree(reported, tmp_path / "model")
    (model_dir / "flags.cfg").write_text("--model=mlp\n--data_dir=data/elsewhere\n")
    report.main(str(model_dir))
    page = (model_dir / "report.html").read_text()
    assert "the predictions: --data_dir=data/elsewhere has no data set, as seen from here" in page


@pytest.mark.slow(cost=0.1)
def test_report_of_training_only(run, tmp_path):
    model_dir = run("--mode=train", "--train_steps=10", "--summary_steps=5")
    report.main(model_dir)
    with open(f"{model_dir}/report.html") as file:
        assert re.findall("<h2 .*?>(.*?)</h2>", file.read()) == ["Curves", "Speed", "Flags"]


def headings(model_dir):
    report.main(str(model_dir))
    return re.findall("<h2 .*?>(.*?)</h2>", (model_dir / "report.html").read_text())


ALL = ["Curves", "Evaluation", "Predictions of step 20", "Speed", "Flags"]


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    ("name", "content", "missing"),
    [
        slow("result_20.json", b"", {"Speed"}),
        ("result_20.json", b'{"step": 20, "tra', {"Speed"}),
        slow("result_20.json", b"\xff\xfe", {"Speed"}),
        slow("result_20.json", b"null", {"Speed"}),
        slow("result_20.json", b"[" * 10**5, {"Speed"}),
        ("flags.cfg", b"\xff\xfe", {"Flags", "Predictions of step 20"}),
        slow("predictions_test_20.jsonl", b'{"index": 0, "cl', {"Predictions of step 20"}),
        ("predictions_test_20.jsonl", b'{"class_names": 3, "probabilities": 3}', {ALL[2]}),
        ("events.out.tfevents.9", b"no record" * 9, set()),
    ],
)
def test_broken_file_is_listed_in_the_report(reported, tmp_path, name, content, missing):
    model_dir = shutil.copytree(reported, tmp_path / "a [b]* ?")
    (model_dir / name).write_bytes(content)
    assert headings(model_dir) == [part for part in ALL if part not in missing] + ["Not shown"]


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("content", [slow(b"{}"), b'{"step": "x", "train": 3, "eval": []}'])
def test_result_without_sections_is_ignored(reported, tmp_path, content):
    model_dir = shutil.copytree(reported, tmp_path / "a [b]* ?")
    for path in model_dir.glob("result_*.json"):
        path.write_bytes(content)
    assert headings(model_dir) == ["Curves", "Predictions of step 20", "Flags"]


@pytest.mark.slow(cost=0.1)
def test_records_before_a_truncated_one_are_drawn(reported, tmp_path):
    model_dir = shutil.copytree(reported, tmp_path / "a [b]* ?")
    (path,) = model_dir.glob("events.*")
    whole = runs.Run(str(model_dir), "").scalars()["training"]["loss"]
    os.truncate(path, path.stat().st_size - 7)
    run = runs.Run(str(model_dir), "")
    assert run.scalars()["training"]["loss"].items() <= whole.items()
    assert len(run.notes) == 1
    assert headings(model_dir) == [*ALL, "Not shown"]


def test_report_of_a_run_that_has_just_started(tmp_path):
    (tmp_path / "flags.cfg").write_text("--model=mlp\n--data_dir=/no/such\n")
    assert headings(tmp_path) == ["Flags"]


class FakeRun:
    """A run with these scalars of its training."""

    def __init__(self, name="", **tags):
        self.name, self._tags = name, tags

    def scalars(self):
        return {"training": self._tags}


def test_values_that_are_not_finite_are_gaps():
    drawn = curves.draw([FakeRun(loss={1: 3.0, 2: float("inf"), 3: float("nan"), 4: 2.5})])
    assert '"y":[3.0,null,null,2.5]' in drawn


def test_constant_curves_are_a_line_of_text():
    drawn = curves.draw([FakeRun(learning_rate={1: 0.5, 2: 0.5}, loss={1: 3.0, 2: 2.0})])
    assert re.findall("<figcaption>(.*?)</figcaption>", drawn) == ["loss"]
    assert "Constant: learning_rate 0.5" in drawn


def test_long_curves_are_thinned_and_keep_their_end():
    points = [(step, 1.0 / (step + 1)) for step in range(4321)]
    thinned = curves._thinned(points)
    assert len(thinned) == 1441
    assert thinned[-1] == points[-1]


def test_names_of_a_run_cannot_leave_the_page():
    drawn = curves.draw([FakeRun(**{"</script><b>": {1: 3.0, 2: 2.0}})])
    assert "</script><b>" not in drawn


def evaluated(folder, **section):
    """Returns the details of an evaluation of step 5 in `folder`."""
    (folder / "result_5.json").write_text(json.dumps({"step": 5, "eval": {"loss": 1, **section}}))
    return evaluations.details(runs.Run(str(folder), ""))


@pytest.mark.parametrize("name", ["ROC", "roc-curve", "top5_errors", "scatter_11"])
def test_pictures_of_any_name_are_shown(tmp_path, name):
    (tmp_path / "eval").mkdir()
    for step in (5, 15):
        (tmp_path / "eval" / f"{name}_{step}.png").write_bytes(b"png")
    assert re.findall('title="(.*?)"', evaluated(tmp_path)) == [name.replace("_", " ")]


def test_the_table_of_numbers_starts_with_the_worst_ones(tmp_path):
    page = evaluated(tmp_path, numbers={"age": {"r2": 0.5}, "height": {"r2": -0.25}})
    assert re.findall("<t[hd]>(.*?)</t[hd]>", page) == [
        "number", "r2", "height", "-0.25", "age", "0.5",
    ]  # fmt: skip


def test_the_text_of_numbers_is_shown_without_their_results(tmp_path):
    (tmp_path / "eval").mkdir()
    (tmp_path / "eval" / "numbers_5.txt").write_text("age 0.5")
    assert "<summary>numbers</summary><pre>age 0.5</pre>" in evaluated(tmp_path)


@pytest.mark.slow(cost=0.1)
def test_several_runs_are_compared(reported, tmp_path, monkeypatch):
    other = shutil.copytree(reported, tmp_path / "other")
    text = (other / "flags.cfg").read_text()
    (other / "flags.cfg").write_text(f"{text}--params=learning_rate=0.25,layers=[3,5],momentum=0\n")
    monkeypatch.chdir(tmp_path)
    report.main(str(reported), str(other))
    page = (tmp_path / "report.html").read_text()
    headings = re.findall("<h2 .*?>(.*?)</h2>", page)
    assert headings[:3] == ["Flags that differ", "Curves", "Evaluation"]
    table = page.partition("Flags that differ</h2>")[2].partition("</table>")[0]
    found = dict(re.findall("<tr><td>(.*?)</td>.*?<td>([^<]*)</td></tr>", table))
    assert found == {"learning_rate": "0.25", "layers": "[3,5]", "momentum": "0"}
    # Without the folder that both are in.
    for run in (reported, other):
        name = run.relative_to(os.path.commonpath([reported.parent, other.parent]))
        assert f'"name":"{name}: training"'.replace("/", "\\u002f") in page


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        (["runs/a"], [""]),
        (["runs/a", "runs/b"], ["a", "b"]),
        (["runs/a", "runs/b/a", "gs://c/a"], ["runs/a", "runs/b/a", "gs://c/a"]),
        (["gs://c/runs/a", "gs://c/runs/b/a"], ["a", "b/a"]),
        (["a", "a/b"], ["a", "a/b"]),
    ],
)
def test_names_of_several_runs_are_short(folders, names):
    assert report._names(folders) == names


def test_folder_without_a_run_raises(tmp_path):
    with pytest.raises(UsageError, match="is not the model_dir of a run"):
        report.main(str(tmp_path))
    assert not list(tmp_path.iterdir())
