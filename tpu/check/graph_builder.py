"""Lets TPUEstimator build its graph for a slice, without a session and without a TPU."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable
from typing import NamedTuple
from unittest import mock

import tensorflow as tf
from tensorflow.python.tpu import tpu_system_metadata
from tensorflow_estimator.python.estimator.tpu import error_handling, tpu_context, tpu_estimator

from tpu.check import explanations, spec_errors
from tpu.connect.topology import Topology
from tpu.emulator import discovery
from tpu.graph import gradients, single_step
from tpu.graph.replicated_graph import ReplicatedGraph

ModeKeys = tf.estimator.ModeKeys


class CheckedMode(NamedTuple):
    """A mode of a TPUEstimator on a slice: what the stages of a check build, measure and compile.

    Attributes:
      estimator: a `TPUEstimator(use_tpu=True)`, made with any resolver or master.
      input_fn: the input_fn of the mode; the serving_input_receiver_fn of an export.
      mode: "train", "eval" or "infer" (`tf.estimator.ModeKeys`).
      topology: the slice.
    """

    estimator: tf.compat.v1.estimator.tpu.TPUEstimator
    input_fn: Callable
    mode: str
    topology: Topology

    @contextlib.contextmanager
    def on_slice(self):
        """A context manager in which the TPUEstimator finds the slice."""
        found, lazy = discovery.metadata(self.topology), vars(self.estimator._ctx).items()
        patch, owner = mock.patch.object, tpu_system_metadata
        with contextlib.ExitStack() as stack:
            for cache in [value for name, value in lazy if name.startswith("_lazy_")]:
                stack.enter_context(mock.patch.dict(cache, clear=True))  # of another slice
            stack.enter_context(patch(owner, "_query_tpu_system_metadata", return_value=found))
            # TPUEmbedding finds the hosts of this slice under any name of a job.
            stack.enter_context(patch(owner, "master_job", return_value=None))
            yield

    @contextlib.contextmanager
    def context(self):
        """A context manager that yields TPUEstimator's context of the mode on the slice."""
        with self.on_slice(), self.estimator._ctx.with_mode(self.mode) as context:
            yield context

    def call_input_fn(self):
        """Calls input_fn as TPUEstimator does for the first host; call it inside `on_slice`.

        Returns:
          The result of input_fn, in the default graph: a Dataset or tensors.
        """
        with self.estimator._ctx.with_mode(self.mode) as context:
            host = tpu_context.TPUContext(context, "/cpu:0", invocation_index=0, host_id=0)
            return self.estimator._call_input_fn(self.input_fn, self.mode)(host)

    def next_batch(self):
        """Returns the tensors of a batch of `call_input_fn`."""
        batch = self.call_input_fn()
        if not isinstance(batch, (tf.data.Dataset, tf.compat.v1.data.Dataset)):
            return batch
        iterator = tf.compat.v1.data.make_initializable_iterator(batch)
        collection = tf.compat.v1.GraphKeys.TABLE_INITIALIZERS
        tf.compat.v1.add_to_collection(collection, iterator.initializer)
        return iterator.get_next()


def build(checked: CheckedMode) -> tuple[tf.Graph, tf.estimator.EstimatorSpec]:
    """Builds the graph of a mode as its estimator does for a session on the slice.

    This includes TPUEstimator's own checks of input_fn, model_fn and batch sizes.

    Returns:
      (graph with the program of one core, the loop around it, infeed, outfeed and host_call, spec
      of TPUEstimator's session).

    Raises:
      Any exception of TPUEstimator, input_fn or model_fn.
    """
    estimator, input_fn, mode, _ = checked
    with contextlib.ExitStack() as stack:
        stack.enter_context(checked.on_slice())
        graph = stack.enter_context(tf.Graph().as_default())
        model_fn = spec_errors.model_fn_of(estimator)
        stack.enter_context(spec_errors.locate(input_fn, model_fn))
        stack.enter_context(spec_errors.explain())
        stack.enter_context(gradients.marked())
        tf.compat.v1.set_random_seed(estimator.config.tf_random_seed)
        estimator._rendezvous[mode] = error_handling.ErrorRendezvous(num_sources=3)
        estimator._create_and_assert_global_step(graph)
        if mode == ModeKeys.TRAIN:
            estimator._convert_train_steps_to_hooks(100, None)
        if mode == ModeKeys.EVAL:
            estimator._convert_eval_steps_to_hooks(100)
        features, labels, _ = estimator._get_features_and_labels_from_input_fn(input_fn, mode)
        spec = estimator._call_model_fn(features, labels, mode, estimator.config)
    return graph, spec


class BuiltStep(NamedTuple):
    """A single step of a mode, without the loop around it.

    Attributes:
      graph: see `build`. Keep it while the program is used: operations do not keep it alive.
      program: the program of one core.
      spec: see `build`.
    """

    graph: tf.Graph
    program: ReplicatedGraph
    spec: tf.estimator.EstimatorSpec


def build_once(checked: CheckedMode, control_flow_v2: bool = False) -> BuiltStep:
    """Builds a single step of one core, with TPUEstimator's checks of the loop around it.

    A tensor of the step that is used outside of it, and a loss whose dtype or shape the loop cannot
    carry, are errors as in the loop of version 1.

    Args:
      checked: the mode.
      control_flow_v2: True to build loops and conditionals as functions, which XLA can compile on a
        CPU; False to build them as nodes, as for a TPU.

    Raises:
      Any exception of TPUEstimator, input_fn or model_fn.
    """
    with single_step.single_steps(control_flow_v2):
        graph, spec = build(checked)
    return BuiltStep(graph, ReplicatedGraph(graph.get_operations()), spec)


def is_in_step(error: BaseException) -> bool:
    """Returns True if `build_once` raised an exception in the step of a core, not in input_fn."""
    if isinstance(error, explanations.SpecError):
        error = error.__cause__
    names = [
        frame.f_code.co_name
        for frame, _ in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_filename in (single_step.__file__, tpu_estimator.__file__)
    ]
    return "build_step" in names and "_invoke_input_fn_and_record_structure" not in names
