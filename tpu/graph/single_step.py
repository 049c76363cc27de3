"""Builds the program of cores with a single step in place of the training loop around it."""

from __future__ import annotations

import contextlib
import functools
import types
from typing import NamedTuple
from unittest import mock

import tensorflow as tf
from tensorflow.python.framework import func_graph
from tensorflow.python.ops import control_flow_ops, control_flow_util, control_flow_util_v2
from tensorflow.python.tpu import training_loop
from tensorflow_estimator.python.estimator.tpu import tpu_estimator

_FUNCTIONS_OF_CONTROL_FLOW = (
    control_flow_util_v2.CondBranchFuncGraph,
    control_flow_util_v2.WhileCondFuncGraph,
    control_flow_util_v2.WhileBodyFuncGraph,
)


class SingleStep(NamedTuple):
    """The step of a training loop, and the values that the loop carries.

    Attributes:
      initial: values before the first step.
      inputs: values before a step.
      results: values after this step.
      goes_on: the loop's condition for `inputs`, a scalar bool; None if it was not built.
    """

    initial: list[tf.Tensor]
    inputs: list[tf.Tensor]
    results: list[tf.Tensor]
    goes_on: tf.Tensor | None


@contextlib.contextmanager
def single_steps(control_flow_v2: bool, with_condition: bool = False):
    """Builds the outermost `tpu.while_loop` of a program as a single step.

    TPUEstimator trains, evaluates and predicts in such a loop. Those inside of a step stay loops.

    Args:
      control_flow_v2: True to build loops and conditionals of the program of cores as functions,
        which XLA can compile on a CPU; False to build them as nodes, as for a TPU.
      with_condition: also build the condition of the loop.

    Yields:
      A list to which each `SingleStep` is added once it is built.
    """
    steps, real = [], training_loop.while_loop_tf
    is_inside = False

    def while_loop(condition, body, loop_vars, name=None, parallel_iterations=None):
        nonlocal is_inside
        if is_inside:
            return real.while_loop(
                condition, body, loop_vars, name=name, parallel_iterations=parallel_iterations
            )
        is_inside = True
        try:
            steps.append(build_step(condition if with_condition else None, body, loop_vars))
        finally:
            is_inside = False
        return steps[-1].results

    # Its module is replaced, not the function, which model_fn may use.
    loops = types.SimpleNamespace(while_loop=while_loop)
    with mock.patch.object(training_loop, "while_loop_tf", loops), _control_flow(control_flow_v2):
        yield steps


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


def _keep_name_scope(build):
    """Builds the function of a loop or conditional in the name scope around it, as version 1 does.

    The names of variables that are created inside depend on it, such as those of an optimizer.
    """

    @functools.wraps(build)
    def built(name, python_func, *args, func_graph=None, **kwargs):
        scope = tf.compat.v1.get_default_graph().get_name_scope()

        def compute(*inner_args, **inner_kwargs):
            with func_graph.name_scope(f"{scope}/"):
                return python_func(*inner_args, **inner_kwargs)

        is_kept = scope and isinstance(func_graph, _FUNCTIONS_OF_CONTROL_FLOW)
        return build(
            name, compute if is_kept else python_func, *args, func_graph=func_graph, **kwargs
        )

    return built


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
        build = _keep_name_scope(func_graph.func_graph_from_py_func)
        stack.enter_context(mock.patch.object(func_graph, "func_graph_from_py_func", build))
        for owner, name in on_host:
            stack.enter_context(mock.patch.object(owner, name, keep(getattr(owner, name))))
        yield


def build_step(condition, body, loop_vars) -> SingleStep:
    """Builds the body of a loop once, and its condition if it is not None.

    Raises:
      ValueError: the body changes the shape of a value that the loop carries.
    """
    loop = _LoopContext()
    initial = [tf.convert_to_tensor(value) for value in loop_vars]
    loop.Enter()
    try:
        inputs = [tf.identity(value) for value in initial]
        goes_on = condition(*inputs) if condition else None
        results = body(*inputs)
        results = list(results) if isinstance(results, (list, tuple)) else [results]
        results = [tf.identity(result) for result in results]
    finally:
        loop.Exit()
    for value, result in zip(initial, results):
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
    return SingleStep(initial, inputs, results, goes_on)
