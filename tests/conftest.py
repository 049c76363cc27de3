"""Fixtures shared by all tests. TensorFlow is imported and prepared once, as the wrappers do it."""

import json
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pytest
import tensorflow as tf
from absl import flags
from tensorflow.python.eager import context

import prepare_data
import run_cpu
import run_tpu
from input_fns.convert import digits, source, writer
from training import data_flags, optimizers, runtime

runtime.prepare()

# The shapes of a data set small enough for a test and odd enough to show a wrong one.
NUM_TRAIN, NUM_TEST, HEIGHT, WIDTH, NUM_CLASSES = 97, 41, 7, 5, 3


@pytest.fixture(autouse=True)
def graph():
    """A fresh graph for each test."""
    with tf.Graph().as_default() as graph:
        yield graph


@pytest.fixture
def session(graph):
    """A session on the test's graph."""
    with tf.compat.v1.Session(graph=graph) as session:
        yield session


@pytest.fixture
def eager():
    """TensorFlow 2 as Keras users know it, for comparisons with Keras."""
    with context.eager_mode():
        yield


@pytest.fixture(scope="session")
def minimize():
    """The op of one training step on a scalar loss: `minimize(loss, params, learning_rate)`."""

    def build(loss, params, learning_rate):
        optimizer = optimizers.create(params, learning_rate)
        gradients = optimizers.compute_gradients(optimizer, loss, params)
        return optimizers.apply_gradients(optimizer, gradients, params)

    return build


def make_raw_dataset(name="stripes", seed=3):
    """A data set that a small net learns at once: class c is bright in column c."""
    random = np.random.default_rng(seed)

    def split(size):
        labels = np.arange(size) % NUM_CLASSES
        images = random.integers(0, 60, [size, HEIGHT, WIDTH, 1], dtype=np.uint8)
        images[np.arange(size), :, labels] += 150
        return source.RawArrays(images, labels)

    class_names = tuple(f"stripe {c}" for c in range(NUM_CLASSES))
    return source.RawDataset(
        name, class_names, {"train": split(NUM_TRAIN), "test": split(NUM_TEST)}
    )


@pytest.fixture(scope="session")
def raw_dataset():
    """The raw images and labels behind `data_dir`."""
    return make_raw_dataset()


@pytest.fixture(scope="session")
def data_dir(raw_dataset, tmp_path_factory):
    """The prepared data set "stripes", in 3 shards a split. Read only."""
    path = str(tmp_path_factory.mktemp("stripes"))
    writer.write(raw_dataset, path, num_shards=3)
    return path


@pytest.fixture
def own_data_dir(raw_dataset, tmp_path):
    """A copy of "stripes" that a test may break."""
    path = str(tmp_path / "data")
    writer.write(raw_dataset, path, num_shards=3)
    return path


@pytest.fixture(scope="session")
def digits_dir(tmp_path_factory):
    """The digits, prepared. Read only."""
    path = str(tmp_path_factory.mktemp("digits"))
    writer.write(digits.read(source.Options("digits")), path)
    return path


def _run(program, flag_values, arguments):
    with tf.Graph().as_default():
        flag_values.unparse_flags()
        for name in flag_values:
            flag_values[name].unparse()
        flag_values(["program", *arguments])
        program.main()


@pytest.fixture(scope="session")
def tiny_flags(data_dir):
    """Flags of both wrappers for a tiny model on "stripes"."""
    return [
        "--model=mlp",
        "--params=learning_rate=0.01,pixel_scale=0.01",
        "--dataset=stripes",
        f"--data_dir={data_dir}",
        "--train_batch_size=13",
        "--eval_batch_size=13",
        "--predict_batch_size=13",
        "--seed=1",
    ]


@pytest.fixture(scope="session")
def run_in(tiny_flags):
    """Runs run_cpu.py's real main: `run_in(model_dir, "--mode=eval", ...)`; a tiny model."""

    def run_with(model_dir, *arguments):
        _run(run_cpu, flags.FLAGS, [*tiny_flags, f"--model_dir={model_dir}", *arguments])

    return run_with


@pytest.fixture(scope="session")
def run_tpu_in(tiny_flags):
    """The same with run_tpu.py, on 2 emulated cores; batches are of 14, for 13 is odd."""
    tpu_flags = ["--tpu=emulator", "--tpu_topology=1x2"]
    tpu_flags += [f"--{mode}_batch_size=14" for mode in ("train", "eval", "predict")]

    def run_with(model_dir, *arguments):
        every = [*tiny_flags, *tpu_flags, f"--model_dir={model_dir}", *arguments]
        _run(run_tpu, flags.FLAGS, every)

    return run_with


@pytest.fixture(scope="session")
def variables():
    """Returns every variable of a folder's newest checkpoint: `variables(model_dir)`."""

    def read(model_dir):
        checkpoint = tf.train.latest_checkpoint(model_dir)
        names = [name for name, _ in tf.train.list_variables(checkpoint)]
        return {name: tf.train.load_variable(checkpoint, name) for name in names}

    return read


@pytest.fixture
def run(run_in, tmp_path):
    """The same in a model_dir of the test's own, which it returns: `run("--mode=train", ...)`."""

    def run_with(*arguments):
        run_in(tmp_path / "model", *arguments)
        return str(tmp_path / "model")

    return run_with


@pytest.fixture(scope="session")
def trained_dir(run_in, tmp_path_factory):
    """A model_dir at step 40, with a checkpoint every 10 steps."""
    path = str(tmp_path_factory.mktemp("trained"))
    run_in(path, "--mode=train", "--train_steps=40", "--save_checkpoints_steps=10")
    return path


@pytest.fixture
def prepare():
    """Runs prepare_data.py's real main: `prepare("--dataset=digits", ...)`."""
    return lambda *arguments: _run(prepare_data, data_flags.FLAGS, arguments)


@pytest.fixture
def result():
    """Returns what `result_<step>.json` of a model_dir holds: `result(model_dir, step)`."""

    def read(model_dir, step):
        with open(os.path.join(model_dir, f"result_{step}.json")) as file:
            return json.load(file)

    return read
