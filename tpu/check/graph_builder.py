"""What TPUEstimator builds for a slice, without a session and without a TPU."""

from __future__ import annotations

import contextlib
from typing import NamedTuple
from unittest import mock

import tensorflow as tf
from tensorflow.python.ops import control_flow_util
from tensorflow.python.tpu import tpu_system_metadata, training_loop
from tensorflow_estimator.python.estimator.tpu import error_handling

from tpu.connect.topology import Topology
from tpu.emulator import emulator
from tpu.emulator.replicated_graph import Cluster

ModeKeys = tf.estimator.ModeKeys


class Built(NamedTuple):
    """What TPUEstimator has built.

    Attributes:
      graph: the program of one core, the loop around it, infeed, outfeed, host_call.
      spec: the `tf.estimator.EstimatorSpec` that TPUEstimator gives to its session.
    """

    graph: tf.Graph
    spec: tf.estimator.EstimatorSpec


@contextlib.contextmanager
def on_slice(estimator, tpu_topology: Topology):
    """A context in which a TPUEstimator finds that slice, wherever it looks."""
    known = [value for name, value in vars(estimator._ctx).items() if name.startswith("_lazy_")]
    with contextlib.ExitStack() as stack:
        for kept in known:  # of the slice that it found before
            stack.enter_context(mock.patch.dict(kept, clear=True))
        query = mock.patch.object(
            tpu_system_metadata,
            "_query_tpu_system_metadata",
            return_value=emulator.metadata(tpu_topology),
        )
        stack.enter_context(query)
        yield


def build(estimator, input_fn, mode: str, tpu_topology: Topology, steps: int = 100) -> Built:
    """Builds the graph of a mode as `estimator` would for a session on the slice.

    All of TPUEstimator's own checks of input_fn, model_fn and batch sizes are made on the way.

    Args:
      estimator: a `TPUEstimator(use_tpu=True)`, made with a resolver or master of any kind.
      input_fn: for the mode.
      mode: "train", "eval" or "infer", see `tf.estimator.ModeKeys`.
      tpu_topology: the slice.
      steps: of training or evaluation.

    Raises:
      Whatever TPUEstimator, input_fn or model_fn raise.
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
    return Built(graph, spec)


def one_step(
    estimator, input_fn, mode: str, tpu_topology: Topology, control_flow_v2: bool = False
) -> tuple[tf.Graph, Cluster]:
    """Builds the program of one core as a single step: without the loop around it.

    Args:
      estimator: see `build`.
      input_fn: see `build`.
      mode: see `build`.
      tpu_topology: see `build`.
      control_flow_v2: whether loops and conditions inside the step are single nodes with functions,
        which XLA compiles on a CPU, or, as on a TPU, nodes of the graph.

    Returns:
      The graph, which must be kept as long as the other is used, and the program in it.
    """
    replacements = [
        mock.patch.object(training_loop, "while_loop", _once),
        mock.patch.object(training_loop, "repeat", _repeat_once),
        mock.patch.object(control_flow_util, "ENABLE_CONTROL_FLOW_V2", control_flow_v2),
    ]
    with replacements[0], replacements[1], replacements[2]:
        graph = build(estimator, input_fn, mode, tpu_topology).graph
    return graph, Cluster(graph.get_operations())


def _once(condition, body, inputs=None, infeed_queue=None, name=None):
    """In the place of `training_loop.while_loop`."""
    del condition, infeed_queue, name
    results = body(*[tf.convert_to_tensor(value) for value in inputs])
    return list(results) if isinstance(results, (list, tuple)) else [results]


def _repeat_once(n, body, inputs=None, infeed_queue=None, name=None):
    """In the place of `training_loop.repeat`."""
    return _once(n, body, inputs, infeed_queue, name)
