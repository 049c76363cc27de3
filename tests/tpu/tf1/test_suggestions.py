"""Errors of names of TensorFlow 1.x say that --tf1 provides them."""

import importlib

import pytest
import tensorflow as tf

from tpu.tf1 import suggestions


@pytest.fixture(autouse=True)
def with_suggestions():
    with suggestions.add_option():
        yield


@pytest.mark.parametrize(
    ("module", "name", "words"),
    [
        (tf, "contrib", r"'tensorflow' has no attribute 'contrib': .* Add --tf1$"),
        (tf, "placeholder", r"'tensorflow' has no attribute 'placeholder': .* Add --tf1$"),
        (tf.compat.v1, "contrib", r"compat\.v1' has no attribute 'contrib': .* Add --tf1$"),
        (tf, "nowhere", r"'tensorflow' has no attribute 'nowhere'$"),
        (tf.compat.v1, "nowhere", r"compat\.v1' has no attribute 'nowhere'$"),
    ],
)
def test_attribute(module, name, words):
    assert not hasattr(module, name)
    with pytest.raises(AttributeError, match=words):
        getattr(module, name)


@pytest.mark.parametrize(
    "name", ["contrib", "contrib.tpu", "examples.tutorials", "python.training.tracking.util"]
)
def test_module(name):
    message = (
        f"No module named 'tensorflow.{name.split('.')[0]}.*: TensorFlow 1.x has it. Add --tf1$"
    )
    with pytest.raises(ModuleNotFoundError, match=message):
        importlib.import_module(f"tensorflow.{name}")


def test_unknown_module():
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'tensorflow\.nowhere'$"):
        importlib.import_module("tensorflow.nowhere")
