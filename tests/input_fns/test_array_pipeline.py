"""Arrays in memory as a data set: of any features and labels, with what pictures have."""

import importlib
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from common.constants import DROPOUT_SEED
from input_fns import DataError
from input_fns.array_pipeline import ArrayPipeline
from input_fns.dataset_info import Feature
from input_fns.pipeline import Pipeline

SIZE = 23


def arrays(size=SIZE):
    numbers = np.arange(size)
    return {"x": np.stack([numbers, -numbers], 1).astype(np.float32)}, numbers.astype(np.float64)


@pytest.fixture
def pipeline():
    """The numbers 0 to 22, and 0 to 6 to test."""
    return ArrayPipeline("numbers", {"train": arrays(), "test": arrays(7)})


@pytest.fixture
def batches(session):
    """The first batches of an input_fn: `batches(input_fn, batch_size, count)`."""

    def fetch(input_fn, batch_size, count):
        dataset = input_fn({"batch_size": batch_size})
        element = tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()
        return [session.run(element) for _ in range(count)]

    return fetch


def test_it_is_a_pipeline(pipeline):
    assert isinstance(pipeline, Pipeline)
    assert pipeline.features["x"] == Feature("raw", "float32", (2,))
    assert type(pipeline.features["x"].shape[0]) is int  # goes into JSON
    assert pipeline.data.split("test").num_examples == 7


def test_an_epoch_of_training_has_every_example_beside_its_label(pipeline, batches):
    found = batches(pipeline.train_input_fn("train", seed=1), SIZE, 2)
    for features, labels in found:
        assert sorted(labels) == list(range(SIZE))
        np.testing.assert_array_equal(features["x"][:, 0], labels)
        assert features[DROPOUT_SEED].shape == (SIZE, 2)
    assert found[0][1].tolist() != found[1][1].tolist()


def test_a_resumed_training_goes_on_with_the_next_batch(pipeline, batches):
    whole = batches(pipeline.train_input_fn("train", seed=1), 5, 9)
    rest = batches(pipeline.train_input_fn("train", seed=1, start_step=6), 5, 3)
    for (features, labels), (features_after, labels_after) in zip(whole[6:], rest):
        np.testing.assert_array_equal(labels_after, labels)
        for name, values in features.items():
            np.testing.assert_array_equal(features_after[name], values)


def test_evaluation_pads_the_last_batch(pipeline, batches):
    (_, _), (features, labels) = batches(pipeline.eval_input_fn("test"), 4, 2)
    assert labels.tolist() == [4, 5, 6, 0]
    assert features["weight"].tolist() == [1, 1, 1, 0]


def test_prediction_has_the_features_alone(pipeline, batches):
    first, last = batches(pipeline.predict_input_fn("test"), 5, 2)
    assert [first["x"].shape, last["x"].shape] == [(5, 2), (2, 2)]


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ({}, "numbers has no splits"),
        ({"train": (arrays()[0], np.arange(9))}, "the arrays of 'train' have the sizes"),
        ({"train": (np.zeros([3, 2]), np.zeros(3))}, "'train' must be"),
        ({"train": ({"x": np.zeros([3, 2])}, [1, 2, 3])}, "the labels of 'train' must be"),
        ({"train": ({"x": np.array(["a", "b"])}, np.zeros(2))}, "x of 'train' must be an array"),
        ({"train": ({"x": np.zeros(3, np.longdouble)}, np.zeros(3))}, "is float128, which Tensor"),
        ({"train": ({"x": np.zeros(3)}, np.ma.masked_less([1, 2, 3], 3))}, "has 2 masked values"),
        ({"train": arrays(), "test": ({"y": np.zeros(3)}, np.zeros(3))}, "split 'test' is"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(splits, message):
    with pytest.raises(DataError, match=message):
        ArrayPipeline("numbers", splits)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({"weight": np.zeros(3)}, "the feature 'weight' of 'train' has the name of one that"),
        ({DROPOUT_SEED: np.zeros(3)}, "the feature 'dropout_seed' of 'train' has the name of one"),
        ({7: np.zeros(3)}, "7 of 'train' is not a string"),
        ({"x": {"m/s": np.zeros(3)}}, "'m/s' of 'train' has a '/'"),
    ],
)
def test_invalid_names_are_refused(features, message):
    with pytest.raises(DataError, match=message):
        ArrayPipeline("numbers", {"train": (features, np.zeros(3))})


def test_names_of_labels_are_checked():
    with pytest.raises(DataError, match="7 of 'train' is not a string"):
        ArrayPipeline("numbers", {"train": ({"x": np.zeros(3)}, {7: np.zeros(3)})})


@pytest.mark.parametrize("name", ["living area", "class"])
def test_other_names_of_columns_are_accepted(name):
    pipeline = ArrayPipeline("numbers", {"train": ({name: np.zeros(3)}, {"weight": np.ones(3)})})
    assert [*pipeline.features] == [name]


@pytest.mark.parametrize("labels", [[1, 2, 3], [0, -1, 2]])
def test_labels_outside_the_classes_are_refused(labels):
    split = {"x": np.zeros([3, 2])}, np.array(labels)
    words = r"the labels of 'test' are from .* of 3 classes must be from 0 to 2"
    with pytest.raises(DataError, match=words):
        ArrayPipeline("numbers", {"test": split}, class_names=("a", "b", "c"))


@pytest.mark.parametrize("labels", [[0.5, 1, 2], [np.nan, 1, 2], [True, False, True]])
def test_labels_of_classes_are_integers(labels):
    split = {"x": np.zeros([3, 2])}, np.array(labels)
    with pytest.raises(DataError, match="classes must be integers"):
        ArrayPipeline("numbers", {"test": split}, class_names=("a", "b", "c"))


MODULE = """
import numpy as np

from input_fns.array_pipeline import ArrayPipeline

SEEN = []
ARRAYS = {"image": np.zeros([8, 3, 3, 1], np.uint8)}, np.arange(8) % 2


def with_params(data_dir, params):
    SEEN.append((data_dir, params["hidden_units"], params["learning_rate"]))
    return ArrayPipeline("zeros", {"train": ARRAYS, "test": ARRAYS}, ("a", "b"), {"scale": 2.0})


def without_params(data_dir, number=3):
    SEEN.append((data_dir, number))
    return ArrayPipeline("zeros", {"train": ARRAYS, "test": ARRAYS}, ("a", "b"))
"""


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    ("function", "seen"), [("with_params", ("d", [4], 0.25)), ("without_params", ("d", 3))]
)
def test_a_function_gets_the_folder_and_the_hyperparameters(
    run_with, tmp_path, monkeypatch, function, seen
):
    name = f"own_{function}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    run_with(
        *(f"--dataset={name}:{function}", "--data_dir=d", "--model=mlp", "--mode=train"),
        *("--params=hidden_units=[4],learning_rate=0.25", "--train_steps=1"),
        *("--train_batch_size=4", f"--model_dir={tmp_path}/run"),
    )
    found = importlib.import_module(name).SEEN
    assert [list(value) if isinstance(value, tuple) else value for value in found[0]] == list(seen)


def test_tensors_do_not_share_the_memory_of_the_arrays():
    """A kernel that XLA compiled may write into its arguments."""
    labels = np.ones([7, 5], np.float32)
    pipeline = ArrayPipeline("ones", {"test": ({"x": labels + 1}, labels)})
    with mock.patch("tensorflow.data.Dataset.from_generator") as from_generator:
        pipeline.stored("test")
    blocks, *_ = from_generator.call_args.args
    (_, found), *_ = blocks()
    assert not np.shares_memory(found, labels)
    np.testing.assert_array_equal(found, labels)
