"""Metrics of a whole split and their reports, judged by scikit-learn and SciPy."""

import io

import numpy as np
import pytest
from PIL import Image
from scipy import stats
from sklearn import metrics

from models.targets import ranking
from models.targets.label_report import LabelReport
from models.targets.number_report import NumberReport

RANDOM = np.random.default_rng(3)
LABELS = RANDOM.integers(0, 2, [31, 3]).astype(np.float32)
# Rounded, so that some are equal.
PROBABILITIES = np.round(RANDOM.uniform(0.05, 0.95, [31, 3]), 1).astype(np.float32)
NUMBERS = RANDOM.normal([3, -2], [5, 1], [31, 2]).astype(np.float32)
GUESSES = np.round(NUMBERS + RANDOM.normal(size=[31, 2])).astype(np.float32)


class Evaluation:
    """An evaluation that keeps what a report writes."""

    step = 7

    def __init__(self):
        self.files, self.images = {}, {}

    def write_file(self, name, content):
        self.files[name] = content

    def write_image(self, tag, png):
        self.images[tag] = png


def label_report(labels=LABELS, probabilities=PROBABILITIES, thresholds=(0.5,)):
    report = LabelReport(("a", "b", "c"), thresholds)
    for rows in (slice(0, 17), slice(17, 31)):
        report.update({}, labels[rows], {"probabilities": probabilities[rows]})
    return report


def number_report():
    report = NumberReport(("age", "height"))
    for rows in (slice(0, 17), slice(17, 31)):
        report.update({}, NUMBERS[rows], {"numbers": GUESSES[rows]})
    return report


def test_mean_average_precision_and_auc():
    assert label_report().result() == pytest.approx(
        {
            "mean_average_precision": metrics.average_precision_score(LABELS, PROBABILITIES),
            "macro_auc": metrics.roc_auc_score(LABELS, PROBABILITIES),
        },
        abs=1e-6,
    )


def test_each_class():
    thresholds = np.float32([0.3, 0.5, 0.6])
    rows = label_report(thresholds=tuple(thresholds)).per_class()
    guesses = thresholds <= PROBABILITIES
    for measure in ("precision", "recall", "f1"):
        expected = getattr(metrics, f"{measure}_score")(LABELS, guesses, average=None)
        assert [row[measure] for row in rows.values()] == pytest.approx(expected)
    assert [row["examples"] for row in rows.values()] == LABELS.sum(axis=0).tolist()


def test_the_best_threshold_has_the_best_f1_of_all():
    rows = label_report().per_class().values()
    for truth, scores, row in zip(LABELS.T, PROBABILITIES.T, rows):
        best = max(metrics.f1_score(truth, scores >= t) for t in np.linspace(0.01, 0.99, 99))
        assert metrics.f1_score(truth, scores >= row["best_threshold"]) == pytest.approx(best)


def test_a_class_without_an_example_does_not_count():
    labels = LABELS * np.float32([1, 0, 1])
    report = label_report(labels)
    assert report.per_class()["b"]["average_precision"] is None
    expected = metrics.average_precision_score(labels[:, ::2], PROBABILITIES[:, ::2])
    assert report.result()["mean_average_precision"] == pytest.approx(expected)


def test_the_table_names_the_flag_of_the_thresholds():
    lines = label_report().text(None).splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["label", "a", "b", "c"]
    best = [row["best_threshold"] for row in label_report().per_class().values()]
    assert lines[-1].endswith("--params=threshold=[" + ",".join(f"{t:.6g}" for t in best) + "]")


def test_r2_and_correlations():
    columns = list(zip(NUMBERS.T, GUESSES.T))
    assert number_report().result() == pytest.approx(
        {
            "r2": metrics.r2_score(NUMBERS, GUESSES),
            "pearson": np.mean([stats.pearsonr(*pair)[0] for pair in columns]),
            "spearman": np.mean([stats.spearmanr(*pair)[0] for pair in columns]),
        },
        abs=1e-6,
    )


def test_errors_of_each_number():
    rows = number_report().per_number()
    expected = metrics.mean_absolute_error(NUMBERS, GUESSES, multioutput="raw_values")
    assert [row["mean_absolute_error"] for row in rows.values()] == pytest.approx(expected)


def test_constant_values():
    ones, numbers = np.ones(5), np.arange(5.0)
    assert ranking.pearson(ones, numbers) == ranking.spearman(numbers, ones) == 0
    assert ranking.r2(ones, ones) == 1
    assert ranking.r2(ones, numbers) == metrics.r2_score(ones, numbers) == 0


def test_files_of_the_reports():
    evaluation = Evaluation()
    assert label_report().write(evaluation)["classes"].keys() == {"a", "b", "c"}
    assert number_report().write(evaluation)["numbers"].keys() == {"age", "height"}
    pictures = ["precision_recall_7.png", "scatter_0_7.png", "scatter_1_7.png"]
    assert sorted(evaluation.files) == ["classes_7.txt", "numbers_7.txt", *pictures]
    for name in pictures:
        image = Image.open(io.BytesIO(evaluation.files[name]))
        assert len(image.getcolors(2**16)) > 3


def test_no_label_above_the_thresholds_is_a_collapse():
    line = label_report(probabilities=PROBABILITIES / 2).find_collapse(None)
    assert line.startswith("no label is predicted for any of the 31 examples: all probabilities")
    assert "--mode=eval prints the thresholds" in line
    assert label_report().find_collapse(None) == ""
    assert label_report(LABELS * 0, PROBABILITIES / 2).find_collapse(None) == ""


def test_the_same_labels_of_all_examples_are_a_collapse():
    same = np.float32([0.9, 0.1, 0.6]) + PROBABILITIES / 1000
    line = label_report(probabilities=same).find_collapse(None)
    assert line.startswith("all 31 predictions are the labels a, c: the model has not learned")


def test_equal_numbers_are_a_collapse():
    report = NumberReport(("age", "height"))
    report.update({}, NUMBERS, {"numbers": np.stack([GUESSES[:, 0], np.full(31, 1.5)], axis=1)})
    assert "all 31 predictions of 'height' are about 1.5: the" in report.find_collapse(None)
    assert number_report().find_collapse(None) == ""
