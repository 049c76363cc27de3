"""Runs several training steps per session.run of an Estimator on one device.

A TPUEstimator has such a loop on the TPU. Here the number of steps of each loop is chosen while
training runs, so that progress lines, signals and checkpoints are not delayed. It saves time if a
step is as short as the overhead of session.run: small models.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from engine.hooks.progress import StepCounter
from engine.hooks.summaries import TrainSummaryHook

MAX_STEPS = 100
_SECONDS = 0.1


@dataclasses.dataclass(frozen=True)
class Batches:
    """The features that a decorated input_fn yields.

    Attributes:
      next: returns `(features, labels)`, tensors of the next batch in each iteration of the loop.
    """

    next: Callable[[], tuple[Any, Any]]


def decorate_input_fn(input_fn):
    """Returns an input_fn of `(Batches, None)` for an input_fn of a tf.data.Dataset."""

    def batches_fn(params):
        dataset = input_fn(params)
        with tf.name_scope("iterator"):
            iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
        initializers = tf.compat.v1.GraphKeys.TABLE_INITIALIZERS
        tf.compat.v1.add_to_collection(initializers, iterator.initializer)
        return Batches(iterator.get_next), None

    return batches_fn


def decorate_model_fn(model_fn, counter, summary_steps):
    """Returns a model_fn that runs the train_op of `model_fn` in a while loop.

    The loop ends after as many steps as `counter` feeds, or at a loss that is not finite. The spec
    has the loss of the last step. Batches come from `decorate_input_fn`; other features are passed
    on to `model_fn`.

    Args:
      model_fn: model_fn of an Estimator.
      counter: the `LoopCounter`.
      summary_steps: a step that is a multiple of it is summarized and ends the loop.
    """

    def looped(features, labels, mode, params):
        if not isinstance(features, Batches):
            return model_fn(features, labels, mode, params)
        global_step = tf.compat.v1.train.get_or_create_global_step()
        with tf.name_scope("loop"):
            start = global_step.read_value()
            counter.steps = tf.compat.v1.placeholder(tf.int64, [], "steps_of_this_run")
            end = start + counter.steps
        specs = []

        def body(global_step, loss, summary):
            del loss, summary
            with tf.compat.v1.name_scope(None):  # names of ops as without a loop
                with tf.name_scope("batch"):
                    batch = features.next()
                specs.append(model_fn(*batch, mode, params))
                with tf.name_scope("summary"):
                    global_step += 1
                    is_due = tf.equal(global_step % summary_steps, 0)
                    build = _summary_hook(specs[0]).build_summary
                    summary = tf.cond(is_due, build, lambda: tf.constant(""))
            with tf.control_dependencies([specs[0].train_op]):
                return tf.identity(global_step), tf.identity(specs[0].loss), tf.identity(summary)

        _, loss, summary = tf.while_loop(
            lambda step, loss, _: (step < end) & tf.math.is_finite(loss),
            body,
            (start, tf.constant(0.0), tf.constant("")),
            parallel_iterations=1,
        )
        _summary_hook(specs[0]).summary = summary
        return specs[0]._replace(loss=loss, train_op=loss.op)

    return looped


def _summary_hook(spec):
    return next(hook for hook in spec.training_hooks if isinstance(hook, TrainSummaryHook))


class LoopCounter(StepCounter):
    """Counts the steps of loops, and chooses the number of steps of the next loop.

    Attributes:
      steps: the placeholder of that number; `decorate_model_fn` creates it.
    """

    def __init__(self, *stops: int, end: int):
        """Takes numbers at whose multiples a loop ends, and the step at which training ends."""
        super().__init__(MAX_STEPS)
        self._stops, self._end = stops, end
        self._max = 1

    def before_run(self, run_context):
        """Feeds the number of steps."""
        left = [every - self.step % every for every in self._stops]
        self._steps_per_run = max(1, min(self._max, self._end - self.step, *left))
        self._started = time.monotonic()
        return tf.estimator.SessionRunArgs(None, {self.steps: self._steps_per_run})

    def after_run(self, run_context, run_values):
        """Counts the steps; makes the next loop take about a tenth of a second."""
        super().after_run(run_context, run_values)
        if self.step >= self._end:
            # The Estimator's own StopAtStepHook sees the step before the loop, one run too late.
            run_context.request_stop()
        seconds = (time.monotonic() - self._started) / self._steps_per_run
        fitting = int(_SECONDS / seconds)
        self._max = max(1, min(fitting, 2 * self._max, MAX_STEPS))
