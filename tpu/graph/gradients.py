"""Marks the operations that compute gradients while a graph is built.

The names of gradients differ between `tf.gradients`, `tf.GradientTape`, optimizers and functions.
The mark, an attribute, is the same for all.
"""

from __future__ import annotations

import contextlib
import functools
from unittest import mock

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.eager import imperative_grad
from tensorflow.python.ops import gradients_util

_MARK = "_is_gradient"
# The functions by which TensorFlow differentiates: of graphs and their functions, and of tapes.
_DIFFERENTIATORS = ((gradients_util, "_GradientsHelper"), (imperative_grad, "imperative_grad"))


@contextlib.contextmanager
def marked():
    """A context manager in which all operations that compute gradients are marked."""
    with contextlib.ExitStack() as stack:
        for module, name in _DIFFERENTIATORS:
            marking = _marking(getattr(module, name))
            stack.enter_context(mock.patch.object(module, name, marking))
        yield


def is_gradient(op: tf.Operation) -> bool:
    """Returns True if an operation was built to compute a gradient."""
    try:
        return op.get_attr(_MARK)
    except ValueError:
        return False


def _marking(differentiate):
    """Returns a function that marks the operations that `differentiate` adds to the graph."""

    @functools.wraps(differentiate)
    def differentiate_and_mark(*args, **kwargs):
        mark = attr_value_pb2.AttrValue(b=True)
        with tf.compat.v1.get_default_graph()._attr_scope({_MARK: mark}):
            return differentiate(*args, **kwargs)

    return differentiate_and_mark
