"""Padded boxes as nested labels, and a mean average precision computed on the host."""

import numpy as np
import pytest

from tests.contract.detection import data, model

CASE = "detection"


def mean_average_precision(labels, predictions):
    """Returns the metric of the whole split, box by box in the order of the scores."""
    found = []
    for which in range(data.NUM_CLASSES):
        images, columns = np.nonzero(predictions["classes"] == which)
        order = np.argsort(-predictions["scores"][images, columns], kind="stable")
        is_true = labels["valid"] & (labels["classes"] == which)
        is_free, hits, precisions = is_true.copy(), 0, []
        for rank, (i, j) in enumerate(zip(images[order], columns[order]), start=1):
            best, overlap = None, model.MIN_IOU
            for k in np.flatnonzero(is_free[i]):
                iou = model.iou(predictions["boxes"][i, j], labels["boxes"][i, k])
                if iou >= overlap:
                    best, overlap = k, iou
            if best is not None:
                is_free[i, best] = False
                hits += 1
                precisions.append(hits / rank)
        found.append(sum(precisions) / is_true.sum())
    return np.mean(found)


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [5, 1, 100])
def test_average_precision_is_exact_at_any_batch_size(evaluate, predict, batch_size):
    sizes = [f"--{mode}_batch_size={batch_size}" for mode in ("eval", "predict")]
    metrics, predictions = evaluate(CASE, *sizes), predict(CASE)
    _, labels = data.make_pipeline(None).splits["test"]
    expected = mean_average_precision(labels, predictions)
    assert 0.05 < expected < 0.95
    assert metrics["mean_average_precision"] == pytest.approx(expected, abs=1e-12)
    assert metrics["num_boxes"] == labels["valid"].sum()
    padding_too = {**labels, "valid": np.ones_like(labels["valid"])}
    assert mean_average_precision(padding_too, predictions) != pytest.approx(expected, abs=1e-3)
