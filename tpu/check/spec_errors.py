"""Explains the errors that TPUEstimator raises about what model_fn and input_fn returned.

TPUEstimator reads eval_metrics, host_call, predictions and the batches of input_fn after the
function has returned, so that its errors have no line of the program and do not say which tensor
is meant.
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
from tpu.findings import path_of, user_line

ModeKeys = tf.estimator.ModeKeys
# Arguments of TPUEstimatorSpec that TPUEstimator reads in each mode.
_READ = {
    ModeKeys.TRAIN: ("host_call",),
    ModeKeys.EVAL: ("eval_metrics", "host_call"),
    ModeKeys.PREDICT: ("predictions", "host_call"),
}
# Functions of TPUEstimator that call the function of eval_metrics or host_call.
_CALLERS = ("create_tpu_hostcall", "create_cpu_hostcall")
# Functions of TPUEstimator that read what input_fn returned.
_INPUT_READERS = ("_invoke_input_fn_and_record_structure", "dequeue_fn")
_UNSUPPORTED_INPUT = "is not a supported TPU infeed type"
# Types of tensors that the infeed does not take -> what to do.
_NOT_DENSE = {
    "SparseTensor": "Use tf.sparse.to_dense, with a static shape",
    "RaggedTensor": "Use to_tensor(shape=...)",
}


class _MetricError(TypeError):
    """metric_fn returned an invalid value; the arguments are the message and "file:line"."""


@contextlib.contextmanager
def explain():
    """A context manager that raises `explanations.SpecError` for what model_fn returned."""
    wrapper, returned = tpu_estimator._ModelFnWrapper, []
    original = wrapper._call_model_fn
    host_call = tpu_estimator._OutfeedHostCall
    create_host_call = host_call.create_tpu_hostcall

    def call(self, *args, **kwargs):
        returned.append((self._model_fn, None))
        spec = original(self, *args, **kwargs)
        returned[-1] = self._model_fn, spec
        return spec

    def create(self):
        results = create_host_call(self)
        # TPUEstimator takes elements 0 and 1 of each metric, also of a tensor, without an error.
        _check_metrics(results.get("eval_metrics"), self._host_fns.get("eval_metrics"))
        return results

    with (
        mock.patch.object(wrapper, "_call_model_fn", call),
        mock.patch.object(host_call, "create_tpu_hostcall", create),
    ):
        try:
            yield
        except BaseException as error:
            fault = _find_fault(error, *returned[-1]) if returned else None
            if not fault or not explanations.is_of_program(error):
                raise
            raise explanations.SpecError(*fault) from error


def _check_metrics(metrics, metric_fn):
    """Raises `_MetricError` for the first metric that is not a (value, update_op) of the host."""
    for name, metric in metrics.items() if isinstance(metrics, dict) else ():
        if isinstance(metric, (tuple, list)) and len(metric) == 2:
            _check_is_on_host(name, metric, metric_fn)
            continue
        is_tensor = isinstance(metric, tf.Tensor)
        what = f"a tensor of shape {metric.shape}" if is_tensor else _describe(metric)
        function = line_of(metric_fn)
        where = user_line(metric.op) if is_tensor else function
        raise _MetricError(
            f"metric_fn at {function} returns {what} as '{name}'. Each metric must be a pair "
            "(value, update_op), such as tf.compat.v1.metrics.mean(values)",
            where,
        )


def _check_is_on_host(name, metric, metric_fn):
    """Raises `_MetricError` for a metric that model_fn has made, on the TPU."""
    for part in metric:
        op = getattr(part, "op", part)
        if isinstance(op, tf.Operation) and not op.graph.is_fetchable(op):
            raise _MetricError(
                f"metric_fn at {line_of(metric_fn)} returns '{name}', which model_fn computes on "
                "the TPU. Call the function of tf.compat.v1.metrics in metric_fn instead",
                user_line(op),
            )


@contextlib.contextmanager
def locate(input_fn, model_fn):
    """A context manager that raises `SpecError` for errors of TPUEstimator without a line.

    The line is that of model_fn or, for errors about its batches, of input_fn.
    """
    recorder, batches = tpu_estimator._InputPipeline.InputsStructureRecorder, []
    original = recorder.flatten_features_and_labels

    def flatten(self, features, labels, signals=None):
        batches[:] = [{"features": features, "labels": labels}]
        return original(self, features, labels, signals)

    with mock.patch.object(recorder, "flatten_features_and_labels", flatten):
        try:
            yield
        except BaseException as error:
            if explanations.place_of(error) or not explanations.is_of_program(error):
                raise
            names = {frame.f_code.co_name for frame in _frames_of_estimator(error)}
            if "_call_model_fn" not in names or isinstance(error, explanations.SpecError):
                raise
            message, function = explanations.explain_error(error), model_fn
            if not names.isdisjoint(_INPUT_READERS):
                function = input_fn
                if batches:
                    message = _describe_unsupported(batches[0], message)
            where = line_of(function)
            raise explanations.SpecError(message, "" if where == "?" else where) from error


def _describe_unsupported(batch, message):
    """Returns an error about the infeed with the names of the tensors that it does not take."""
    kinds = {}
    for name, values in batch.items():
        for place, tensor in _tensors(values, name):
            kind = tensor.dtype.name if isinstance(tensor, tf.Tensor) else type(tensor).__name__
            kinds.setdefault(kind, []).append(place)
    for kind, advice in _NOT_DENSE.items():
        if kind in kinds and kind in message:
            places = ", ".join(kinds[kind])
            return f"input_fn returns {places} as {kind}: a TPU has dense tensors only. {advice}"
    before, is_about_dtypes, _ = message.partition(_UNSUPPORTED_INPUT)
    wrong = [kind for kind in kinds if is_about_dtypes and f"'{kind}'" in before]
    if not wrong:
        return message
    places = ", ".join(kinds[wrong[0]])
    return f"input_fn returns {places} as {wrong[0]}: convert or remove it ({message})"


def _tensors(values, name):
    """Yields (place, tensor) of a nested structure, such as ("features['x']", x)."""
    if isinstance(values, dict):
        for key, value in values.items():
            yield from _tensors(value, f"{name}[{key!r}]")
    elif isinstance(values, (list, tuple)):
        for i, value in enumerate(values):
            yield from _tensors(value, f"{name}[{i}]")
    elif hasattr(values, "dtype"):
        yield name, values


def _frames_of_estimator(error):
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return [frame for frame in frames if frame.f_code.co_filename == tpu_estimator.__file__]


def _find_fault(error, model_fn, spec):
    """Returns (message, "file:line") of what is wrong with the spec; None if nothing is known."""
    if isinstance(error, _MetricError):
        return error.args
    of_estimator = _frames_of_estimator(error)
    for frame in of_estimator:  # model_fn has returned, but its spec could not be converted
        if frame.f_code.co_name == "_call_model_fn":
            spec = spec or frame.f_locals.get("estimator_spec")
    if not isinstance(spec, tf.compat.v1.estimator.tpu.TPUEstimatorSpec):
        return None
    if explanations.is_estimator_error(error):
        update = getattr(spec.train_op, "op", spec.train_op)
        where = user_line(update) if isinstance(update, tf.Operation) else ""
        is_about_updates = explanations.NO_SUM in explanations.text_of(error)
        return (explanations.explain_error(error), where) if is_about_updates and where else None
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
        captured = _captured_tensors(getattr(spec, part)[0])
        if captured:
            hint = f"uses {captured} of model_fn. Pass it with the other tensors of {part}"
            return f"the function of {part} at {function} {hint} ({message})", where
        return f"the function of {part} at {function} raises {message} ({place})", where
    for frame in of_estimator:
        if frame.f_code.co_name == "_verify_tpu_spec_predictions":
            key, predictions = frame.f_locals.get("key"), spec.predictions
            tensor = predictions.get(key) if isinstance(predictions, dict) else None
            where = user_line(tensor.op) if isinstance(tensor, tf.Tensor) else ""
            return f"{message} ({place})", where
    return None


def _captured_tensors(function):
    """Returns the names of the tensors that a function reads from around it; "" if none."""
    while isinstance(function, functools.partial):
        function = function.func
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None) or ()
    names = []
    for name, cell in zip(code.co_freevars if code else (), cells):
        with contextlib.suppress(ValueError):  # an empty cell
            values = cell.cell_contents
            if any(isinstance(value, tf.Tensor) for _, value in _tensors(values, name)):
                names.append(f"'{name}'")
    return ", ".join(names)


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


def model_fn_of(estimator):
    """Returns the model_fn of the program, which TPUEstimator wraps."""
    function = estimator._model_fn
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    if "model_fn" in names:
        return function.__closure__[names.index("model_fn")].cell_contents
    return function


def line_of(function) -> str:
    """Returns "file:line" of a function, method, partial or object with `__call__`; "?" if none."""
    while isinstance(function, functools.partial):
        function = function.func
    _, function = tf_decorator.unwrap(function)
    if not hasattr(function, "__code__"):  # a method, or an object with __call__
        function = getattr(function, "__func__", None) or type(function).__call__
    code = getattr(function, "__code__", None)
    return f"{path_of(code.co_filename)}:{code.co_firstlineno}" if code else "?"
