"""Training on several labels and on numbers, by both wrappers, judged by scikit-learn."""

import numpy as np
import pytest
import tensorflow as tf
from sklearn import metrics

import run_cpu
import run_tpu
from input_fns.array_pipeline import ArrayPipeline
from models.layers import traced
from tests.conftest import _runner
from tests.marks import slow
from tools import keras_network

SIZE, TEST_SIZE = 48, 21
IMAGES = np.random.default_rng(1).integers(0, 256, [SIZE + TEST_SIZE, 5, 3, 1], np.uint8)
MEANS = IMAGES.mean(axis=(1, 3), dtype=np.float32)  # of each column, [size, 3]
LABELS = (MEANS > 128).astype(np.float32)
NUMBERS = 1000 + 2 * MEANS[:, :2]


def _pipeline(values, **properties):
    train, test = slice(0, SIZE), slice(SIZE, None)
    splits = {"train": ({"image": IMAGES[train]}, values[train])}
    splits["test"] = {"image": IMAGES[test]}, values[test]
    return ArrayPipeline("columns", splits, properties=properties)


def multilabel(data_dir):
    return _pipeline(LABELS, num_classes=3, target="multilabel")


def _scaled_numbers(numbers):
    mean, scale = (tuple(map(float, f(numbers[:SIZE], axis=0))) for f in (np.mean, np.std))
    return _pipeline(
        numbers, num_classes=2, target="regression", target_mean=mean, target_scale=scale
    )


def regression(data_dir):
    return _scaled_numbers(NUMBERS)


def in_thousands(data_dir):
    return _scaled_numbers(NUMBERS / 1000)


def unscaled_numbers(data_dir):
    return _pipeline(NUMBERS, num_classes=2, target="regression")


def flags(target):
    return [
        "--model=mlp",
        "--params=hidden_units=[],pixel_mean=[128],pixel_scale=0.02,optimizer=adam,learning_rate=0.03",
        f"--dataset=tests.test_targets:{target}",
        f"--train_batch_size={SIZE}",
        "--eval_batch_size=8",
        "--predict_batch_size=8",
        "--seed=1",
    ]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The model_dir of a training on a target, evaluated, for each target."""

    def train(target):
        model_dir = tmp_path_factory.mktemp(target)
        _runner(run_cpu, *flags(target))(model_dir, "--mode=train_and_eval", "--train_steps=100")
        return str(model_dir)

    return {target: train(target) for target in ("multilabel", "regression")}


def predict(target, model_dir, folder):
    """Returns the predictions of the test split."""
    path = str(folder / "predictions.npz")
    _runner(run_cpu, *flags(target))(model_dir, "--mode=predict", f"--predict_output={path}")
    return dict(np.load(path))


@pytest.mark.slow(cost=0.1)
def test_several_labels(trained, tmp_path, result):
    found = result(trained["multilabel"], 100)["eval"]
    predicted = predict("multilabel", trained["multilabel"], tmp_path)
    truth, guesses = LABELS[SIZE:], predicted["labels"]
    expected = {
        "mean_average_precision": metrics.average_precision_score(
            truth, predicted["probabilities"]
        ),
        "macro_auc": metrics.roc_auc_score(truth, predicted["probabilities"]),
        "macro_f1": metrics.f1_score(truth, guesses, average="macro", zero_division=0),
        "micro_f1": metrics.f1_score(truth, guesses, average="micro"),
        "exact_match": metrics.accuracy_score(truth, guesses),
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-6)
    assert found["macro_auc"] > 0.8
    assert found["classes"].keys() == {"0", "1", "2"}


@pytest.mark.slow(cost=0.1)
def test_numbers(trained, tmp_path, result):
    found = result(trained["regression"], 100)["eval"]
    predicted = predict("regression", trained["regression"], tmp_path)["numbers"]
    truth = NUMBERS[SIZE:]
    assert found["r2"] == pytest.approx(metrics.r2_score(truth, predicted), abs=1e-6)
    error = metrics.mean_absolute_error(truth, predicted)
    assert found["mean_absolute_error"] == pytest.approx(error, rel=1e-6)
    assert found["r2"] > 0.8


@pytest.mark.slow(cost=0.1)
def test_a_checkpoint_predicts_the_same_numbers_with_another_data_set(trained, tmp_path):
    expected = predict("regression", trained["regression"], tmp_path)["numbers"]
    found = predict("unscaled_numbers", trained["regression"], tmp_path)["numbers"]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.slow(cost=0.1)
def test_a_warm_start_has_mean_and_scale_of_the_new_data_set(trained, tmp_path, variables):
    start = f"--warm_start_from={trained['regression']}"
    _runner(run_cpu, *flags("in_thousands"))(tmp_path, "--mode=train", "--train_steps=1", start)
    found = variables(tmp_path)
    numbers = NUMBERS[:SIZE] / 1000
    np.testing.assert_allclose(found["target/mean"], numbers.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(found["target/scale"], numbers.std(axis=0), rtol=1e-6)


@pytest.mark.slow(cost=0.1)
def test_a_model_of_keras_gives_the_same_numbers(tmp_path):
    network = "--model=keras:tests.test_keras_runs:without_batch_norm"
    more = [network, "--params=optimizer=sgd,learning_rate=0.01", *flags("regression")[2:]]
    _runner(run_cpu, *more)(tmp_path / "run", "--mode=train", "--train_steps=2")
    path = str(tmp_path / "predictions.npz")
    _runner(run_cpu, *more)(tmp_path / "run", "--mode=predict", f"--predict_output={path}")
    with traced.tensorflow_2():
        keras_network.to_keras(str(tmp_path / "run"), f"{tmp_path}/whole.keras", "5x3x1")
        whole = tf.keras.models.load_model(f"{tmp_path}/whole.keras")
        found = whole.predict(IMAGES[SIZE:].astype(np.float32), verbose=0)
    expected = np.load(path)["numbers"]
    assert expected.std() > 1
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("target", [slow("multilabel"), "regression"])
def test_emulated_cores_train_and_evaluate_as_a_cpu(target, trained, tmp_path, result):
    more = ["--mode=train_and_eval", "--train_steps=2", f"--warm_start_from={trained[target]}"]
    emulated = ["--tpu=emulator", "--tpu_topology=v2-8"]
    _runner(run_cpu, *flags(target))(tmp_path / "cpu", *more)
    _runner(run_tpu, *flags(target), *emulated)(tmp_path / "tpu", *more)
    cpu, tpu = (result(str(tmp_path / name), 2)["eval"] for name in ("cpu", "tpu"))
    ours = {name: value for name, value in cpu.items() if isinstance(value, float)}
    assert len(ours) >= 6
    assert {name: tpu[name] for name in ours} == pytest.approx(ours, rel=1e-4)
