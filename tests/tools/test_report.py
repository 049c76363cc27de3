"""The HTML page about a run."""

import html.parser
import re

import pytest

from common.errors import UsageError
from tools import report


class Tags(html.parser.HTMLParser):
    """Counts tags, and what an image or a style would load."""

    def __init__(self):
        super().__init__()
        self.found, self.sources = [], []

    def handle_starttag(self, tag, attributes):
        self.found.append(tag)
        self.sources += [value for name, value in attributes if name in ("src", "href")]


def test_the_page_shows_the_run_and_loads_nothing(run, tmp_path):
    model_dir = run("--train_steps=20", "--save_checkpoints_steps=10", "--summary_steps=5")
    run("--mode=predict")
    report.main(model_dir, str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    tags = Tags()
    tags.feed(page)
    assert all(source.startswith("data:image/png;base64,") for source in tags.sources)
    assert tags.found.count("img") == 1 + 24  # the confusion matrix, and the predictions
    assert re.findall("<h2>(.*?)</h2>", page) == [
        "Curves",
        "Evaluation",
        "Predictions of step 20",
        "Speed",
        "Flags",
    ]
    curves = re.findall("<figcaption>(.*?)</figcaption>", page)
    assert {"accuracy", "loss", "learning_rate"} <= set(curves)
    assert page.count("evaluation</text>") >= 2  # accuracy and loss have both lines
    assert "--model=mlp" in page


def test_of_a_training_alone_there_are_curves_and_flags(run, tmp_path):
    model_dir = run("--mode=train", "--train_steps=10", "--summary_steps=5")
    report.main(model_dir)
    with open(f"{model_dir}/report.html") as file:
        assert re.findall("<h2>(.*?)</h2>", file.read()) == ["Curves", "Speed", "Flags"]


def test_a_curve_without_finite_values_says_so():
    nothing = report._svg({"evaluation": {1: float("inf"), 2: float("nan")}})
    assert "not finite</text>" in nothing
    assert "step 2</text>" in nothing
    broken_off = report._svg({"training": {1: 3.0, 2: 2.5, 3: float("inf")}})
    assert "not finite" not in broken_off
    assert [f"{end}</text>" in broken_off for end in ("3", "2.5", "step 3")] == [True] * 3


def test_of_a_folder_without_a_training_there_is_none(tmp_path):
    with pytest.raises(UsageError, match="no training began there"):
        report.main(str(tmp_path))
    assert not list(tmp_path.iterdir())
