"""Segmentation from arrays: exact metrics, reports, and cores with unequal ignored pixels."""

import json
import shutil

import numpy as np
import pytest
from sklearn import metrics as judge

from common.constants import IGNORED_CLASS
from tests import numerics
from tests.contract.segmentation_data import write_images
from tests.marks import slow

STEPS = 10
BATCH = 16
CROSS_REPLICA = "batch_norm_cross_replica=true"
UNET = ["--model=unet", f"--params=width=4,depth=1,{CROSS_REPLICA}"]
DEEPLAB = [
    "--model=deeplab",
    f"--params=backbone=mobilenet_v1,backbone_width=0.125,aspp_filters=8,{CROSS_REPLICA}",
    "--params=decoder_filters=8,low_level_filters=4,aspp_rates=[2],dropout=0",
]
# Its deepest maps have one pixel per image: batch norm of 16 numbers magnifies rounding so much
# that a second step differs by its whole gradient. One step, forward and backward, has 27
# convolutions and 6 of the head, each with a product, two roundings of batch norm and a ReLU6.
DEEPLAB_STEPS, DEEPLAB_DEPTH = 2, 2 * 33 * 4


@pytest.fixture(scope="module")
def flags_for(tmp_path_factory):
    """Returns the flags of a model on images of which some pixels are ignored."""
    data_dir = tmp_path_factory.mktemp("masks")
    write_images(data_dir)

    def build(model, *more):
        return [
            *model,
            "--dataset=tests.mask_arrays:make_pipeline",
            f"--data_dir={data_dir}",
            "--eval_split=test",
            "--params=optimizer=momentum,learning_rate=0.05,pixel_mean=[127.5],pixel_scale=0.01",
            "--params=losses=[cross_entropy,dice:0.5],class_weights=[1,2,3]",
            *(f"--{mode}_batch_size={BATCH}" for mode in ("train", "eval", "predict")),
            "--noexport_check",
            "--seed=1",
            *more,
        ]

    return build


@pytest.fixture(scope="module")
def start(run_with, flags_for, smooth_activations, tmp_path_factory):
    """Returns a model_dir after one step, from which the trainings below resume."""

    def train(model):
        folder = tmp_path_factory.mktemp("start")
        run_with(*flags_for(model, "--mode=train", "--train_steps=1", f"--model_dir={folder}"))
        return folder

    return train


@pytest.fixture
def differences(run_with, run_tpu_with, flags_for, start, variables, tmp_path):
    """Trains on a CPU and on cores; returns the largest difference in tolerances."""

    def measure(model, *on_cores):
        steps, depth = (DEEPLAB_STEPS, DEEPLAB_DEPTH) if model is DEEPLAB else (STEPS, STEPS)
        folder = start(model)
        for name in ("cpu", "tpu"):
            shutil.copytree(folder, tmp_path / name)
        rest = ["--mode=train", f"--train_steps={steps}"]
        run_with(*flags_for(model, *rest, f"--model_dir={tmp_path}/cpu"))
        cores = ["--tpu=emulator", *on_cores, f"--model_dir={tmp_path}/tpu"]
        run_tpu_with(*flags_for(model, *rest, *cores))
        # Each step sums the gradients of the pixels of the batch.
        terms = BATCH * 7 * 9
        found, expected = (variables(tmp_path / name) for name in ("tpu", "cpu"))
        return numerics.excess(found, expected, terms=terms, depth=depth, magnitude=1.0)

    return measure


@pytest.mark.slow
@pytest.mark.parametrize(("model", "topology"), [(UNET, "1x2"), (UNET, "1x8"), (DEEPLAB, "1x8")])
def test_cores_with_unequal_numbers_of_ignored_pixels_train_like_one(differences, model, topology):
    """The first example has no labeled pixel: cores have different sums of weights."""
    assert differences(model, f"--tpu_topology={topology}") < 1


@pytest.mark.slow
@pytest.mark.parametrize("model", [UNET, DEEPLAB])
def test_batch_norm_per_core_differs(differences, model):
    """Negative control."""
    per_core = "--params=batch_norm_cross_replica=false"
    assert differences(model, "--tpu_topology=1x8", per_core) > 20


@pytest.fixture(scope="module")
def trained_dir(run_with, flags_for, tmp_path_factory):
    """A U-Net after 40 steps, whose predictions are partly right."""
    folder = tmp_path_factory.mktemp("trained")
    arguments = ["--mode=train", "--train_steps=40", f"--model_dir={folder}"]
    run_with(*flags_for(UNET, *arguments))
    return folder


def evaluate(run, flags_for, model_dir, *more):
    """Evaluates and predicts; returns the metrics, the labels and the predicted classes."""
    run(*flags_for(UNET, "--mode=eval", f"--model_dir={model_dir}", *more))
    output = model_dir / "predictions.npz"
    predict = ["--mode=predict", f"--predict_output={output}", f"--model_dir={model_dir}"]
    run(*flags_for(UNET, *predict, *more))
    with open(model_dir / "result_40.json") as file:
        metrics = json.load(file)["eval"]
    data_dir = next(flag for flag in flags_for(UNET) if flag.startswith("--data_dir="))
    with np.load(f"{data_dir.partition('=')[2]}/test.npz") as arrays:
        labels = arrays["classes"]
    with np.load(output) as arrays:
        return metrics, labels, arrays["classes"]


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("batch_size", [7, slow(1), slow(32)])
def test_metrics_are_those_of_scikit_learn(run_with, flags_for, trained_dir, batch_size):
    """41 examples: the last batch is padded."""
    sizes = [f"--{mode}_batch_size={batch_size}" for mode in ("eval", "predict")]
    metrics, labels, classes = evaluate(run_with, flags_for, trained_dir, *sizes)
    is_labeled = labels != IGNORED_CLASS
    pair = labels[is_labeled], classes[is_labeled]
    assert metrics["mean_iou"] == pytest.approx(judge.jaccard_score(*pair, average="macro"))
    assert metrics["pixel_accuracy"] == pytest.approx(judge.accuracy_score(*pair))
    matrix = judge.confusion_matrix(*pair)
    np.testing.assert_array_equal(metrics["confusion_matrix"], matrix)
    assert metrics["classes"]["green"]["pixels"] == matrix[1].sum()
    assert 0.3 < metrics["mean_iou"] < 0.99


@pytest.mark.slow  # as the exact evaluation of other tasks
def test_cores_evaluate_like_a_cpu(run_with, run_tpu_with, flags_for, trained_dir, tmp_path):
    expected, _, _ = evaluate(run_with, flags_for, trained_dir)
    copy = tmp_path / "copy"
    shutil.copytree(trained_dir, copy)
    cores = ["--tpu=emulator", "--tpu_topology=1x2", "--eval_batch_size=14"]
    found, _, _ = evaluate(run_tpu_with, flags_for, copy, *cores, "--predict_batch_size=14")
    assert found["confusion_matrix"] == expected["confusion_matrix"]
    assert found["mean_iou"] == expected["mean_iou"]


@pytest.mark.slow(cost=0.1)
def test_an_evaluation_writes_its_reports(run_with, flags_for, trained_dir, capsys):
    run_with(*flags_for(UNET, "--mode=eval", f"--model_dir={trained_dir}"))
    printed = capsys.readouterr().out
    assert "mean_iou 0." in printed
    assert "blue" in printed
    written = {path.name for path in (trained_dir / "eval").iterdir()}
    assert written > {
        "classes_40.txt", "confusion_matrix_40.png", "first_images_40.png", "worst_images_40.png"
    }  # fmt: skip
