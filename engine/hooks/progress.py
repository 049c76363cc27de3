"""One line now and then while a model trains: step, loss, learning rate, examples/s, time to go."""

from __future__ import annotations

import contextlib
import datetime
import time

import tensorflow as tf

from engine.hooks import memory_check

_SECONDS_BETWEEN_LINES = 5.0


class Clock:
    """Seconds of training: evaluations in between do not count."""

    def __init__(self):
        self._paused = 0.0

    def seconds(self) -> float:
        """Seconds on this clock; only differences mean something."""
        return time.monotonic() - self._paused

    @contextlib.contextmanager
    def pause(self):
        """Stops the clock inside a `with`."""
        started = time.monotonic()
        yield
        self._paused += time.monotonic() - started


class Rate:
    """Examples per second of training since this object was last asked."""

    def __init__(self, clock: Clock, batch_size: int):
        self._clock = clock
        self._batch_size = batch_size
        self._step = 0
        self._seconds = 0.0

    def restart(self, step: int) -> None:
        """Counts from `step` and from now on."""
        self._step, self._seconds = step, self._clock.seconds()

    def since_last(self, step: int) -> float:
        """Examples per second up to `step`."""
        examples = (step - self._step) * self._batch_size
        seconds = self._clock.seconds() - self._seconds
        self.restart(step)
        return examples / max(seconds, 1e-9)


class StepCounter(tf.estimator.SessionRunHook):
    """The global step after each session.run of one training step, or of a TPU's loop of many.

    One serves a whole training. It must be the first of a session's hooks: others read it.

    Attributes:
      step: the global step.
    """

    def __init__(self, steps_per_run: int = 1, alone: bool = True):
        """Takes whether no other process makes steps."""
        self._steps_per_run = steps_per_run
        self._asks = steps_per_run > 1 or not alone
        self.step = 0

    def after_create_session(self, session, coord):
        """Takes the step that the session was restored to."""
        self.step = global_step(session)

    def after_run(self, run_context, run_values):
        """Counts one session.run."""
        # Only a loop may end early, and only after a loop is it worth the time to ask.
        self.step = global_step(run_context.session) if self._asks else self.step + 1

    @property
    def next(self) -> int:
        """The step after the next session.run, if that is not cut short."""
        return self.step + self._steps_per_run


class ProgressHook(tf.estimator.SessionRunHook):
    """Prints a line every few seconds and at the end. Serves any number of sessions in a row.

    The loss is fetched only by the runs that print, so others cost nothing. On a TPU it is that of
    core 0 in the last step of the loop.
    """

    def __init__(self, learning_rate, batch_size, train_steps, clock, counter):
        """Takes what the lines need.

        Args:
          learning_rate: a function from the global step, a tensor, to the rate of that step.
          batch_size: global batch size.
          train_steps: global step at which training ends.
          clock: a `Clock`.
          counter: the `StepCounter`.
        """
        self._learning_rate_fn = learning_rate
        self._train_steps = train_steps
        self._clock = clock
        self._rate = Rate(clock, batch_size)
        self._counter = counter
        self._said = False

    def begin(self):
        """Comes when the Estimator has put its loss into the graph."""
        self._loss = tf.compat.v1.losses.get_losses()[-1]
        with tf.name_scope("progress"):
            self._rate_step = tf.compat.v1.placeholder(tf.int64, [])
            self._learning_rate = self._learning_rate_fn(self._rate_step)
        variables = tf.compat.v1.trainable_variables()
        self._num_parameters = sum(variable.shape.num_elements() for variable in variables)
        memory_check.check_weights(self._num_parameters)

    def after_create_session(self, session, coord):
        """Says what begins, and starts counting at the step that the session was restored to."""
        self._first_step = self._counter.step
        if not self._said:
            start = f"from step {self._first_step} " if self._first_step else ""
            end = f"up to step {self._train_steps}"
            print(f"training {self._num_parameters:,} parameters {start}{end}", flush=True)
        self._said = True
        self._started = self._clock.seconds()
        self._printed_at = time.monotonic()
        self._rate.restart(self._counter.step)

    def before_run(self, run_context):
        """Asks for the loss where a line is due."""
        last = self._counter.next >= self._train_steps
        if last or time.monotonic() - self._printed_at >= _SECONDS_BETWEEN_LINES:
            return tf.estimator.SessionRunArgs(self._loss)
        return None

    def after_run(self, run_context, run_values):
        """Prints the line that the loss was asked for."""
        if run_values.results is None:
            return
        self._printed_at = time.monotonic()
        step = self._counter.step
        elapsed = self._clock.seconds() - self._started
        eta = (self._train_steps - step) * elapsed / max(1, step - self._first_step)
        learning_rate = run_context.session.run(self._learning_rate, {self._rate_step: step - 1})
        print(
            f"step {step}/{self._train_steps}"
            f" | loss {run_values.results:.4f}"
            f" | lr {learning_rate:.3g}"
            f" | {self._rate.since_last(step):,.0f} examples/s"
            f" | ETA {datetime.timedelta(seconds=round(eta))}",
            flush=True,
        )


class EvalProgressHook(tf.estimator.SessionRunHook):
    """Prints a line every few seconds of one pass over a split; nothing where it takes less."""

    def __init__(self, name: str, num_examples: int, batch_size: int):
        """Takes what the lines begin with, and the global batch size of a session.run."""
        self._name = name
        self._num_examples = num_examples
        self._batch_size = batch_size

    def after_create_session(self, session, coord):
        """Starts counting."""
        self._examples = 0
        self._started = self._printed_at = time.monotonic()

    def after_run(self, run_context, run_values):
        """Counts a batch."""
        self._examples = min(self._examples + self._batch_size, self._num_examples)
        now = time.monotonic()
        if now - self._printed_at < _SECONDS_BETWEEN_LINES:
            return
        self._printed_at = now
        rate = self._examples / (now - self._started)
        eta = datetime.timedelta(seconds=round((self._num_examples - self._examples) / rate))
        print(
            f"{self._name} {self._examples:,}/{self._num_examples:,}"
            f" | {rate:,.0f} examples/s"
            f" | ETA {eta}",
            flush=True,
        )


def global_step(session) -> int:
    """Returns the global step of a session."""
    return int(session.run(tf.compat.v1.train.get_global_step()))
