"""Builds the graphs of `TPUEstimator.export_saved_model`, without a checkpoint."""

from __future__ import annotations

import contextlib
from unittest import mock

import tensorflow as tf
from tensorflow.python.framework import function as function_lib
from tensorflow_estimator.python.estimator.export import export_lib
from tensorflow_estimator.python.estimator.tpu import tpu_estimator

from tpu.check.graph_builder import CheckedMode
from tpu.graph import tpu_kernels
from tpu.graph.placement import Placement
from tpu.graph.replicated_graph import ReplicatedGraph


def build(checked: CheckedMode):
    """Builds the serving graph for CPUs, and the one for TPUs if the estimator exports it.

    Returns:
      (graphs that run on a TPU, {name of an output: (dtype, shape of an example)}).

    Raises:
      Any exception of TPUEstimator, model_fn or serving_input_receiver_fn.
    """
    outputs, tpu_graphs = {}, []
    if checked.estimator._export_to_cpu:
        _, outputs = _build(checked, tf.estimator.ModeKeys.PREDICT)
    if checked.estimator._export_to_tpu:
        with _record_functions(tpu_graphs):
            graph, of_tpu = _build(checked, tpu_estimator._INFERENCE_ON_TPU_MODE)
        tpu_graphs.append(graph)
        outputs = outputs or of_tpu
    return tpu_graphs, outputs


def find_faults(graphs: list[tf.Graph]):
    """Yields (code, message, operation) for what a TPU cannot run in the graphs of `build`."""
    for graph in graphs:
        program = ReplicatedGraph(graph.get_operations())
        for op in Placement(program).on_core.values():
            fault = tpu_kernels.find_fault(op)
            if fault:
                yield *fault, op


def _build(checked, mode):
    estimator = checked.estimator
    with checked.on_slice(), tf.Graph().as_default() as graph:
        estimator._is_input_fn_invoked = None
        estimator._create_and_assert_global_step(graph)
        tf.compat.v1.set_random_seed(estimator.config.tf_random_seed)
        receiver = checked.input_fn()
        labels = getattr(receiver, "labels", None)
        spec = estimator._call_model_fn(receiver.features, labels, mode, estimator.config)
        exported = export_lib.export_outputs_for_mode(
            mode=tf.estimator.ModeKeys.PREDICT,
            serving_export_outputs=spec.export_outputs,
            predictions=spec.predictions,
        )
        export_lib.build_all_signature_defs(
            receiver.receiver_tensors,
            exported,
            getattr(receiver, "receiver_tensors_alternatives", None),
            serving_only=True,
        )
    return graph, describe(spec.predictions)


def describe(predictions) -> dict[str, tuple]:
    """Returns `{name: (dtype, shape of an example, None if unknown)}` of predictions."""
    if not isinstance(predictions, dict):
        predictions = {"output": predictions}
    return {
        name: (tensor.dtype.name, tuple(tensor.shape.as_list()[1:]) if tensor.shape.rank else None)
        for name, tensor in predictions.items()
    }


@contextlib.contextmanager
def _record_functions(graphs):
    """Adds the graphs of functions, such as the program of a TPU, to `graphs`."""
    build_function = function_lib.func_graph_from_py_func

    def recorded(*args, **kwargs):
        graphs.append(build_function(*args, **kwargs))
        return graphs[-1]

    with mock.patch.object(function_lib, "func_graph_from_py_func", recorded):
        yield
