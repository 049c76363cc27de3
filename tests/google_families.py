"""Imports modeling.py of google-research/albert and electra under TensorFlow 2.15.

Needs checkouts of them: ALBERT_CHECKOUT=FOLDER, ELECTRA_CHECKOUT=FOLDER.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import types
from unittest import mock

import pytest
import tensorflow as tf

from tests import google_bert

_FILES = {"albert": "modeling.py", "electra": "model/modeling.py"}


def load(family: str) -> types.ModuleType:
    """Returns modeling.py of a family, on `tf.compat.v1` with `tf.contrib.layers.layer_norm`.

    Skips the test without a checkout.
    """
    variable = f"{family.upper()}_CHECKOUT"
    if variable not in os.environ:
        pytest.skip(f"{variable} is not set to a checkout of google-research/{family}")
    path = os.path.join(os.environ[variable], _FILES[family])
    spec = importlib.util.spec_from_file_location(f"google_{family}_modeling", path)
    module = importlib.util.module_from_spec(spec)
    contrib = types.ModuleType("tensorflow.contrib")
    contrib.layers = types.SimpleNamespace(layer_norm=google_bert.layer_norm)
    others = {"tensorflow.contrib": contrib, "tensorflow.compat.v1": tf.compat.v1}
    with mock.patch.dict(sys.modules, others):
        spec.loader.exec_module(module)
    return module
