"""Imports google-research/bert, which is written for TensorFlow 1, under TensorFlow 2.15.

Needs a checkout of it: BERT_CHECKOUT=FOLDER. Tests without it are skipped.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import types
from unittest import mock

import pytest
import tensorflow as tf

needs_checkout = pytest.mark.skipif(
    "BERT_CHECKOUT" not in os.environ,
    reason="BERT_CHECKOUT is not set to a checkout of google-research/bert",
)


def load(name: str) -> types.ModuleType:
    """Returns a module of the checkout, such as "modeling", on `tf.compat.v1` with a small contrib.

    `tf.contrib.layers.layer_norm` of TensorFlow 1.15 has the variables beta and gamma in the scope
    LayerNorm, and an epsilon of 1e-12 for float32.
    """
    path = os.path.join(os.environ["BERT_CHECKOUT"], f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"google_bert_{name}", path)
    module = importlib.util.module_from_spec(spec)
    shim = types.ModuleType("tensorflow")
    shim.__dict__.update({key: getattr(tf.compat.v1, key) for key in dir(tf.compat.v1)})
    layers = types.SimpleNamespace(layer_norm=layer_norm)
    shim.contrib = types.SimpleNamespace(layers=layers, tpu=tf.compat.v1.tpu)
    shim.flags = mock.MagicMock()  # the flags of its programs would clash with ours
    programs = ("modeling", "optimization", "tokenization")
    imported = {"run_": programs, "create_": ("tokenization",)}
    own = {
        other: load(other)
        for start, others in imported.items()
        for other in others
        if name.startswith(start)
    }
    with mock.patch.dict(sys.modules, tensorflow=shim, **own):
        spec.loader.exec_module(module)
    return module


def layer_norm(inputs, begin_norm_axis, begin_params_axis, scope=None):
    assert begin_norm_axis == begin_params_axis == -1
    with tf.compat.v1.variable_scope(scope, "LayerNorm"):
        size = inputs.shape[-1:]
        beta = tf.compat.v1.get_variable("beta", size, initializer=tf.zeros_initializer())
        gamma = tf.compat.v1.get_variable("gamma", size, initializer=tf.ones_initializer())
        mean, variance = tf.nn.moments(inputs, [-1], keepdims=True)
        return tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, 1e-12)
