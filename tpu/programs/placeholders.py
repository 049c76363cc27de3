"""Results for a program whose Estimator calls are checked instead of executed."""

from __future__ import annotations

import contextlib
import threading
import time
import traceback
from collections.abc import Callable
from unittest import mock

import numpy as np
import tensorflow as tf
from tensorflow.python.training import checkpoint_utils
from tensorflow_estimator.python.estimator import training

from tpu.findings import user_line_in
from tpu.interruption import StopProgram


class WaitingError(StopProgram):
    """Ends a program that waits."""


class Placeholders:
    """Results of calls: no checkpoint, metrics of 0, one batch of predictions of 0.

    Attributes:
      are_used: True if the program got one.
    """

    def __init__(self, outputs_of: Callable):
        """`outputs_of(call)` returns `ModeReport.outputs` of a checked call, or None."""
        self._outputs_of = outputs_of
        self._last_step = 0
        self.are_used = self._is_waiting = False

    @contextlib.contextmanager
    def without_training(self):
        """A context manager for a program without checkpoints.

        It does not wait for one, and makes the evaluations of train_and_evaluate, which TensorFlow
        starts after each checkpoint.
        """
        with contextlib.ExitStack() as stack:
            patch = mock.patch.object
            stack.enter_context(patch(time, "sleep", self._sleep))
            stack.enter_context(patch(training._TrainingExecutor, "run", _train_and_evaluate))
            for owner in (tf.train, tf.compat.v1.train, checkpoint_utils):
                stack.enter_context(patch(owner, "checkpoints_iterator", _one_checkpoint))
            yield

    def result(self, call):
        """Returns the result of a call."""
        return getattr(self, f"_{call.name}_result")(call)

    def call_is_made(self):
        """Notes that the program made a call since it last slept."""
        self._is_waiting = False

    def _sleep(self, seconds, _sleep=time.sleep):
        """Replaces time.sleep: a program that sleeps twice between two calls waits for results."""
        where = user_line_in(traceback.extract_stack()[-2:-1])
        if threading.current_thread() is not threading.main_thread() or not where or seconds < 1:
            return _sleep(seconds)
        if self._is_waiting:
            raise WaitingError(f"it waits for results at {where}")
        self._is_waiting = True
        return None

    def _train_result(self, call):
        steps = call.arguments.get("steps") or 0
        self._last_step = call.arguments.get("max_steps") or self._last_step + steps
        if "://" not in call.estimator.model_dir:  # a bucket has no folders
            tf.io.gfile.makedirs(call.estimator.model_dir)  # programs write their results there
        return call.estimator

    def _evaluate_result(self, call):
        names = self._outputs_of(call) or ()
        # NumPy scalars, as of Estimator: programs call their methods.
        metrics = dict.fromkeys((*names, "loss"), np.float32(0))
        return {**metrics, "global_step": np.int64(self._last_step)}

    def _predict_result(self, call):
        size = call.predict_batch_size
        batch, count = ([size], 1) if call.yields_batches else ([], size)
        zeros = {
            name: np.zeros([*batch, *shape], tf.as_dtype(dtype).as_numpy_dtype)
            for name, (dtype, shape) in (self._outputs_of(call) or {}).items()
        }
        return ({**zeros} for _ in range(count))

    def _export_result(self, call):
        return str(call.arguments["export_dir_base"]).encode()


def _train_and_evaluate(executor):
    """Replaces `_TrainingExecutor.run`, behind `tf.estimator.train_and_evaluate`."""
    estimator = executor._estimator
    train_spec, eval_spec = executor._train_spec, executor._eval_spec
    hooks = [*train_spec.hooks, *executor._train_hooks]
    estimator.train(train_spec.input_fn, max_steps=train_spec.max_steps, hooks=hooks)
    metrics = estimator.evaluate(
        eval_spec.input_fn, steps=eval_spec.steps, name=eval_spec.name, hooks=eval_spec.hooks
    )
    exports = [
        exporter.export(estimator, estimator.model_dir, None, metrics, True)
        for exporter in eval_spec.exporters
    ]
    return metrics, exports


def _one_checkpoint(checkpoint_dir, *args, **kwargs):
    """Replaces `tf.train.checkpoints_iterator`."""
    del args, kwargs
    yield tf.train.latest_checkpoint(checkpoint_dir) or f"{checkpoint_dir}/model.ckpt-0"
