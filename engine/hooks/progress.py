"""Progress lines: step, loss, learning rate, examples/s and estimated time left (ETA)."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import time
from collections.abc import Callable

import tensorflow as tf

from common import progress_line
from engine.checkpoints import ema
from engine.hooks import memory_check

# TPUEstimator trains a variable of this prefix and the name of the table for each TPU embedding.
_STAND_IN = "tpu_embedding_dummy_table_variable_"


class Clock:
    """Measures seconds of training, without the evaluations in between."""

    _paused = 0.0

    def seconds(self) -> float:
        """Returns the seconds since an arbitrary start."""
        return time.monotonic() - self._paused

    @contextlib.contextmanager
    def pause(self):
        """Pauses the clock inside a `with`."""
        started = time.monotonic()
        yield
        self._paused += time.monotonic() - started


@dataclasses.dataclass
class Rate:
    """Computes examples/s between two calls."""

    clock: Clock
    batch_size: int  # global
    _step: int = 0
    _seconds: float = 0.0

    def restart(self, step: int) -> None:
        """Counts from `step` and from now."""
        self._step, self._seconds = step, self.clock.seconds()

    def since_last(self, step: int) -> float:
        """Returns examples/s from the last call, or `restart`, up to `step`."""
        examples = (step - self._step) * self.batch_size
        seconds = self.clock.seconds() - self._seconds
        self.restart(step)
        return examples / max(seconds, 1e-9)


class StepCounter(tf.estimator.SessionRunHook):
    """Tracks the global step on the host, so that other hooks need not fetch it.

    Must be the first hook of a session. One object is used for all sessions of a training.

    Attributes:
      step: the global step.
    """

    def __init__(self, steps_per_run: int = 1, alone: bool = True):
        """Initializes the counter.

        Args:
          steps_per_run: training steps per session.run.
          alone: True if no other process advances global_step.
        """
        self._steps_per_run = steps_per_run
        # A loop may end early: fetch the step. After a single step that would take too long.
        self._fetches_step = steps_per_run > 1 or not alone
        self.step = 0

    def after_create_session(self, session, coord):
        """Reads the step from which the session starts."""
        self.step = global_step(session)

    def after_run(self, run_context, run_values):
        """Counts one session.run."""
        self.step = global_step(run_context.session) if self._fetches_step else self.step + 1

    @property
    def next(self) -> int:
        """The step after the next session.run, if its loop does not end early."""
        return self.step + self._steps_per_run


@dataclasses.dataclass(eq=False)
class ProgressHook(tf.estimator.SessionRunHook):
    """Prints a line every few seconds and at the end of training; in a notebook it updates one.

    Fetches the loss only if a line is due. On a TPU it is the loss of core 0 in the last step of
    the loop. One object is used for all sessions of a training.
    """

    learning_rate: Callable  # from the global step, an int64 scalar, to the learning rate
    batch_size: int  # global
    train_steps: int  # global step at which training ends
    clock: Clock
    counter: StepCounter

    def __post_init__(self):
        """Starts the rate."""
        self._rate = Rate(self.clock, self.batch_size)
        self._line = progress_line.ProgressLine()
        self._is_announced = False

    def begin(self):
        """Adds the learning rate to the graph, and checks that the weights fit in memory."""
        self._loss = tf.compat.v1.losses.get_losses()[-1]
        with tf.name_scope("progress"):
            self._rate_step = tf.compat.v1.placeholder(tf.int64, [])
            self._learning_rate = self.learning_rate(self._rate_step)
        self._num_parameters = sum(v.shape.num_elements() for v in _trained_variables())
        memory_check.check_weights(self._num_parameters)

    def after_create_session(self, session, coord):
        """Prints the size of the model; counts from the step at which the session starts."""
        first_step = self.counter.step
        if not self._is_announced:
            start = f"from step {first_step} " if first_step else ""
            end = f"up to step {self.train_steps}"
            print(f"training {self._num_parameters:,} parameters {start}{end}", flush=True)
        self._is_announced = True
        self._printed_at = time.monotonic()
        self._restart()
        self._is_first_run = True

    def before_run(self, run_context):
        """Fetches the loss if a line is due."""
        last = self.counter.next >= self.train_steps
        if last or time.monotonic() - self._printed_at >= progress_line.seconds_between():
            return tf.estimator.SessionRunArgs(self._loss)
        return None

    def after_run(self, run_context, run_values):
        """Prints a line if the loss was fetched."""
        if run_values.results is not None:
            self._show(run_context.session, run_values.results)
        if self._is_first_run:  # it compiled the step: its time says nothing about the others
            self._is_first_run = False
            self._restart()

    def _restart(self):
        """Measures the rate and the time left from now on."""
        self._first_step, self._started = self.counter.step, self.clock.seconds()
        self._rate.restart(self._first_step)

    def _show(self, session, loss):
        self._printed_at = time.monotonic()
        step = self.counter.step
        elapsed = self.clock.seconds() - self._started
        eta = (self.train_steps - step) * elapsed / max(1, step - self._first_step)
        learning_rate = session.run(self._learning_rate, {self._rate_step: step - 1})
        self._line.show(
            f"step {step}/{self.train_steps}"
            f" | loss {loss:.4f}"
            f" | lr {learning_rate:.3g}"
            f" | {self._rate.since_last(step):,.0f} examples/s"
            f" | ETA {datetime.timedelta(seconds=round(eta))}"
        )


@dataclasses.dataclass(eq=False)
class EvalProgressHook(tf.estimator.SessionRunHook):
    """Prints a line every few seconds of an evaluation or prediction."""

    name: str  # first word of the lines
    num_examples: int
    batch_size: int  # global

    def after_create_session(self, session, coord):
        """Starts counting."""
        self._line = progress_line.ProgressLine()
        self._examples = 0
        self._started = self._printed_at = time.monotonic()

    def after_run(self, run_context, run_values):
        """Counts a batch."""
        self._examples = min(self._examples + self.batch_size, self.num_examples)
        now = time.monotonic()
        if now - self._printed_at < progress_line.seconds_between():
            return
        self._printed_at = now
        rate = self._examples / (now - self._started)
        eta = datetime.timedelta(seconds=round((self.num_examples - self._examples) / rate))
        self._line.show(
            f"{self.name} {self._examples:,}/{self.num_examples:,}"
            f" | {rate:,.0f} examples/s"
            f" | ETA {eta}"
        )


def global_step(session) -> int:
    """Returns the global step of a session."""
    return int(session.run(tf.compat.v1.train.get_global_step()))


def _trained_variables():
    """Returns the trainable variables, and TPU embeddings instead of their stand-ins."""
    trainable = tf.compat.v1.trainable_variables()
    stand_ins = {v.op.name for v in trainable if v.op.name.startswith(_STAND_IN)}
    tables = {name.removeprefix(_STAND_IN) for name in stand_ins}
    return [
        *(v for v in trainable if v.op.name not in stand_ins),
        *(v for v in tf.compat.v1.global_variables() if ema.saved_name(v) in tables),
    ]
