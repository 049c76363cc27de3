"""IoU of a split, judged by scikit-learn."""

import types

import numpy as np
import pytest
import tensorflow as tf
from sklearn import metrics as judge

from common.constants import IGNORED_CLASS
from models.segmentation import iou

NUM_CLASSES = 5
RANDOM = np.random.default_rng(4)
LABELS = RANDOM.choice([0, 1, 2, IGNORED_CLASS], [13, 6, 5], p=[0.4, 0.3, 0.1, 0.2]).astype(
    np.uint8
)
# Class 3 is predicted but in no label, class 4 occurs nowhere.
CLASSES = np.where(RANDOM.random(LABELS.shape) < 0.6, np.minimum(LABELS, 3), 1).astype(np.uint8)
CLASSES[RANDOM.random(LABELS.shape) < 0.1] = 3
LABELS[7] = IGNORED_CLASS


def evaluate(batch_size):
    """Returns the metrics of the split in batches, the last one padded with other examples."""
    missing = -len(LABELS) % batch_size
    weights = np.pad(np.ones(len(LABELS), np.float32), (0, missing))
    parts = [np.concatenate([array, array[:1].repeat(missing, 0)]) for array in (LABELS, CLASSES)]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        shape = [batch_size, *LABELS.shape[1:]]
        fed = [tf.compat.v1.placeholder(tf.uint8, shape) for _ in parts]
        weight = tf.compat.v1.placeholder(tf.float32, [batch_size])
        found = iou.streaming(*fed, weight, NUM_CLASSES)
        session.run(tf.compat.v1.local_variables_initializer())
        for start in range(0, len(weights), batch_size):
            rows = slice(start, start + batch_size)
            feed = dict(zip((*fed, weight), (part[rows] for part in (*parts, weights))))
            updates = session.run({name: update for name, (_, update) in found.items()}, feed)
        values = session.run({name: value for name, (value, _) in found.items()})
        assert values["mean_iou"] == updates["mean_iou"]
        return values


@pytest.mark.parametrize("batch_size", [1, 7, 32])
def test_metrics_are_those_of_scikit_learn_at_any_batch_size(batch_size):
    found = evaluate(batch_size)
    is_labeled = LABELS != IGNORED_CLASS
    labels, classes = LABELS[is_labeled], CLASSES[is_labeled]
    matrix = judge.confusion_matrix(labels, classes, labels=range(NUM_CLASSES))
    np.testing.assert_array_equal(found["confusion_matrix"], matrix)
    occurring = np.union1d(labels, classes)
    assert occurring.tolist() == [0, 1, 2, 3]
    expected = judge.jaccard_score(labels, classes, labels=occurring, average="macro")
    # Sums and quotients of integers in float64.
    assert found["mean_iou"] == pytest.approx(expected, rel=1e-14)
    assert found["pixel_accuracy"] == pytest.approx(judge.accuracy_score(labels, classes))


def test_a_class_that_is_only_predicted_counts_as_0(session):
    matrix = tf.constant([[3, 1], [0, 0]], tf.int64)
    assert session.run(iou.mean_iou(matrix)) == (3 / 4 + 0) / 2


def test_a_split_without_labeled_pixels_has_an_iou_of_0(session):
    assert session.run(iou.mean_iou(tf.zeros([3, 3], tf.int64))) == 0


def test_the_iou_of_an_image_counts_the_classes_that_occur_in_it(session):
    found = session.run(iou.image_iou(tf.constant(LABELS), tf.constant(CLASSES), NUM_CLASSES))
    for image, (labels, classes) in enumerate(zip(LABELS, CLASSES)):
        is_labeled = labels != IGNORED_CLASS
        if not is_labeled.any():
            assert found[image] == 1
            continue
        expected = judge.jaccard_score(labels[is_labeled], classes[is_labeled], average="macro")
        assert found[image] == pytest.approx(expected, abs=1e-6)


def test_the_report_lists_classes_without_pixels_with_a_dash(tmp_path):
    matrix = np.array([[6, 2, 0], [1, 1, 0], [0, 0, 0]])
    written = {}
    evaluation = types.SimpleNamespace(
        step=7,
        metrics={"confusion_matrix": matrix},
        write_file=lambda name, content: written.update({name: content}),
        write_image=lambda tag, png: written.update({tag: png}),
        write_text=lambda tag, text: written.update({tag: text}),
    )
    figures = iou.IoUReport(("sky", "road", "car")).write(evaluation)
    assert figures["classes"]["sky"] == {
        "iou": 6 / 9, "precision": 6 / 7, "recall": 6 / 8, "pixels": 8
    }  # fmt: skip
    assert figures["classes"]["car"] == {
        "iou": None, "precision": None, "recall": None, "pixels": 0
    }  # fmt: skip
    table = written["classes_7.txt"].splitlines()
    assert table[1].split() == ["sky", "0.6667", "0.8571", "0.7500", "8"]
    assert table[3].split() == ["car", "-", "-", "-", "0"]
    assert "| road | 0.2500 | 0.3333 | 0.5000 | 2 |" in written["iou/table"]
    assert written["confusion_matrix_7.png"].startswith(b"\x89PNG")
