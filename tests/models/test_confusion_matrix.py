"""The figures of the classes, compared with scikit-learn's; the image, by its pixels."""

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from sklearn import metrics

from engine.evaluation.reports import Evaluation
from models import confusion_matrix

NAMES = ("healthy", "black rot", "rust", "scab")
MATRIX = np.array([[30, 1, 0, 1], [0, 33, 0, 0], [12, 0, 15, 0], [0, 0, 0, 32]])


def examples(matrix):
    """Labels and predictions with that confusion matrix."""
    pairs = np.argwhere(matrix >= 0)
    return np.repeat(pairs, matrix.ravel(), axis=0).T


def decode(matrix, names):
    return np.asarray(Image.open(io.BytesIO(confusion_matrix.png(matrix, names))))


def test_precision_recall_and_f1_are_those_of_scikit_learn():
    figures = confusion_matrix.per_class(MATRIX, NAMES)
    expected = zip(*metrics.precision_recall_fscore_support(*examples(MATRIX)))
    assert list(figures) == list(NAMES)
    for found, wanted in zip(figures.values(), expected):
        assert list(found) == ["precision", "recall", "f1", "examples"]
        np.testing.assert_allclose(list(found.values()), wanted, rtol=1e-12)


def test_what_cannot_be_told_is_none():
    figures = confusion_matrix.per_class(np.array([[3, 0, 1], [2, 0, 0], [0, 0, 0]]), "abc")
    assert figures["b"]["precision"] is None  # never predicted
    assert figures["c"]["recall"] is None  # no examples
    assert figures["c"]["precision"] == 0


def test_the_text():
    assert confusion_matrix.text(MATRIX, NAMES).splitlines() == [
        "class      precision  recall      f1  examples",
        "healthy       0.7143  0.9375  0.8108        32",
        "black rot     0.9706  1.0000  0.9851        33",
        "rust          1.0000  0.5556  0.7143        27",
        "scab          0.9697  1.0000  0.9846        32",
        "",
        "labels are rows, predictions columns:",
        "           healthy  black rot  rust  scab",
        "healthy         30          1     0     1",
        "black rot        0         33     0     0",
        "rust            12          0    15     0",
        "scab             0          0     0    32",
        "",
        "most confused:",
        "    12  rust predicted as healthy",
        "     1  healthy predicted as black rot",
        "     1  healthy predicted as scab",
    ]


def test_of_many_classes_the_text_has_the_figures_and_ten_pairs_but_no_matrix():
    matrix = np.random.default_rng(0).integers(0, 50, [21, 21])
    lines = confusion_matrix.text(matrix, [f"class {i}" for i in range(21)]).splitlines()
    assert len(lines) == 1 + 21 + 2 + 10
    counts = [int(line.split()[0]) for line in lines[-10:]]
    wrong = matrix[~np.eye(21, dtype=bool)]
    assert counts == sorted(wrong, reverse=True)[:10]


def test_a_result_holds_the_matrix_of_up_to_a_hundred_classes():
    found = confusion_matrix.figures(MATRIX, NAMES)
    assert list(found) == ["classes", "most_confused", "confusion_matrix"]
    assert found["most_confused"][0] == ("rust", "healthy", 12)
    assert list(confusion_matrix.figures(np.eye(101, dtype=int), ["name"] * 101)) == [
        "classes",
        "most_confused",
    ]


def test_a_classifier_without_fault_confuses_nothing():
    assert "most confused" not in confusion_matrix.text(np.diag([3, 4, 5, 6]), NAMES)


@pytest.mark.parametrize("classes", [2, 20])
def test_cells_of_the_image_are_dark_by_their_fraction_of_the_row(classes):
    image = decode(np.diag([7] * classes), [f"{i}" for i in range(classes)])
    cells = image[-44 * classes :, -44 * classes :][3::44, 3::44]  # their corners: no digits
    dark = (cells < 120).all(axis=-1)
    np.testing.assert_array_equal(dark, np.eye(classes, dtype=bool))


def test_many_classes_get_a_few_pixels_each():
    image = decode(np.eye(100, dtype=int), ["name"] * 100)
    assert image.shape == (800, 800, 3)
    np.testing.assert_array_equal((image[::8, ::8] < 120).all(axis=-1), np.eye(100, dtype=bool))


def test_the_report_writes_files_and_tensorboard_s_image_and_table(tmp_path):
    evaluation = Evaluation(str(tmp_path), 7, {"confusion_matrix": MATRIX}, {}, None, {})
    report = confusion_matrix.ConfusionMatrix(NAMES)
    assert report.write(evaluation) == confusion_matrix.figures(MATRIX, NAMES)
    assert (tmp_path / "classes_7.txt").read_text() == confusion_matrix.text(MATRIX, NAMES)
    png = confusion_matrix.png(MATRIX, NAMES)
    assert (tmp_path / "confusion_matrix_7.png").read_bytes() == png
    (events,) = tmp_path.glob("events.*")
    found = {
        value.tag: value
        for event in tf.compat.v1.train.summary_iterator(str(events))
        for value in event.summary.value
    }
    image = found["confusion_matrix/rows_are_labels"].image
    assert image.encoded_image_string == png
    assert (image.width, image.height) == Image.open(io.BytesIO(png)).size
    table = tf.make_ndarray(found["confusion_matrix/table"].tensor).item().decode()
    assert table.splitlines()[2] == "| **healthy** | 30 | 1 | 0 | 1 |"


def collapse_of(*rows):
    evaluation = Evaluation("", 7, {"confusion_matrix": np.array(rows)})
    return confusion_matrix.ConfusionMatrix(("good", "bad")).find_collapse(evaluation)


def test_predictions_of_one_class_are_a_collapse():
    assert collapse_of([0, 13], [0, 11]) == (
        "all 24 predictions are 'bad': the model has not learned the classes. Train longer, or "
        "with a smaller learning rate"
    )


def test_a_collapse_to_a_frequent_class_proposes_class_weights():
    line = collapse_of([93, 0], [7, 0])
    assert line.startswith("all 100 predictions are 'good', as are 93 % of the labels: the model")
    assert "#imbalanced-classes" in line


@pytest.mark.parametrize(
    "rows",
    [
        ([12, 1], [11, 0]),
        ([9, 0], [8, 0]),  # a small split
        ([29, 0], [4, 0]),  # few examples of the other class
        ([29, 0], [0, 0]),
    ],
)
def test_other_predictions_are_not_a_collapse(rows):
    assert collapse_of(*rows) == ""
