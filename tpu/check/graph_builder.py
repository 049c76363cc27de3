"""Lets TPUEstimator build its graph for a slice, without a session and without a TPU."""

from __future__ import annotations

import contextlib
from typing import NamedTuple
from unittest import mock

import tensorflow as tf
from tensorflow.python.ops import control_flow_ops, control_flow_util
from tensorflow.python.tpu import tpu_system_metadata, training_loop
from tensorflow_estimator.python.estimator.tpu import error_handling, tpu_context

from tpu.connect.topology import Topology
from tpu.emulator import discovery
from tpu.emulator.replicated_graph import ReplicatedGraph

ModeKeys = tf.estimator.ModeKeys


class BuiltGraph(NamedTuple):
    """The graph of a mode, as TPUEstimator runs it.

    Attributes:
      graph: the program of one core, the loop around it, infeed, outfeed, host_call.
      spec: the `tf.estimator.EstimatorSpec` of TPUEstimator's session.
    """

    graph: tf.Graph
    spec: tf.estimator.EstimatorSpec


@contextlib.contextmanager
def on_slice(estimator, tpu_topology: Topology):
    """A context manager in which a TPUEstimator finds that slice."""
    caches = [value for name, value in vars(estimator._ctx).items() if name.startswith("_lazy_")]
    with contextlib.ExitStack() as stack:
        for cache in caches:  # metadata of a slice that it found before
            stack.enter_context(mock.patch.dict(cache, clear=True))
        query = mock.patch.object(
            tpu_system_metadata,
            "_query_tpu_system_metadata",
            return_value=discovery.metadata(tpu_topology),
        )
        stack.enter_context(query)
        # TPUEmbedding finds the hosts of this slice under any name of a job.
        job = mock.patch.object(tpu_system_metadata, "master_job", return_value=None)
        stack.enter_context(job)
        yield


def build(estimator, input_fn, mode: str, tpu_topology: Topology, steps: int = 100) -> BuiltGraph:
    """Builds the graph of a mode as `estimator` does for a session on the slice.

    This includes TPUEstimator's own checks of input_fn, model_fn and batch sizes.

    Args:
      estimator: a `TPUEstimator(use_tpu=True)`, made with any resolver or master.
      input_fn: the input_fn of the mode.
      mode: "train", "eval" or "infer" (`tf.estimator.ModeKeys`).
      tpu_topology: the slice.
      steps: number of training or evaluation steps.

    Raises:
      Any exception of TPUEstimator, input_fn or model_fn.
    """
    with on_slice(estimator, tpu_topology), tf.Graph().as_default() as graph:
        tf.compat.v1.set_random_seed(estimator.config.tf_random_seed)
        estimator._rendezvous[mode] = error_handling.ErrorRendezvous(num_sources=3)
        estimator._create_and_assert_global_step(graph)
        if mode == ModeKeys.TRAIN:
            estimator._convert_train_steps_to_hooks(steps, None)
        if mode == ModeKeys.EVAL:
            estimator._convert_eval_steps_to_hooks(steps)
        features, labels, _ = estimator._get_features_and_labels_from_input_fn(input_fn, mode)
        spec = estimator._call_model_fn(features, labels, mode, estimator.config)
    return BuiltGraph(graph, spec)


def call_input_fn(estimator, input_fn, mode: str):
    """Calls input_fn as TPUEstimator does for the first host; call it inside `on_slice`.

    Returns:
      What input_fn returns, in the default graph: a Dataset or tensors.
    """
    with estimator._ctx.with_mode(mode) as context:
        host = tpu_context.TPUContext(context, "/cpu:0", invocation_index=0, host_id=0)
        return estimator._call_input_fn(input_fn, mode)(host)


def build_step(
    estimator, input_fn, mode: str, tpu_topology: Topology, control_flow_v2: bool = False
) -> tuple[tf.Graph, ReplicatedGraph]:
    """Builds a single step of one core, without the loop around it.

    Args:
      estimator: see `build`.
      input_fn: see `build`.
      mode: see `build`.
      tpu_topology: see `build`.
      control_flow_v2: True to build loops and conditionals as functions, which XLA can compile on a
        CPU; False to build them as nodes, as for a TPU.

    Returns:
      (graph, program of one core). Keep the graph while the program is used.
    """
    replacements = [
        mock.patch.object(training_loop, "while_loop", _once),
        mock.patch.object(training_loop, "repeat", _repeat_once),
        mock.patch.object(control_flow_util, "ENABLE_CONTROL_FLOW_V2", control_flow_v2),
    ]
    with replacements[0], replacements[1], replacements[2]:
        graph = build(estimator, input_fn, mode, tpu_topology).graph
    return graph, ReplicatedGraph(graph.get_operations())


class _LoopContext(control_flow_ops.ControlFlowContext):
    """Looks like the context of the training loop, but adds no operations.

    TensorFlow builds some operations differently inside a loop: `dynamic_rnn`, for example, caches
    variables only outside of one.
    """

    back_prop = True
    parallel_iterations = 1
    swap_memory = False
    maximum_iterations = None
    _is_open = True

    def __init__(self):
        super().__init__()
        self._name = "training_loop"

    def close(self):
        """Ends the loop: its operations are now outside of any loop."""
        self._is_open = False

    def IsWhileContext(self):  # noqa: N802
        return self._is_open

    def GetWhileContext(self):  # noqa: N802
        return self if self._is_open else super().GetWhileContext()

    def GetControlPivot(self):  # noqa: N802
        return self._outer_context.GetControlPivot() if self._outer_context else None

    def AddOp(self, op):  # noqa: N802
        if self._outer_context:
            self._outer_context.AddOp(op)

    def AddInnerOp(self, op):  # noqa: N802
        if self._outer_context:
            self._outer_context.AddInnerOp(op)

    def AddValue(self, value):  # noqa: N802
        return self._outer_context.AddValue(value) if self._outer_context else value

    def to_control_flow_context_def(self, context_def, export_scope=None):
        raise NotImplementedError


def _once(condition, body, inputs=None, infeed_queue=None, name=None):
    """Replaces `training_loop.while_loop`: runs the body once."""
    del condition, infeed_queue, name
    loop = _LoopContext()
    inputs = [tf.convert_to_tensor(value) for value in inputs]
    loop.Enter()
    try:
        results = body(*inputs)
        results = list(results) if isinstance(results, (list, tuple)) else [results]
        return [tf.convert_to_tensor(value) for value in results]
    finally:
        loop.Exit()
        loop.close()


def _repeat_once(n, body, inputs=None, infeed_queue=None, name=None):
    """Replaces `training_loop.repeat`: runs the body once."""
    return _once(n, body, inputs, infeed_queue, name)
