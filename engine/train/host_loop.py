"""Several steps of a training in one session.run: where a step is short, its call costs as much.

On a TPU TPUEstimator makes such a loop. Here it is for an Estimator on one device; how many steps
it takes is found while it runs, so that lines, signals and checkpoints never wait for long.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any, Callable

import tensorflow as tf

from engine.hooks.progress import StepCounter

MOST_STEPS = 100
_SECONDS = 0.1


@dataclasses.dataclass(frozen=True)
class Batches:
    """What an input_fn of `of_dataset` gives a model_fn as its features, for `repeat`.

    Attributes:
      next: returns `(features, labels)`, tensors of another batch in each turn of a loop.
    """

    next: Callable[[], tuple[Any, Any]]


def of_dataset(input_fn):
    """Returns an input_fn of `(Batches, None)` for one of a tf.data.Dataset."""

    def batches_fn(params):
        dataset = input_fn(params)
        with tf.name_scope("iterator"):
            iterator = tf.compat.v1.data.make_initializable_iterator(dataset)
        initializers = tf.compat.v1.GraphKeys.TABLE_INITIALIZERS
        tf.compat.v1.add_to_collection(initializers, iterator.initializer)
        return Batches(iterator.get_next), None

    return batches_fn


def repeat(batches, counter, every_steps, build):
    """Builds a loop of as many steps as `counter` feeds, or up to a loss that is not finite.

    Args:
      batches: the Batches.
      counter: the LoopCounter.
      every_steps: a step that ends at a multiple of it is summarised, and ends the loop.
      build: function of features and labels that returns a `steps.TrainStep` and a function that
        returns its summary, a string.

    Returns:
      The TrainStep, with the loop as its op, the loss of the last step, and no eval_outputs, which
      do not leave the loop; and the summary, "" where none is due.
    """
    global_step = tf.compat.v1.train.get_or_create_global_step()
    with tf.name_scope("loop"):
        start = global_step.read_value()
        counter.steps = tf.compat.v1.placeholder(tf.int64, [], "steps_of_this_run")
        end = start + counter.steps
    built = []

    def is_left(global_step, loss, summary):
        del summary
        return (global_step < end) & tf.math.is_finite(loss)

    def body(global_step, loss, summary):
        del loss, summary
        with tf.compat.v1.name_scope(None):  # the graph looks as it does without a loop
            with tf.name_scope("batch"):
                batch = batches.next()
            step, summarize = build(*batch)
            with tf.name_scope("summary"):
                global_step += 1
                is_due = tf.equal(global_step % every_steps, 0)
                summary = tf.cond(is_due, summarize, lambda: tf.constant(""))
        built.append(step)
        with tf.control_dependencies([step.op]):
            return tf.identity(global_step), tf.identity(step.loss), tf.identity(summary)

    first = start, tf.constant(0.0), tf.constant("")
    _, loss, summary = tf.while_loop(is_left, body, first, parallel_iterations=1)
    return dataclasses.replace(built[0], op=loss.op, loss=loss, eval_outputs={}), summary


class LoopCounter(StepCounter):
    """Counts the steps of loops, and says how many come next.

    Attributes:
      steps: the placeholder that takes their number; `repeat` makes it.
    """

    def __init__(self, *stops: int, end: int):
        """Takes steps at whose multiples a loop ends, and the one at which training does."""
        super().__init__(MOST_STEPS)
        self._stops, self._end = stops, end
        self._most = 1

    def before_run(self, run_context):
        """Feeds the number of steps."""
        left = [every - self.step % every for every in self._stops]
        self._steps_per_run = max(1, min(self._most, self._end - self.step, *left))
        self._started = time.monotonic()
        return tf.estimator.SessionRunArgs(None, {self.steps: self._steps_per_run})

    def after_run(self, run_context, run_values):
        """Counts them, and makes the next loop so long that it will take a tenth of a second."""
        super().after_run(run_context, run_values)
        if self.step >= self._end:
            # The Estimator's own hook looks at the step before the loop, and comes too late.
            run_context.request_stop()
        seconds = (time.monotonic() - self._started) / self._steps_per_run
        fitting = int(_SECONDS / seconds)
        self._most = max(1, min(fitting, 2 * self._most, MOST_STEPS))
