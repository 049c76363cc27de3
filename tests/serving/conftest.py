"""Small exported models, with the predictions of the Estimator."""

import dataclasses
import functools
import pickle

import numpy as np
import pytest
import tensorflow as tf

from input_fns.convert import writer
from input_fns.convert.options import Options
from input_fns.convert.source import RawArrays
from input_fns.core import serving
from input_fns.core.target import Target
from input_fns.image.sources import digits
from tests import keras_applications, numerics
from tests.keras_applications import APPLICATIONS
from tests.marks import slow
from tools import runtimes
from tools.serving_equality import export_run

KERAS = ["--dataset=digits", "--train_steps=20", "--train_batch_size=32", "--seed=1"]
KERAS += ["--predict_batch_size=128", "--noexport_check"]  # its networks scale pixels
DIGITS = [*KERAS, "--params=pixel_scale=0.0625"]


# Path of an export -> terms and depth of its network for `numerics`.
_ARITHMETIC = {}


@pytest.fixture(scope="session")
def make(run_with, once):
    """Trains and exports a model: `make("cnn", terms, depth, *flags)` returns its `Exported`."""

    def train_and_export(name, terms, depth, *arguments):
        def build(folder):
            every = [*arguments, f"--model_dir={folder}"]
            run_with(*every, "--mode=train")
            with tf.Graph().as_default():
                exported = export_run(str(folder / "export"), *every)
            (folder / "exported.pickle").write_bytes(pickle.dumps(exported))

        exported = pickle.loads((once(name, build) / "exported.pickle").read_bytes())
        _ARITHMETIC[exported.path] = {"terms": terms, "depth": depth}
        return exported

    return train_and_export


@pytest.fixture(scope="session")
def arithmetic():
    """Returns the arguments of `numerics.assert_close` for the floats of an export."""

    def find(exported):
        network = _ARITHMETIC[exported.path]
        probabilities = exported.predictions.get("probabilities")
        if probabilities is None:
            return network
        # Absolute errors of the logits become relative errors of the probabilities; the softmax
        # over 10 classes adds those of its exponential, sum and quotient.
        logits = np.ptp(np.log(probabilities), axis=-1).max()
        softmax = numerics.tolerance(terms=10, depth=3) / numerics.tolerance(**network)
        return {**network, "magnitude": probabilities.max() * (logits + softmax)}

    return find


@pytest.fixture(scope="session")
def assert_predicted(arithmetic):
    """Compares an answer with the Estimator's predictions: `assert_predicted(exported, answer)`.

    Floats must be within `numerics.tolerance`, others equal. `rows` selects rows; default: all.
    """

    def check(exported, answer, rows=np.s_[:]):
        assert answer.keys() & exported.predictions.keys()
        for name in answer.keys() & exported.predictions.keys():
            expected = exported.predictions[name][rows]
            if expected.dtype.kind == "f":
                numerics.assert_close(answer[name], expected, **arithmetic(exported), name=name)
            else:
                np.testing.assert_array_equal(answer[name], expected, err_msg=name)

    return check


@pytest.fixture(scope="session")
def cnn(make, digits_dir):
    """A small CNN with batch norm on the digits, stored as pixels; top 2 classes."""
    layers = "--params=layers=[conv:8:3,batch_norm,relu,pool:2,flatten,dense:16,relu]"
    every = ["--model=convnet", layers, *DIGITS, f"--data_dir={digits_dir}", "--export_top_k=2"]
    # The pixels; a convolution and five operations of batch norm; two layers with bias, the first
    # of 4x4 pixels of 8 channels.
    terms, depth = 4 * 4 * 8, 1 + 6 + 2 * 2
    return make("cnn", terms, depth, *every)


@pytest.fixture(scope="session")
def mobilenet(make, digits_dir):
    """A narrow MobileNet on the digits, resized."""
    # A low momentum, so that the moving averages fit the images after 20 steps.
    params = "--params=version=1,width=0.25,batch_norm_momentum=0.5"
    every = ["--model=mobilenet", params, *DIGITS]
    every += [f"--data_dir={digits_dir}", "--image_size=33x32"]
    # The resized and scaled pixels; 27 convolutions, of at most 256 channels, with a product and a
    # sum of batch norm; the mean of the pixels; a layer with bias.
    terms, depth = 256, 4 + 27 * 3 + 2 + 2
    return make("mobilenet", terms, depth, *every)


@pytest.fixture(scope="session")
def keras_swish(make, digits_dir):
    """A network of Keras with a custom gradient and batch norm on the digits."""
    every = ["--model=keras:tests.test_keras_networks:own", *KERAS]
    # The scaled pixels; a convolution with bias and five operations of swish; six of batch norm;
    # the mean of 6x6 pixels; a layer with bias.
    terms, depth = 6 * 6, 2 + 2 + 5 + 6 + 2 + 2
    return make("keras", terms, depth, *every, f"--data_dir={digits_dir}")


@pytest.fixture(scope="session")
def application(make, once):
    """Exports an application of Keras with its last layer trained: `application("DenseNet121")`."""

    def export(name):
        found = APPLICATIONS[name]
        data = once("digits_in_colors", keras_applications.write_digits)
        weights = once(f"weights_{name}", functools.partial(keras_applications.write_weights, name))
        every = [f"--model=keras:{keras_applications.NAME}{name}", *KERAS, f"--data_dir={data}"]
        every += [f"--image_size={found.size}", "--params=trainable=logits/.*"]
        every += [f"--warm_start_from={weights}/start"]
        return make(name, *found.arithmetic.values(), *every)

    return export


@dataclasses.dataclass(frozen=True)
class Targeted(RawArrays):
    """Images with a target instead of a class."""

    KEYS = ("images", "targets")
    targets: np.ndarray


def make_of_target(make, once, target, values):
    """Exports a small network on the digits: `values(pixels, digits)`, float32 `[size, n]`."""

    def build(folder):
        raw = digits.read(Options("digits"))
        splits = {
            name: Targeted(split.images, None, values(split.images, split.labels))
            for name, split in raw.splits.items()
        }
        measured = target.measured(splits["train"].targets)
        writer.write(
            dataclasses.replace(
                raw, class_names=(), splits=splits, labels=("target",), target=measured
            ),
            str(folder),
        )

    data = once(f"data_{target.kind}", build)
    layers = "--params=layers=[conv:8:3,batch_norm,relu,flatten]"
    every = ["--model=convnet", layers, *DIGITS, f"--data_dir={data}"]
    # The pixels; a convolution and six of batch norm; a layer of 8x8 pixels of 8 channels; three of
    # the sigmoid, or two of mean and scale.
    return make(target.kind, 8 * 8 * 8, 1 + 1 + 6 + 2 + 3, *every)


GAN = ["--dataset=digits", "--train_steps=2", "--train_batch_size=32", "--seed=1"]
GAN += ["--predict_batch_size=128", "--noexport_check", "--params=width=4,latent_size=5"]


@pytest.fixture(scope="session")
def sngan(make, digits_dir):
    """The generator of a conditional GAN of the digits."""
    # The projection; two convolutions with conditional batch norm and the sum of a block; batch
    # norm, a convolution and the scaling of a hyperbolic tangent. Kernels of 3x3x8.
    terms, depth = 9 * 8, 2 + 2 * (6 + 4 + 2) + 1 + 6 + 2 + 4
    return make("sngan", terms, depth, "--model=sngan", *GAN, f"--data_dir={digits_dir}")


@pytest.fixture(scope="session")
def dcgan(make, digits_dir):
    """The generator of a DCGAN of the digits."""
    # The projection with batch norm; a transposed convolution of 4x4x4; a scaled tanh.
    terms, depth = 4 * 4 * 4, 2 + 6 + 2 + 4
    return make("dcgan", terms, depth, "--model=dcgan", *GAN, f"--data_dir={digits_dir}")


@pytest.fixture(scope="session")
def several_labels(make, once):
    """A network that predicts several labels: whether a digit is odd, and whether above 4."""
    target = Target("multilabel", ("odd", "large"))
    return make_of_target(
        make, once, target, lambda _, y: np.stack([y % 2, y > 4], axis=1).astype(np.float32)
    )


@pytest.fixture(scope="session")
def numbers(make, once):
    """A network that predicts numbers: the mean of the pixels, and the digit."""
    target = Target("regression", ("ink", "digit"))
    return make_of_target(
        make, once, target, lambda x, y: np.stack([x.mean((1, 2, 3)), y], axis=1).astype(np.float32)
    )


@pytest.fixture(scope="session")
def translator(make, text_flags):
    """A tiny Transformer."""
    # An encoder and a decoder layer as in tests/models/text/test_transformer.py, around them the
    # embedding and the logits; a log-softmax, and its sum over at most 32 tokens.
    terms, depth = 32, 32 + 52 + 10 + 6 + 32
    every = [*text_flags, "--train_steps=20"]
    return make("translator", terms, depth, *every)


@pytest.fixture(scope="session", params=["translator", slow("cnn"), slow("mobilenet")])
def exported(request):
    """Each export."""
    if request.param in APPLICATIONS:
        return request.getfixturevalue("application")(request.param)
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def c_api():
    """Loads an export with `runtimes.CApi`; skips the test without a C compiler."""

    def load(exported):
        try:
            return runtimes.CApi(exported.path)
        except FileNotFoundError as error:
            pytest.skip(str(error))

    return load


@pytest.fixture(scope="session")
def in_process():
    """Loads an export into a session of this process, once: `in_process(exported)(name, inputs)`.

    Faster than a process of the C API, for tests of the graph of a signature. Errors are
    `tf.errors.InvalidArgumentError`.
    """

    @functools.cache
    def load(path):
        session = tf.compat.v1.Session(graph=tf.Graph())
        with session.graph.as_default():
            signatures = tf.compat.v1.saved_model.load(session, ["serve"], path).signature_def

        def run(name, inputs):
            signature = signatures[name]
            fed = {signature.inputs[key].name: array for key, array in inputs.items()}
            return session.run({key: t.name for key, t in signature.outputs.items()}, fed)

        return run

    return lambda exported: load(exported.path)


@pytest.fixture(scope="session")
def raw():
    """Returns the request of the raw signature of an export."""
    return lambda exported: exported.requests[serving.RAW]
