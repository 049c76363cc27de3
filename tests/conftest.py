"""Fixtures shared by all tests. TensorFlow is imported and set up as in the wrappers."""

import fcntl
import gc
import json
import os
import sys
import tempfile
from unittest import mock

from common import flagfiles
from engine.cli import cpu_kernels
from input_fns.convert import flags as convert_flags

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
cpu_kernels.prefer_onednn()

import numpy as np
import pytest
import tensorflow as tf
from absl import flags
from tensorflow.python.eager import context

import prepare_data
import run_cpu
import run_tpu
from engine.cli import runtime, startup
from engine.serving import new_process
from engine.train import optimizers
from input_fns import convert
from input_fns.convert import source, writer
from input_fns.convert.options import Options
from input_fns.convert.shared_array import SharedArray, SharedRows
from input_fns.image.sources import digits
from input_fns.text.parallel_kind import Text
from input_fns.text.sources import subwords
from models.vision import resnet
from tests import slow_part
from tpu.connect.request import TPUError

runtime.prepare()

# A small data set whose sizes all differ, so that swapped ones show.
NUM_TRAIN, NUM_TEST, HEIGHT, WIDTH, NUM_CLASSES = 97, 41, 7, 5, 3


def pytest_addoption(parser):
    """Adds --slow_part."""
    parser.addoption(
        "--slow_part", metavar="K/N", help="the slow tests of part K of N of the files"
    )


def pytest_make_parametrize_id(val, argname):
    """Names long bytes by their argument: gzip writes the time, and all workers collect alike."""
    return argname if isinstance(val, bytes) and len(val) > 16 else None


def pytest_collection_modifyitems(config, items):
    """Marks the tests of modules that import `numerics` as `numeric`; applies --slow_part."""
    for item in items:
        if hasattr(item.module, "numerics"):
            item.add_marker("numeric")
    if config.option.slow_part:
        items[:], others = slow_part.select(items, config.option.slow_part)
        config.hook.pytest_deselected(items=others)


def pytest_collection_finish():
    """Exempts the imported modules from garbage collection, which took 8 % of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


@pytest.fixture(autouse=True)
def graph():
    """A new default graph for each test."""
    with tf.Graph().as_default() as graph:
        yield graph


@pytest.fixture
def session(graph):
    """A session on the test's graph."""
    with tf.compat.v1.Session(graph=graph) as session:
        yield session


@pytest.fixture
def eager():
    """Eager execution, for comparisons with Keras."""
    with context.eager_mode():
        yield


@pytest.fixture(scope="module")
def shallow_backbone():
    """A ResNet-18 of one block per stage: building graphs takes most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(resnet.DEPTHS, 18, ((1, 1, 1, 1), False))
        yield


@pytest.fixture(scope="module")
def smooth_activations():
    """Replaces ReLU by softplus: at the kink of a ReLU rounding selects the gradient."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tf.nn, "relu", tf.nn.softplus)
        yield


@pytest.fixture(scope="session")
def minimize():
    """Builds the op of a training step: `minimize(scalar_loss, params, learning_rate, layers)`."""

    def build(loss, params, learning_rate, layers=()):
        optimizer = optimizers.create(params, learning_rate, layers)
        gradients = optimizers.compute_gradients(optimizer, loss, params)
        return optimizers.apply_gradients(optimizer, gradients, params)

    return build


@pytest.fixture(scope="session")
def once(tmp_path_factory):
    """Builds a folder once for all workers of pytest-xdist: `once(name, build)`. Read-only.

    `build(path)` creates the folder; the result is its path.
    """
    top = tmp_path_factory.getbasetemp()
    top = top.parent if "PYTEST_XDIST_WORKER" in os.environ else top

    def make(name, build):
        path, built = top / f"once_{name}", top / f"once_{name}.built"
        with open(top / f"once_{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not built.exists():
                build(path)
                built.touch()
        return path

    return make


def make_raw_dataset(name="stripes", seed=3):
    """Returns a data set that is easy to learn: images of class c are bright in column c."""
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
    """The images and labels of `data_dir`."""
    return make_raw_dataset()


@pytest.fixture(scope="session")
def data_dir(raw_dataset, tmp_path_factory):
    """The prepared data set "stripes", 3 shards per split. Read-only."""
    path = str(tmp_path_factory.mktemp("stripes"))
    writer.write(raw_dataset, path, num_shards=3)
    return path


@pytest.fixture
def own_data_dir(raw_dataset, tmp_path):
    """A copy of "stripes" that a test may change."""
    path = str(tmp_path / "data")
    writer.write(raw_dataset, path, num_shards=3)
    return path


@pytest.fixture(scope="session")
def digits_dir(tmp_path_factory):
    """The prepared data set "digits". Read-only."""
    path = str(tmp_path_factory.mktemp("digits"))
    writer.write(digits.read(Options("digits")), path)
    return path


WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight")


@pytest.fixture(scope="session")
def pair_files(tmp_path_factory):
    """Parallel text: the target is the source reversed, in capitals. Read-only."""
    folder = tmp_path_factory.mktemp("pairs")
    random = np.random.default_rng(3)
    for split, count in (("train", 400), ("val", 13), ("test", 11)):
        lines = [list(random.choice(WORDS, random.integers(1, 6))) for _ in range(count)]
        texts = {
            "en": [" ".join(words) for words in lines],
            "de": [" ".join(words[::-1]).upper() for words in lines],
        }
        for language, side in texts.items():
            (folder / f"{split}.{language}").write_text("".join(f"{text}\n" for text in side))
    return folder


@pytest.fixture(scope="session")
def pairs_dir(pair_files, tmp_path_factory):
    """The prepared data set "pairs" from `pair_files`, rows of 32 tokens. Read-only."""
    path = str(tmp_path_factory.mktemp("pairs_prepared"))
    options = Options(
        "parallel_text",
        name="pairs",
        source=str(pair_files),
        languages=("en", "de"),
        vocab_size=384,
        max_length=32,
    )
    writer.write(convert.read(options), path)
    return path


def _run(wrapper, flag_values, arguments):
    with tf.Graph().as_default():
        flag_values.unparse_flags()
        startup.mark_own(flag_values, [])  # not those of an earlier test
        flag_values(["program", *flagfiles.move_first(arguments)])
        wrapper.main()


EMULATED = ("--tpu=emulator", "--tpu_topology=1x2")


def _runner(wrapper, *given):
    """Returns a function that runs a wrapper's main: `run(model_dir, "--mode=eval", ...)`."""

    def run_with(model_dir, *arguments):
        _run(wrapper, flags.FLAGS, [*given, f"--model_dir={model_dir}", *arguments])

    return run_with


@pytest.fixture
def exit_status(monkeypatch):
    """Runs a wrapper like its command line, in this process: `exit_status(run_cpu, *flags)`.

    Returns the exit status; `capsys` captures the output.
    """

    def run_wrapper(wrapper, *arguments):
        argv = [f"{wrapper.__name__}.py", *arguments]
        monkeypatch.setattr(sys, "argv", argv)
        flags.FLAGS.unparse_flags()
        try:
            startup.start(argv, "", "engine.cli.flags", "engine.cli.cpu_flags", "tpu.connect.flags")
            startup.run(wrapper.main, TPUError)
        except SystemExit as end:
            return end.code
        return 0

    return run_wrapper


@pytest.fixture(scope="session")
def serve_in_this_process():
    """Returns a context in which the export check starts no process."""

    def serve(path, requests):
        with tempfile.TemporaryDirectory() as folder:
            new_process.save_arrays(os.path.join(folder, new_process._REQUESTS), requests)
            new_process.serve(path, folder)
            return new_process.load_arrays(os.path.join(folder, new_process._ANSWERS))

    return lambda: mock.patch.object(new_process, "run", serve)


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
        "--noexport_check",  # starts a process; tests/engine/serving/test_export.py tests it
        "--seed=1",
    ]


@pytest.fixture(scope="session")
def run_with():
    """Runs the main of run_cpu.py with the given flags only."""
    return lambda *arguments: _run(run_cpu, flags.FLAGS, arguments)


@pytest.fixture(scope="session")
def run_tpu_with():
    """Runs the main of run_tpu.py with the given flags only."""
    return lambda *arguments: _run(run_tpu, flags.FLAGS, arguments)


@pytest.fixture(scope="session")
def run_in(tiny_flags):
    """Runs the main of run_cpu.py with a tiny model: `run_in(model_dir, "--mode=eval", ...)`."""
    return _runner(run_cpu, *tiny_flags)


@pytest.fixture(scope="session")
def run_tpu_in(tiny_flags):
    """`run_in` with run_tpu.py, on 2 emulated cores, with batches of 14."""
    sizes = [f"--{mode}_batch_size=14" for mode in ("train", "eval", "predict")]
    return _runner(run_tpu, *tiny_flags, *EMULATED, *sizes)


@pytest.fixture(scope="session")
def like_real(tmp_path_factory):
    """Builds a small data set of zeros with the shapes of a real one: `like_real("mnist")`.

    Returns a `source.RawDataset`.
    """
    shapes = {
        "digits": (8, 8, 1),
        "mnist": (28, 28, 1),
        "fashion_mnist": (28, 28, 1),
        "cifar10": (32, 32, 3),
        "apple_leaf": (256, 256, 3),
        "imagenet": (256, 256, 3),
    }
    classes = {"apple_leaf": 4, "imagenet": 1000}  # others have 10
    tokens = {"multi30k": (64, 8192), "wmt14": (128, 32768)}

    def images(name):
        num_classes = classes.get(name, 10)
        split = source.RawArrays(np.zeros([20, *shapes[name]], np.uint8), np.arange(20) % 4)
        names = tuple(map(str, range(num_classes)))
        return source.RawDataset(name, names, {"train": split, "test": split})

    def text(name):
        max_length, vocab_size = tokens[name]
        folder = str(tmp_path_factory.mktemp(name))
        ids = SharedArray.write(folder, [np.array([3, 1] * 20, np.uint16)])
        sentences = SharedRows.of(ids, np.full(20, 2))
        split = subwords.RawTokens(sentences, sentences, max_length, "uint16")
        about = Text(("en", "de"), "vocabulary.model", vocab_size, max_length, {})
        files = {about.vocabulary: b""}
        return source.RawDataset(name, (), {"train": split, "test": split}, files, kind=about)

    return lambda name: images(name) if name in shapes else text(name)


@pytest.fixture(scope="session")
def text_flags(pairs_dir):
    """Flags of both wrappers for a tiny Transformer on "pairs"."""
    return [
        "--model=transformer_tiny",
        "--params=num_layers=1,hidden_size=32,ffn_size=32,num_heads=2,dropout=0,beam_size=2",
        "--params=learning_rate=0.01,schedule=inverse_sqrt,warmup_steps=20,beta2=0.98",
        "--dataset=pairs",
        f"--data_dir={pairs_dir}",
        "--train_batch_size=16",
        "--eval_batch_size=4",
        "--predict_batch_size=4",
        "--noexport_check",
        "--seed=1",
    ]


@pytest.fixture(scope="session")
def run_text_in(text_flags):
    """Runs the main of run_cpu.py with `text_flags`: `run_text_in(model_dir, "--mode=eval")`."""
    return _runner(run_cpu, *text_flags)


@pytest.fixture(scope="session")
def run_tpu_text_in(text_flags):
    """`run_text_in` with run_tpu.py, on 2 emulated cores."""
    return _runner(run_tpu, *text_flags, *EMULATED)


@pytest.fixture(scope="session")
def variables():
    """Returns `{name: array}` of the newest checkpoint: `variables(model_dir)`."""

    def read(model_dir):
        checkpoint = tf.train.latest_checkpoint(model_dir)
        names = [name for name, _ in tf.train.list_variables(checkpoint)]
        return {name: tf.train.load_variable(checkpoint, name) for name in names}

    return read


@pytest.fixture
def command(tiny_flags, tmp_path):
    """Returns the command line of a wrapper for a new process: `command("run_tpu.py", ...)`."""

    def build(startup, *arguments):
        return [sys.executable, startup, *tiny_flags, f"--model_dir={tmp_path}/model", *arguments]

    return build


@pytest.fixture
def run(run_in, tmp_path):
    """`run_in` in a new model_dir, which it returns: `run("--mode=train", ...)`."""

    def run_with(*arguments):
        run_in(tmp_path / "model", *arguments)
        return str(tmp_path / "model")

    return run_with


@pytest.fixture(scope="session")
def trained_dir(run_in, tmp_path_factory):
    """A model_dir trained to step 40, with a checkpoint every 10 steps."""
    path = str(tmp_path_factory.mktemp("trained"))
    run_in(path, "--mode=train", "--train_steps=40", "--save_checkpoints_steps=10")
    return path


@pytest.fixture(scope="session")
def uncertain_dir(run_in, tmp_path_factory):
    """A model_dir trained to step 2: probabilities are far from 0 and 1, so that faults show."""
    path = str(tmp_path_factory.mktemp("uncertain"))
    run_in(path, "--mode=train", "--train_steps=2", "--params=learning_rate=0.0001")
    return path


@pytest.fixture
def prepare():
    """Runs the main of prepare_data.py: `prepare("--dataset=digits", ...)`."""
    return lambda *arguments: _run(prepare_data, convert_flags.FLAGS, arguments)


@pytest.fixture
def result():
    """Returns the contents of `result_<step>.json`: `result(model_dir, step)`."""

    def read(model_dir, step):
        with open(os.path.join(model_dir, f"result_{step}.json")) as file:
            return json.load(file)

    return read
