"""Trains, evaluates and serves RetinaNet on drawn circles and squares; on a TPU too."""

import json
import os

import numpy as np
import pytest
import tensorflow as tf

from engine.train import loss_reduction
from tests import detector_cores, shapes_data

pytest.importorskip("pycocotools")
pytestmark = pytest.mark.usefixtures("shallow_backbone")

SMALL = (
    "--model=retinanet",
    "--dataset=shapes",
    "--image_size=64x48",
    "--train_batch_size=8",
    "--predict_batch_size=5",
    "--eval_split=validation",
    "--params=backbone=resnet18,backbone_width=0.1,fpn_channels=8,head_convs=1,max_level=5",
    "--params=nms_candidates=60,max_detections=20,anchor_size=2,score_threshold=0.001",
)


@pytest.fixture(scope="module")
def shapes_dir(tmp_path_factory):
    """Prepared drawings: 16 for training, 11 for validation, some of them without shapes."""
    folder = tmp_path_factory.mktemp("shapes")
    return shapes_data.prepare_coco(folder, {"train": 16, "val": 11}, "detection", "shapes")


@pytest.fixture(scope="module")
def model_dir(run_with, shapes_dir, tmp_path_factory):
    """A model of two steps, evaluated."""
    path = str(tmp_path_factory.mktemp("detector"))
    steps = ["--train_steps=2", "--save_checkpoints_steps=2", "--eval_batch_size=7"]
    best = ["--mode=train_and_eval", "--best_metric=AP50"]
    run_with(f"--model_dir={path}", f"--data_dir={shapes_dir}", *SMALL, *steps, *best)
    return path


def read(*parts):
    with open(os.path.join(*parts)) as file:
        return json.load(file)


@pytest.mark.slow
def test_an_evaluation_writes_metrics_detections_and_pictures(model_dir, result):
    evaluated = result(model_dir, 2)["eval"]
    assert evaluated["examples"] == 11
    assert 0 <= evaluated["AP"] <= evaluated["AP50"] < 1
    assert set(evaluated["classes"]) == set(shapes_data.CLASS_NAMES)
    names = set(os.listdir(os.path.join(model_dir, "eval")))
    assert names >= {
        *("detections.json", "classes_2.txt", "precision_recall_2.png"),
        *("first_detections_2.png", "worst_detections_2.png"),
    }
    found = read(model_dir, "eval", "detections.json")
    images = shapes_data.drawings("val", 11)
    assert {one["image_id"] for one in found} <= set(images)
    assert {one["category_id"] for one in found} <= set(shapes_data.CATEGORY_IDS)
    for one in found:
        x, y, width, height = one["bbox"]
        limits = images[one["image_id"]].image.shape
        assert 0 <= y < y + height <= limits[0] + 1e-3
        assert 0 <= x < x + width <= limits[1] + 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 7, 32])
def test_the_batch_size_of_an_evaluation_does_not_matter(
    run_with, shapes_dir, model_dir, result, batch_size
):
    before = result(model_dir, 2)["eval"]
    batches = [f"--eval_batch_size={batch_size}", f"--predict_batch_size={batch_size}"]
    model = [f"--model_dir={model_dir}", f"--data_dir={shapes_dir}", *SMALL]
    run_with(*model, "--mode=eval", *batches)
    after = result(model_dir, 2)["eval"]
    for name in ("AP", "AP50", "AR_100", "class_loss", "box_loss"):
        assert after[name] == pytest.approx(before[name], rel=1e-5)


@pytest.mark.slow
def test_a_tpu_detects_the_same(run_tpu_with, shapes_dir, model_dir, tmp_path):
    flags = ["--mode=predict", f"--predict_output={tmp_path}", "--tpu=emulator"]
    batches = ["--tpu_topology=1x2", "--predict_batch_size=4", "--eval_batch_size=4"]
    model = [f"--model_dir={model_dir}", f"--data_dir={shapes_dir}", *SMALL]
    run_tpu_with(*model, *flags, *batches)
    expected, found = read(model_dir, "eval", "detections.json"), read(tmp_path, "detections.json")
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected):
        assert (ours["image_id"], ours["category_id"]) == (
            theirs["image_id"],
            theirs["category_id"],
        )
        np.testing.assert_allclose(ours["bbox"], theirs["bbox"], atol=1e-3)


@pytest.fixture
def excess(run_with, run_tpu_with, shapes_dir, variables, tmp_path):
    """Trains on a CPU and on 8 cores, two images per core with 0 to 8 boxes.

    Returns the largest difference of the variables in tolerances.
    """

    def measure():
        flags = [
            *SMALL,
            f"--data_dir={shapes_dir}",
            # Not a multiple of 4: a TPU's stem, which pools first, equals the other one with ReLU
            # only, not with a smooth activation (tests/models/layers/test_conv_batch_norm.py).
            "--image_size=62x46",
        ]
        # Each step sums the gradients of the locations of the largest map, 8 x 6, of the batch.
        return detector_cores.excess(
            run_with, run_tpu_with, variables, tmp_path, flags, steps=10, terms=8 * 6
        )

    return measure


@pytest.mark.slow
@pytest.mark.usefixtures("smooth_activations")
def test_cores_with_unequal_numbers_of_boxes_train_like_one(excess):
    assert excess() < 1


@pytest.mark.slow
@pytest.mark.usefixtures("smooth_activations")
def test_a_loss_normalized_per_core_differs(excess, monkeypatch):
    """Negative control."""

    def of_core(terms, params):
        del params
        return {name: tf.reduce_sum(term.weights) for name, term in terms.items()}

    monkeypatch.setattr(loss_reduction, "denominators", of_core)
    assert excess() > 20
