"""--checkpoint=ensemble:A,B: the mean of the predictions of A and B, in every mode and wrapper."""

import glob
import os

import numpy as np
import pytest
import tensorflow as tf

from common.errors import UsageError
from engine.checkpoints import checkpoint_files, ensemble
from models.text import bert_squad
from tests import numerics
from tests.marks import slow

MLP = {"terms": 512, "depth": 3}


@pytest.fixture(scope="module")
def other_dir(run_in, tmp_path_factory):
    """A model_dir trained with another seed; its checkpoint has moving averages."""
    path = str(tmp_path_factory.mktemp("other"))
    more = "--params=learning_rate=0.0001,ema_decay=0.9"
    run_in(path, "--mode=train", "--train_steps=3", "--seed=2", more)
    return path


@pytest.fixture(scope="module")
def predict(run_in, run_tpu_in, tmp_path_factory):
    """Returns the probabilities of the split "test" by a checkpoint."""

    def run(checkpoint, *arguments, on_tpu=False):
        folder = tmp_path_factory.mktemp("predictions")
        wrapper = run_tpu_in if on_tpu else run_in
        flags = f"--checkpoint={checkpoint}", f"--predict_output={folder}/p.npz"
        wrapper(folder / "model", "--mode=predict", *flags, *arguments)
        with np.load(folder / "p.npz") as rows:
            return rows["probabilities"]

    return run


@pytest.fixture(scope="module")
def both(uncertain_dir, other_dir):
    return f"ensemble:{uncertain_dir},{other_dir}"


@pytest.fixture(scope="module")
def mean(predict, uncertain_dir, other_dir):
    return (predict(uncertain_dir) + predict(other_dir)) / 2


@pytest.mark.slow(cost=0.1)
def test_the_predictions_are_the_mean(predict, both, mean, uncertain_dir):
    numerics.assert_close(predict(both), mean, **MLP)
    numerics.assert_close(predict(both, on_tpu=True), mean, **MLP)
    numerics.assert_far(predict(uncertain_dir), mean, **MLP)


@pytest.mark.slow(cost=0.1)
def test_members_use_their_moving_averages(predict, other_dir):
    average = "--params=ema_decay=0.9"
    alone, twice = (predict(c, average) for c in (other_dir, f"ensemble:{other_dir},{other_dir}"))
    numerics.assert_close(twice, alone, **MLP)


@pytest.mark.parametrize("pattern", ["logits/.*", slow("(?i)LOGITS/.*")])
def test_members_with_frozen_variables_have_no_average_of_these(run_in, result, tmp_path, pattern):
    frozen = f"--params=ema_decay=0.9,trainable={pattern}"
    run_in(tmp_path, "--mode=train", "--train_steps=2", "--save_checkpoints_steps=1", frozen)
    one = f"{tmp_path}/model.ckpt-2"
    run_in(tmp_path, "--mode=eval", frozen)
    run_in(tmp_path, "--mode=eval", frozen, f"--checkpoint=ensemble:{one},{one}")
    (folder,) = glob.glob(f"{tmp_path}/ensemble_*")
    alone, twice = (result(tmp_path, 2)[n] for n in ("eval", f"eval_{os.path.basename(folder)}"))
    numerics.assert_close(twice["average_loss"], alone["average_loss"], **MLP)


@pytest.mark.slow(cost=0.1)
def test_an_evaluation_has_its_own_results(
    run_in, uncertain_dir, other_dir, mean, raw_dataset, result
):
    run_in(uncertain_dir, "--mode=eval", f"--checkpoint=ensemble:latest,{other_dir}")
    (folder,) = glob.glob(f"{uncertain_dir}/ensemble_*")
    found = result(uncertain_dir, 2)[f"eval_{folder.rpartition('/')[2]}"]["average_loss"]
    labels = raw_dataset.splits["test"].labels
    expected = -np.mean(np.log(mean[np.arange(41), labels].astype(np.float64)))
    numerics.assert_close(found, expected, **MLP)


@pytest.mark.slow
def test_an_export_serves_the_mean(
    run_in, both, mean, raw_dataset, tmp_path, serve_in_this_process, eager
):
    with serve_in_this_process():
        export = "--mode=export", f"--export_dir={tmp_path}/export", "--export_check"
        run_in(tmp_path / "model", f"--checkpoint={both}", *export)
    (path,) = (tmp_path / "export").iterdir()
    serve = tf.saved_model.load(str(path)).signatures["serving_default"]
    answer = serve(image=tf.constant(raw_dataset.splits["test"].images))
    numerics.assert_close(answer["probabilities"].numpy(), mean, **MLP)


def test_a_model_without_a_mean_is_an_error():
    with pytest.raises(UsageError, match="model 'bert_squad' does not define the mean of predict"):
        ensemble.model_of(bert_squad.MODEL, {}, 2)


def test_parts_of_an_ensemble():
    assert checkpoint_files.ensemble_parts("ensemble:best,average:3,/a/b") == [
        "best",
        "average:3",
        "/a/b",
    ]
    assert checkpoint_files.ensemble_parts("/a/b,c") == []


@pytest.mark.parametrize(
    "value", ["ensemble:", "ensemble:a", "ensemble:a,", "ensemble:a,ensemble:b"]
)
def test_an_invalid_ensemble_is_an_error(run_in, tmp_path, value):
    with pytest.raises(Exception, match=r"must be ensemble:A,B,\.\.\. of two checkpoints or more"):
        run_in(tmp_path, "--mode=eval", f"--checkpoint={value}")
