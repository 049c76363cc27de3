"""The import of TensorFlow, with a module that takes its place."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest
from tensorflow.python.tpu.client import client

ROOT = pathlib.Path(__file__).parents[3]
TENSORFLOW = """
import gc, types
collects = gc.isenabled()
try:
    import googleapiclient
    has_client = True
except ImportError:
    has_client = False
estimator = types.SimpleNamespace(Estimator=None)
keras = types.SimpleNamespace(layers=None)
"""
PROGRAM = """
import gc, json
from engine.cli import tensorflow_import
tensorflow_import.import_tensorflow()
import googleapiclient, tensorflow
found = tensorflow.collects, tensorflow.has_client, gc.isenabled(), gc.get_freeze_count()
print(json.dumps(found))
"""


@pytest.fixture
def imported(tmp_path):
    """Returns a function from modules that are installed to what PROGRAM prints."""

    def run(*modules):
        (tmp_path / "tensorflow.py").write_text(TENSORFLOW)
        for name in modules:
            (tmp_path / f"{name}.py").touch()
        paths = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
        command = [sys.executable, "-S", "-c", PROGRAM]  # without site-packages
        done = subprocess.run(command, env=paths, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    return run


def test_garbage_is_collected_again_after_the_import(imported):
    collects_during_import, _, collects_afterwards, frozen = imported("googleapiclient")
    assert not collects_during_import
    assert collects_afterwards
    assert frozen


def test_an_api_client_that_tensorflow_cannot_use_is_hidden_from_it_only(imported):
    _, has_client, _, _ = imported("googleapiclient")
    assert not has_client


def test_an_api_client_that_tensorflow_can_use_is_not_hidden(imported):
    _, has_client, _, _ = imported("googleapiclient", "oauth2client")
    assert has_client


def test_tensorflow_does_not_use_the_api_client_without_oauth2client():
    found = [importlib.util.find_spec(name) for name in ("googleapiclient", "oauth2client")]
    assert client._GOOGLE_API_CLIENT_INSTALLED is (None not in found)
