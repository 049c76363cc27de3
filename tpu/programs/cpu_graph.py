"""Changes to the graph of an Estimator on the CPU that make it comparable with emulated cores."""

from __future__ import annotations

import contextlib
from typing import NamedTuple
from unittest import mock

import tensorflow as tf
from tensorflow.python.framework import config, ops
from tensorflow.python.ops import clip_ops, nn_ops, variable_scope
from tensorflow.python.tpu import tpu_optimizer
from tensorflow_estimator.python.estimator import estimator as estimator_lib

from tpu.emulator import variable_order
from tpu.findings import user_line
from tpu.graph.op_types import RANDOM, TPU_COLLECTIVES
from tpu.graph.variables import variable_name
from tpu.graph.walks import ancestors

_SPARSE = "ResourceSparseApply"
# A gradient of 0 changes nothing.
_SAME_WITH_ZEROS = ("ResourceSparseApplyAdagrad", "ResourceSparseApplyAdagradV2")


class Training(NamedTuple):
    """Facts about training graphs.

    Attributes:
      random_operations: "OPERATION at file:line" of the random operations of a step.
      trainable: names of the trainable variables.
      row_updates: `{name of a variable: "OPERATION at file:line"}` of updates by a sparse gradient,
        which leave the other rows as they are; a dense gradient would change them.
    """

    random_operations: list[str]
    trainable: set[str]
    row_updates: dict[str, str]


@contextlib.contextmanager
def single_replica():
    """A context manager in which a model_fn for a TPU builds the program of one replica.

    Its collective operations have no kernel on a CPU, and no effect on a single replica. Yields a
    dict of "file:line" of those that the program itself calls, instead of CrossShardOptimizer.
    """
    original, places = ops.Graph._create_op_internal, {}

    def create(self, op_type, inputs, *args, **kwargs):
        if op_type in TPU_COLLECTIVES:
            dtype = inputs[0].dtype.base_dtype
            attributes = {"T": tf.compat.v1.AttrValue(type=dtype.as_datatype_enum)}
            name = kwargs.get("name")
            op = original(self, "Identity", inputs[:1], [dtype], name=name, attrs=attributes)
            if all(frame.filename != tpu_optimizer.__file__ for frame in op.traceback):
                places[user_line(op)] = True
            return op
        if op_type == "XlaReplicaId":
            return tf.constant(0, tf.int32).op
        return original(self, op_type, inputs, *args, **kwargs)

    with mock.patch.object(ops.Graph, "_create_op_internal", create):
        yield places


@contextlib.contextmanager
def variables_of_a_tpu():
    """A context manager in which a variable that is read after its update has its new value.

    References lack an order. Outside of a training loop, `dynamic_rnn`, `map_fn` and the like cache
    the variables that they create, so that a moving average of them is a step late on a CPU.
    """
    was_enabled = tf.compat.v1.resource_variables_enabled()
    tf.compat.v1.enable_resource_variables()
    scope = variable_scope.VariableScope
    try:
        with mock.patch.object(scope, "set_caching_device"):
            yield
    finally:
        if not was_enabled:
            tf.compat.v1.disable_resource_variables()


@contextlib.contextmanager
def deterministic_operations():
    """A context manager in which operations, sloppy input pipelines too, are deterministic."""
    config.enable_op_determinism()
    try:
        yield
    finally:
        config.disable_op_determinism()


@contextlib.contextmanager
def without_dropout():
    """A context manager in which dropout returns its input; yields a list of its calls."""
    dropped = []

    def identity(x, *args, **kwargs):
        del args, kwargs
        dropped.append(x)
        return tf.identity(x)

    with mock.patch.object(nn_ops, "_dropout", identity):
        yield dropped


@contextlib.contextmanager
def without_clipping():
    """A context manager in which gradients are not clipped by their norm."""

    def keep_all(t_list, clip_norm, use_norm=None, name=None):
        del clip_norm, name
        return list(t_list), tf.linalg.global_norm(t_list) if use_norm is None else use_norm

    def keep(t, clip_norm, axes=None, name=None):
        del clip_norm, axes, name
        return tf.identity(t)

    with contextlib.ExitStack() as stack:
        for owner in (clip_ops, tf, tf.compat.v1, tf.compat.v2):
            stack.enter_context(mock.patch.object(owner, "clip_by_global_norm", keep_all))
            stack.enter_context(mock.patch.object(owner, "clip_by_norm", keep))
        yield


@contextlib.contextmanager
def ordered_updates():
    """A context manager in which Estimators read and write each variable in a fixed order.

    Emulated cores do so, as a TPU does; TensorFlow on a CPU leaves the order open. Yields a
    `Training` of the model_fns that were called.
    """
    original, training = estimator_lib.Estimator._call_model_fn, Training([], set(), {})

    def call_model_fn(self, *args, **kwargs):
        spec = original(self, *args, **kwargs)
        operations = _operations_of_step(spec)  # others, such as initializers, must not run in it
        variable_order.add_edges(operations)
        training.random_operations.extend(
            f"{op.type} at {user_line(op)}" for op in operations if op.type.startswith(RANDOM)
        )
        training.row_updates.update(
            (variable_name(op), f"{op.type} at {user_line(op)}")
            for op in operations
            if op.type.startswith(_SPARSE) and op.type not in _SAME_WITH_ZEROS
        )
        training.trainable.update(v.op.name for v in tf.compat.v1.trainable_variables())
        return spec

    with mock.patch.object(estimator_lib.Estimator, "_call_model_fn", call_model_fn):
        yield training


def _operations_of_step(spec):
    """Returns the operations that a training step of an EstimatorSpec runs."""
    ends = [getattr(end, "op", end) for end in (spec.train_op, spec.loss)]
    return list(ancestors(ends).values())
