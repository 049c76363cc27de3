"""Class weights in training, against a NumPy oracle of loss and gradients; oversampling."""

import glob
import types

import numpy as np
import pytest
import tensorflow as tf
from sklearn.utils.class_weight import compute_class_weight

import run_cpu
import run_tpu
from common.errors import UsageError
from engine.cli import class_balance
from input_fns import DataError, dataset_info
from input_fns.array_pipeline import ArrayPipeline
from input_fns.convert import source, writer
from input_fns.core import records
from input_fns.record_pipeline import RecordPipeline
from tests import numerics
from tests.conftest import _runner
from tests.marks import slow

# The whole split is one batch. Its cores have 6 examples each, of different classes.
COUNTS = (39, 7, 2)
SIZE, SMOOTHING = sum(COUNTS), 0.1
LABELS = np.random.default_rng(1).permutation(np.repeat(np.arange(3), COUNTS))
IMAGES = np.random.default_rng(2).integers(0, 256, [SIZE, 7, 5, 1], np.uint8)
# Softmax regression: sums over pixels and examples, and a softmax, forward and backward.
TRAIN = ["--mode=train", "--train_steps=1", f"--train_batch_size={SIZE}", "--summary_steps=1"]
ARITHMETIC = {"terms": SIZE * 35, "depth": 10}


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("imbalanced"))
    split = source.RawArrays(IMAGES, LABELS)
    raw = source.RawDataset("imbalanced", ("a", "b", "c"), {"train": split, "test": split})
    writer.write(raw, path)
    return [
        "--model=mlp",
        "--params=hidden_units=[],pixel_scale=0.01,optimizer=sgd,learning_rate=1",
        "--dataset=imbalanced",
        f"--data_dir={path}",
        f"--eval_batch_size={SIZE}",
        "--seed=1",
    ]


@pytest.fixture(scope="module")
def start(flags, tmp_path_factory):
    """The model_dir of a training without class weights."""
    model_dir = str(tmp_path_factory.mktemp("start"))
    _runner(run_cpu, *flags)(model_dir, *TRAIN)
    return model_dir


def one_step(kernel, bias, weights):
    """Returns the loss of the batch, and kernel and bias after a step."""
    images = IMAGES.reshape(SIZE, -1) * 0.01
    logits = images @ kernel.astype(np.float64) + bias
    log_probabilities = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    targets = np.eye(3)[LABELS] * (1 - SMOOTHING) + SMOOTHING / 3
    shares = targets @ weights / (targets @ weights).sum()
    loss = -np.sum(shares * np.sum(targets * log_probabilities, axis=1))
    gradient = shares[:, None] * (np.exp(log_probabilities) - targets)
    return loss, kernel - images.T @ gradient, bias - gradient.sum(axis=0)


def training_loss(model_dir):
    (loss,) = (
        tf.make_ndarray(value.tensor) if value.HasField("tensor") else value.simple_value
        for path in glob.glob(f"{model_dir}/events.out.tfevents.*")
        for event in tf.compat.v1.train.summary_iterator(path)
        for value in event.summary.value
        if value.tag == "loss"
    )
    return loss


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    "more",
    [
        ["--accumulate_steps=8"],
        ["--tpu=emulator", "--tpu_topology=v2-8"],
        slow(["--tpu=emulator", "--tpu_topology=v2-8", "--accumulate_steps=2"]),
        slow([]),
    ],
)
def test_a_step_equals_the_oracle(more, flags, start, variables, tmp_path):
    wrapper = run_tpu if "--tpu=emulator" in more else run_cpu
    params = f"--params=class_weights=balanced,label_smoothing={SMOOTHING}"
    _runner(wrapper, *flags)(tmp_path, *TRAIN, f"--warm_start_from={start}", params, *more)
    before, after = variables(start), variables(tmp_path)
    weights = compute_class_weight("balanced", classes=np.arange(3), y=LABELS)
    names = "logits/kernel", "logits/bias"
    loss, *expected = one_step(*(before[name] for name in names), weights)
    numerics.assert_close(training_loss(tmp_path), loss, **ARITHMETIC)
    for name, values in zip(names, expected):
        numerics.assert_close(after[name], values, **ARITHMETIC, name=name)
    unweighted = one_step(*(before[name] for name in names), np.ones(3))
    numerics.assert_far(after["logits/kernel"], unweighted[1], **ARITHMETIC)


@pytest.mark.slow(cost=0.1)
def test_an_evaluation_reports_the_loss_without_weights(flags, start, tmp_path, result):
    _runner(run_cpu, *flags)(start, "--mode=eval")
    expected = result(start, 1)["eval"]["average_loss"]
    _runner(run_cpu, *flags)(start, "--mode=eval", "--params=class_weights=[0,1,9]")
    assert result(start, 1)["eval"]["average_loss"] == expected


def test_the_weights_are_printed(flags, tmp_path, capsys):
    _runner(run_cpu, *flags)(tmp_path, *TRAIN, "--params=class_weights=balanced")
    line = "class_weights=balanced of split 'train': a 0.41, b 2.29, c 8"
    assert line in capsys.readouterr().out


def make_pipeline(data_dir):
    """A data set that does not state the examples of each class."""
    arrays = {"image": IMAGES}, LABELS
    return ArrayPipeline("arrays", {"train": arrays, "test": arrays}, ("a", "b", "c"))


def test_classes_of_a_custom_data_set_are_counted(flags, tmp_path, capsys):
    given = [flag for flag in flags if not flag.startswith(("--dataset", "--data_dir"))]
    _runner(run_cpu, *given)(
        tmp_path,
        *TRAIN,
        "--dataset=tests.test_class_weights:make_pipeline",
        "--params=class_weights=effective:0.9",
    )
    output = capsys.readouterr().out
    assert "class_weights=effective:0.9: reading the labels of split 'train'" in output
    assert "of split 'train': a 0.372" in output


SEVERAL = np.float32([[1, 1, 0]] * 30 + [[0, 1, 0]] * 12 + [[0, 0, 1]] * 6)
PARTS = np.float32([[0.5, 0.5, 0]] * 24 + [[0, 0.75, 0.25]] * 24)


def several_labels(data_dir):
    arrays = {"image": IMAGES}, SEVERAL
    properties = {"target": "multilabel", "num_classes": 3}
    return ArrayPipeline("several", {"train": arrays, "test": arrays}, properties=properties)


def soft_labels(data_dir):
    arrays = {"image": IMAGES}, PARTS
    properties = {"target": "soft_labels", "num_classes": 3}
    return ArrayPipeline("soft", {"train": arrays, "test": arrays}, properties=properties)


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    ("dataset", "counts"), [("several_labels", (30, 42, 6)), ("soft_labels", (12, 30, 6))]
)
def test_classes_of_several_and_of_soft_labels_are_counted(
    dataset, counts, flags, tmp_path, capsys
):
    given = [flag for flag in flags if not flag.startswith(("--dataset", "--data_dir"))]
    _runner(run_cpu, *given)(
        tmp_path,
        *TRAIN,
        f"--dataset=tests.test_class_weights:{dataset}",
        "--params=class_weights=balanced",
    )
    weights = [sum(counts) / (3 * count) for count in counts]
    shown = ", ".join(f"{name} {weight:.3g}" for name, weight in zip("012", weights))
    assert f"class_weights=balanced of split 'train': {shown}" in capsys.readouterr().out


def test_a_broken_record_of_labels_is_one_error():
    def host_examples(split, batch_size):
        raise tf.errors.DataLossError(None, None, "corrupted record at 12")
        yield

    data = types.SimpleNamespace(
        split=lambda name: types.SimpleNamespace(label_histogram=None), data_dir=""
    )
    pipeline = types.SimpleNamespace(data=data, host_examples=host_examples)
    params = {"class_weights": "balanced", "num_classes": 3}
    with pytest.raises(DataError, match=r"corrupted record at 12\. class_weights=balanced reads"):
        class_balance.with_class_weights(params, pipeline, "train", False)


def test_oversampling_trains_on_the_classes_equally_often(flags, tmp_path):
    data_dir = next(flag for flag in flags if flag.startswith("--data_dir=")).partition("=")[2]
    pipeline = RecordPipeline(dataset_info.load(data_dir, "imbalanced"))
    input_fn = pipeline.train_input_fn("train", seed=1, oversample=0.0)
    _, labels = next(records.iterate(lambda: input_fn({"batch_size": SIZE})))
    np.testing.assert_array_equal(np.bincount(labels), [16, 16, 16])


@pytest.mark.slow(cost=0.1)
def test_oversampling_of_a_split_that_is_read_from_its_files(flags, tmp_path, capsys):
    more = ["--oversample=balanced", "--cache=none"]
    _runner(run_cpu, *flags)(tmp_path, *TRAIN, *more)
    assert "--oversample: reading the classes of split 'train'" in capsys.readouterr().out
    data_dir = next(flag for flag in flags if flag.startswith("--data_dir=")).partition("=")[2]
    pipeline = RecordPipeline(dataset_info.load(data_dir, "imbalanced"), "none")
    input_fn = pipeline.train_input_fn("train", seed=1, oversample=0.0)
    _, labels = next(records.iterate(lambda: input_fn({"batch_size": SIZE})))
    np.testing.assert_array_equal(np.bincount(labels), [16, 16, 16])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--oversample=0.9", "--params=class_weights=balanced"], "both balance the classes"),
    ],
)
def test_invalid_oversampling_is_an_error(flags, tmp_path, more, message):
    with pytest.raises((UsageError, DataError), match=message):
        _runner(run_cpu, *flags)(tmp_path, *TRAIN, *more)


def make_numbers(data_dir):
    """A data set without classes."""
    arrays = {"image": IMAGES}, LABELS.astype(np.float32)
    return ArrayPipeline("numbers", {"train": arrays, "test": arrays})


def test_oversampling_needs_classes():
    with pytest.raises(DataError, match="needs one class for each example, which numbers does not"):
        make_numbers(None).train_input_fn("train", 1, oversample=0.5)({"batch_size": 3})
