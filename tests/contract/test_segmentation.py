"""Dense labels with ignored pixels, and an exact mean IoU computed on the host."""

import numpy as np
import pytest

from tests import numerics
from tests.contract.segmentation_data import IGNORED

CASE = "segmentation"


@pytest.fixture(scope="module")
def labels(contract_data_dir):
    """The classes of the pixels of the split "test"."""
    with np.load(contract_data_dir / "test.npz") as arrays:
        return arrays["classes"]


def mean_iou(labels, classes):
    """Returns the mean IoU over all pixels, class by class."""
    labels, classes = labels.ravel(), classes.ravel()
    is_labeled = labels != IGNORED
    ious = []
    for k in range(3):
        is_true, is_found = (labels == k) & is_labeled, (classes == k) & is_labeled
        if (is_true | is_found).any():
            ious.append(np.sum(is_true & is_found) / np.sum(is_true | is_found))
    return np.mean(ious)


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [5, 1, 41, 100])
def test_mean_iou_is_exact_at_any_batch_size(evaluate, predict, labels, batch_size):
    sizes = [f"--{mode}_batch_size={batch_size}" for mode in ("eval", "predict")]
    metrics, classes = evaluate(CASE, *sizes), predict(CASE)["classes"]
    assert classes.shape == labels.shape
    assert metrics["mean_iou"] == pytest.approx(mean_iou(labels, classes), abs=1e-12)
    is_labeled = labels != IGNORED
    accuracy = np.mean((classes == labels)[is_labeled])
    # A quotient of float32 sums.
    numerics.assert_close(metrics["pixel_accuracy"], accuracy, depth=2)
    assert 0.3 < metrics["mean_iou"] < 0.95
    batches = np.array_split(np.arange(41), 5)
    of_batches = np.mean([mean_iou(labels[rows], classes[rows]) for rows in batches])
    assert of_batches != pytest.approx(metrics["mean_iou"], abs=1e-6)
