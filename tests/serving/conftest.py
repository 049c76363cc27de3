"""Small models, trained for some steps and exported, with what the Estimator predicts."""

import pytest
import tensorflow as tf

from input_fns import serving
from tools import runtimes
from tools.serving_equality import export_of

DIGITS = ["--dataset=digits", "--train_steps=20", "--train_batch_size=32", "--seed=1"]
DIGITS += ["--predict_batch_size=128", "--params=pixel_scale=0.0625", "--noexport_check"]


def make(run_with, folder, *arguments):
    """Trains a model and exports it."""
    every = [*arguments, f"--model_dir={folder}"]
    run_with(*every, "--mode=train")
    with tf.Graph().as_default():
        return export_of(str(folder / "export"), *every)


@pytest.fixture(scope="session")
def cnn(run_with, digits_dir, tmp_path_factory):
    """A small CNN with batch norm on real digits, which are stored as pixels; the likeliest two."""
    layers = "--params=layers=conv:8:3 batch_norm relu pool:2 flatten dense:16 relu"
    every = ["--model=convnet", layers, *DIGITS, f"--data_dir={digits_dir}", "--export_top_k=2"]
    return make(run_with, tmp_path_factory.mktemp("cnn"), *every)


@pytest.fixture(scope="session")
def mobilenet(run_with, digits_dir, tmp_path_factory):
    """A narrow MobileNet on real digits, resized."""
    every = ["--model=mobilenet", "--params=version=1,width=0.25", *DIGITS]
    every += [f"--data_dir={digits_dir}", "--image_size=33x32"]
    return make(run_with, tmp_path_factory.mktemp("mobilenet"), *every)


@pytest.fixture(scope="session")
def translator(run_with, text_flags, tmp_path_factory):
    """A tiny Transformer."""
    return make(run_with, tmp_path_factory.mktemp("translator"), *text_flags, "--train_steps=20")


@pytest.fixture(scope="session", params=["cnn", "mobilenet", "translator"])
def exported(request):
    """Each of them."""
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def c_api():
    """Makes a `runtimes.CApi` of an export; skips where there is no C compiler."""

    def load(exported):
        try:
            return runtimes.CApi(exported.path)
        except FileNotFoundError as error:
            pytest.skip(str(error))

    return load


@pytest.fixture(scope="session")
def raw():
    """The raw request of an export."""
    return lambda exported: exported.requests[serving.RAW]
