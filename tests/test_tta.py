"""Test-time augmentation through both wrappers: prediction, evaluation and export agree."""

import numpy as np
import pytest
import tensorflow as tf

from tests import numerics

FLIP = "--params=tta=flip"
MLP = {"terms": 512, "depth": 3}


@pytest.fixture(scope="module")
def predict(run_in, run_tpu_in, uncertain_dir, tmp_path_factory):
    """Returns the probabilities of the split "test" from run_cpu.py or run_tpu.py."""

    def run(*arguments, on_tpu=False):
        path = tmp_path_factory.mktemp("predictions") / "p.npz"
        wrapper = run_tpu_in if on_tpu else run_in
        wrapper(uncertain_dir, "--mode=predict", f"--predict_output={path}", *arguments)
        with np.load(path) as rows:
            return rows["probabilities"]

    return run


@pytest.fixture(scope="module")
def flipped(predict):
    return predict(FLIP)


@pytest.mark.slow(cost=0.1)
def test_cores_predict_what_a_cpu_predicts(predict, flipped):
    numerics.assert_close(predict(FLIP, on_tpu=True), flipped, **MLP)
    numerics.assert_far(predict(), flipped, **MLP)


def test_an_evaluation_reports_the_loss_of_the_mean(
    run_in, uncertain_dir, flipped, raw_dataset, result
):
    run_in(uncertain_dir, "--mode=eval", FLIP)
    labels = raw_dataset.splits["test"].labels
    expected = -np.mean(np.log(flipped[np.arange(41), labels].astype(np.float64)))
    numerics.assert_close(result(uncertain_dir, 2)["eval"]["average_loss"], expected, **MLP)


@pytest.mark.slow
def test_an_export_serves_the_mean(
    run_in, uncertain_dir, flipped, raw_dataset, tmp_path, serve_in_this_process, eager
):
    with serve_in_this_process():
        run_in(uncertain_dir, "--mode=export", FLIP, f"--export_dir={tmp_path}", "--export_check")
    (path,) = tmp_path.iterdir()
    serve = tf.saved_model.load(str(path)).signatures["serving_default"]
    answer = serve(image=tf.constant(raw_dataset.splits["test"].images))
    numerics.assert_close(answer["probabilities"].numpy(), flipped, **MLP)
