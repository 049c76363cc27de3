"""Explains the errors that TPUEstimator raises about what model_fn returned.

TPUEstimator reads eval_metrics, host_call and predictions after model_fn has returned, so that its
errors have no line of the program and do not say which tensor is meant.
"""

from __future__ import annotations

import contextlib
import functools
import traceback
from unittest import mock

import tensorflow as tf
from tensorflow.python.util import tf_decorator
from tensorflow_estimator.python.estimator.tpu import tpu_estimator

from tpu.check import explanations
from tpu.findings import path_of

ModeKeys = tf.estimator.ModeKeys
# Arguments of TPUEstimatorSpec that TPUEstimator reads in each mode.
_READ = {
    ModeKeys.TRAIN: ("host_call",),
    ModeKeys.EVAL: ("eval_metrics", "host_call"),
    ModeKeys.PREDICT: ("predictions", "host_call"),
}
# Functions of TPUEstimator that call the function of eval_metrics or host_call.
_CALLERS = ("create_tpu_hostcall", "create_cpu_hostcall")


@contextlib.contextmanager
def explain():
    """A context manager that raises `explanations.SpecError` for what model_fn returned."""
    wrapper, returned = tpu_estimator._ModelFnWrapper, []
    original = wrapper._call_model_fn

    def call(self, *args, **kwargs):
        returned.append((self._model_fn, None))
        spec = original(self, *args, **kwargs)
        returned[-1] = self._model_fn, spec
        return spec

    with mock.patch.object(wrapper, "_call_model_fn", call):
        try:
            yield
        except BaseException as error:
            fault = _find_fault(error, *returned[-1]) if returned else None
            if not fault or not explanations.is_of_program(error):
                raise
            raise explanations.SpecError(*fault) from error


def _find_fault(error, model_fn, spec):
    """Returns (message, "file:line") of what is wrong with the spec; None if nothing is known."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    of_estimator = [f for f in frames if f.f_code.co_filename == tpu_estimator.__file__]
    for frame in of_estimator:  # model_fn has returned, but its spec could not be converted
        if frame.f_code.co_name == "_call_model_fn":
            spec = spec or frame.f_locals.get("estimator_spec")
    if not isinstance(spec, tf.compat.v1.estimator.tpu.TPUEstimatorSpec):
        return None
    if explanations.is_estimator_error(error):
        return None
    place = f"model_fn at {line_of(model_fn)}"
    named = [
        (f.f_code.co_name, f.f_locals.get("name"))
        for f in of_estimator
        if f.f_code.co_name in (*_CALLERS, "record")
    ]
    caller, part = named[-1] if named else ("", None)
    message = explanations.explain_error(error)
    for name in [part] if part in ("eval_metrics", "host_call") else _READ.get(spec.mode, ()):
        found = _find_value(getattr(spec, name), is_pair=name != "predictions")
        if found:
            return f"{name} has {found} ({place}). It needs tensors [batch, ...] ({message})", ""
    if caller in _CALLERS and part in ("eval_metrics", "host_call"):
        function = line_of(getattr(spec, part)[0])
        where = explanations.place_of(error) or function
        return f"the function of {part} at {function} raises {message} ({place})", where
    return None


def _find_value(values, is_pair):
    """Returns the first value that is not a tensor with a batch, and its place; "" if none is."""
    if is_pair:
        values = values[1] if isinstance(values, (list, tuple)) and len(values) == 2 else ()
    if isinstance(values, dict):
        places = [(f"at key {key!r}", value) for key, value in values.items()]
    elif isinstance(values, (list, tuple)):
        places = [(f"in place {i}", value) for i, value in enumerate(values)]
    else:
        places = []
    for place, value in places:
        what = _describe(value)
        if what:
            return f"{what} {place}"
    return ""


def _describe(value):
    if tf.is_tensor(value) and hasattr(value, "dtype"):
        is_dense = isinstance(value, (tf.Tensor, tf.Variable))
        if not is_dense:
            return f"a {type(value).__name__}"
        return "a scalar" if value.shape.rank == 0 else ""
    if value is None:
        return "None"
    if isinstance(value, (bool, int, float, str)):
        return f"the Python {type(value).__name__} {value!r}"
    return f"a value of type {type(value).__module__}.{type(value).__qualname__}".replace(
        "builtins.", ""
    )


def line_of(function) -> str:
    """Returns "file:line" of a function, method, partial or object with `__call__`; "?" if none."""
    while isinstance(function, functools.partial):
        function = function.func
    _, function = tf_decorator.unwrap(function)
    if not hasattr(function, "__code__"):  # a method, or an object with __call__
        function = getattr(function, "__func__", None) or type(function).__call__
    code = getattr(function, "__code__", None)
    return f"{path_of(code.co_filename)}:{code.co_firstlineno}" if code else "?"
