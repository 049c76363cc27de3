"""Lets TPUEstimator build its graph for a slice, without a session and without a TPU."""

from __future__ import annotations

import contextlib
import traceback
import types
from typing import NamedTuple
from unittest import mock

import tensorflow as tf
from tensorflow.python.ops import control_flow_ops, control_flow_util
from tensorflow.python.tpu import tpu_system_metadata, training_loop
from tensorflow_estimator.python.estimator.tpu import error_handling, tpu_context, tpu_estimator

from tpu.check import explanations, spec_errors
from tpu.connect.topology import Topology
from tpu.emulator import discovery
from tpu.graph import gradients
from tpu.graph.replicated_graph import ReplicatedGraph

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
    with contextlib.ExitStack() as stack:
        stack.enter_context(on_slice(estimator, tpu_topology))
        graph = stack.enter_context(tf.Graph().as_default())
        model_fn = spec_errors.model_fn_of(estimator)
        stack.enter_context(spec_errors.locate(input_fn, model_fn))
        stack.enter_context(spec_errors.explain())
        stack.enter_context(gradients.marked())
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


class BuiltStep(NamedTuple):
    """A single step of a mode, without the loop around it.

    Attributes:
      graph: see `BuiltGraph`. Keep it while the program is used.
      program: the program of one core.
      spec: see `BuiltGraph`.
    """

    graph: tf.Graph
    program: ReplicatedGraph
    spec: tf.estimator.EstimatorSpec


def build_once(
    estimator, input_fn, mode: str, tpu_topology: Topology, control_flow_v2: bool = False
) -> BuiltStep:
    """Builds a single step of one core, with TPUEstimator's checks of the loop around it.

    A tensor of the step that is used outside of it, and a loss whose dtype or shape the loop cannot
    carry, are errors as in the loop of version 1.

    Args:
      estimator: see `build`.
      input_fn: see `build`.
      mode: see `build`.
      tpu_topology: see `build`.
      control_flow_v2: True to build loops and conditionals as functions, which XLA can compile on a
        CPU; False to build them as nodes, as for a TPU.

    Raises:
      Any exception of TPUEstimator, input_fn or model_fn.
    """
    # Its module is replaced, not the function, which model_fn may use.
    loops = types.SimpleNamespace(while_loop=_once)
    with mock.patch.object(training_loop, "while_loop_tf", loops), _control_flow(control_flow_v2):
        graph, spec = build(estimator, input_fn, mode, tpu_topology)
    return BuiltStep(graph, ReplicatedGraph(graph.get_operations()), spec)


def is_in_step(error: BaseException) -> bool:
    """Returns True if `build_once` raised an exception in the step of a core, not in input_fn."""
    if isinstance(error, explanations.SpecError):
        error = error.__cause__
    names = [
        frame.f_code.co_name
        for frame, _ in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_filename in (__file__, tpu_estimator.__file__)
    ]
    return "_once" in names and "_invoke_input_fn_and_record_structure" not in names


def build_step(
    estimator, input_fn, mode: str, tpu_topology: Topology, control_flow_v2: bool = False
) -> tuple[tf.Graph, ReplicatedGraph]:
    """Returns (graph, program of one core) of `build_once`. Keep the graph with the program."""
    built = build_once(estimator, input_fn, mode, tpu_topology, control_flow_v2)
    return built.graph, built.program


class _LoopContext(control_flow_ops.ControlFlowContext):
    """Looks like the context of the training loop, but adds no operations.

    TensorFlow builds some operations differently inside a loop: `dynamic_rnn`, for example, caches
    variables only outside of one.
    """

    back_prop = True
    parallel_iterations = 1
    swap_memory = False
    maximum_iterations = None
    grad_state = None  # a conditional's gradient asks for it

    def __init__(self):
        super().__init__()
        self._name = "training_loop"

    def IsWhileContext(self):  # noqa: N802
        return True

    def GetWhileContext(self):  # noqa: N802
        return self

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


@contextlib.contextmanager
def _control_flow(version_2):
    """A context manager that sets the version of control flow, but not for the host's part."""
    flag = (control_flow_util, "ENABLE_CONTROL_FLOW_V2")
    of_program = getattr(*flag)

    def keep(original):
        def kept(*args, **kwargs):
            with mock.patch.object(*flag, of_program):
                return original(*args, **kwargs)

        return kept

    on_host = (
        (tpu_estimator._InputPipeline, "_invoke_input_fn_and_record_structure"),
        (tpu_estimator._OutfeedHostCall, "create_tpu_hostcall"),
    )
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(*flag, version_2))
        for owner, name in on_host:
            stack.enter_context(mock.patch.object(owner, name, keep(getattr(owner, name))))
        yield


def _once(condition, body, loop_vars, name=None, parallel_iterations=None):
    """Replaces the `tf.while_loop` of `training_loop.while_loop`: runs the body once."""
    del condition, name, parallel_iterations
    loop = _LoopContext()
    values = [tf.convert_to_tensor(value) for value in loop_vars]
    loop.Enter()
    try:
        results = body(*values)
        results = list(results) if isinstance(results, (list, tuple)) else [results]
        results = [tf.identity(result) for result in results]
    finally:
        loop.Exit()
    for value, result in zip(values, results):
        if (
            not value.shape.is_compatible_with(result.shape)
            or value.shape.rank != result.shape.rank
        ):
            raise ValueError(
                f"the training loop of TPUEstimator carries a tensor of shape {value.shape}, which "
                f"is {result.shape} after a step: the loss must be a scalar"
            )
    for result in results:  # as the Exit of a loop
        result.op._set_control_flow_context(loop.outer_context)
    return results
