"""One line now and then while a model trains: step, loss, learning rate, examples/s, time to go."""

from __future__ import annotations

import contextlib
import datetime
import time

import tensorflow as tf

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


class ProgressHook(tf.estimator.SessionRunHook):
    """Prints a line every few seconds and at the end.

    Loss and learning rate are fetched only by the steps that print, so other steps cost nothing.
    """

    def __init__(self, loss, learning_rate, batch_size, train_steps, clock):
        """Takes two scalar tensors, the global batch size and the step at which training ends."""
        self._fetches = {"loss": loss, "lr": learning_rate}
        self._train_steps = train_steps
        self._clock = clock
        self._rate = Rate(clock, batch_size)
        self._printed_at = 0.0

    def begin(self):
        """Says how large the model is."""
        variables = tf.compat.v1.trainable_variables()
        count = sum(variable.shape.num_elements() for variable in variables)
        print(f"training {count:,} parameters up to step {self._train_steps}", flush=True)

    def after_create_session(self, session, coord):
        """Starts counting at the step that the session was restored to."""
        self._step = self._first_step = int(session.run(tf.compat.v1.train.get_global_step()))
        self._started = self._clock.seconds()
        self._printed_at = time.monotonic()
        self._rate.restart(self._step)

    def before_run(self, run_context):
        """Asks for loss and learning rate where a line is due."""
        last = self._step + 1 >= self._train_steps
        if last or time.monotonic() - self._printed_at >= _SECONDS_BETWEEN_LINES:
            return tf.estimator.SessionRunArgs(self._fetches)
        return None

    def after_run(self, run_context, run_values):
        """Counts the step; prints the line that it was asked for."""
        self._step += 1
        if run_values.results is None:
            return
        self._printed_at = time.monotonic()
        remaining = self._train_steps - self._step
        done = max(1, self._step - self._first_step)
        eta = remaining * (self._clock.seconds() - self._started) / done
        print(
            f"step {self._step}/{self._train_steps}"
            f" | loss {run_values.results['loss']:.4f}"
            f" | lr {run_values.results['lr']:.3g}"
            f" | {self._rate.since_last(self._step):,.0f} examples/s"
            f" | ETA {datetime.timedelta(seconds=round(eta))}",
            flush=True,
        )
