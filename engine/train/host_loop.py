"""Runs several training steps per session.run of an Estimator on one device.

Like `iterations_per_loop` of a TPUEstimator, on the CPU or GPU of this host. It speeds up small
models, whose step takes about as long as the overhead of session.run. The number of steps per loop
adapts to their duration, so that progress lines, signals and checkpoints are not delayed.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from engine.hooks.eval_schedule import EvalSchedule
from engine.hooks.progress import StepCounter
from engine.hooks.summaries import TrainSummaryHook

MAX_STEPS = 100
_SECONDS = 0.1  # target duration of a loop


@dataclasses.dataclass(frozen=True)
class Batches:
    """The features that a decorated input_fn returns."""

    # Returns `(features, labels)`, the tensors of the next batch. Called in the loop body.
    next: Callable[[], tuple[Any, Any]]
    initializer: tf.Operation  # operation that starts reading, after lookup tables are initialized


def decorate_input_fn(input_fn):
    """Returns an input_fn that returns `(Batches, None)` instead of a tf.data.Dataset."""

    def batches_fn(params):
        dataset = input_fn(params)
        with tf.name_scope("iterator"):
            iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
        return Batches(iterator.get_next, iterator.initializer), None

    return batches_fn


def decorate_model_fn(model_fn, counter, summary_steps):
    """Returns a model_fn that runs the train_op of `model_fn` in a while loop.

    The loop ends after the number of steps that `counter` feeds, or if the loss is not finite. The
    loss of the spec is that of the last step. Features that are not `Batches`, as in evaluation,
    are passed to `model_fn` unchanged. The `scaffold` of the spec is replaced.

    Args:
      model_fn: model_fn of an Estimator.
      counter: the `LoopCounter`.
      summary_steps: steps between summaries. `counter` must end a loop at their multiples.
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
            with tf.compat.v1.name_scope(None):  # keep the names of ops without a loop
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
        # No other worker initializes the variables, so none has to wait until they are ready.
        ready = tf.constant([], tf.string)
        scaffold = tf.compat.v1.train.Scaffold(ready_op=ready, ready_for_local_init_op=ready)
        hooks = [_StartReading(features.initializer), *specs[0].training_hooks]
        return specs[0]._replace(
            loss=loss, train_op=loss.op, scaffold=scaffold, training_hooks=hooks
        )

    return looped


class _StartReading(tf.estimator.SessionRunHook):
    def __init__(self, initializer):
        self._initializer = initializer

    def after_create_session(self, session, coord):
        del coord
        session.run(self._initializer)


def _summary_hook(spec):
    return next(hook for hook in spec.training_hooks if isinstance(hook, TrainSummaryHook))


class LoopCounter(StepCounter):
    """Counts global steps, and chooses the number of steps of each loop.

    Attributes:
      steps: int64 placeholder of that number; `decorate_model_fn` creates it.
    """

    def __init__(self, *stops: int, end: int, schedule: EvalSchedule | None = None):
        """Initializes the counter.

        Args:
          *stops: a loop ends at each multiple of these numbers of steps.
          end: global step at which training ends.
          schedule: schedule of evaluations, at whose steps a loop ends, or None.
        """
        super().__init__(MAX_STEPS)
        self._stops, self._end, self._schedule = stops, end, schedule or EvalSchedule()
        self._max = 1

    def before_run(self, run_context):
        """Feeds the number of steps of this loop."""
        left = [every - self.step % every for every in self._stops]
        left += [self._end - self.step, self._schedule.next_step(self.step) - self.step]
        self._steps_per_run = max(1, min(self._max, *left))
        self._started = time.monotonic()
        return tf.estimator.SessionRunArgs(None, {self.steps: self._steps_per_run})

    def after_run(self, run_context, run_values):
        """Counts the steps; adapts the next loop to about 0.1 s, at most twice as many steps."""
        super().after_run(run_context, run_values)
        if self.step >= self._end:
            # StopAtStepHook of the Estimator reads the step before the loop: one run too late.
            run_context.request_stop()
        seconds = (time.monotonic() - self._started) / self._steps_per_run
        fitting = int(_SECONDS / seconds)
        self._max = max(1, min(fitting, 2 * self._max, MAX_STEPS))
