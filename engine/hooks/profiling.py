"""`--profile`: traces some training steps for TensorBoard's profile tab."""

from __future__ import annotations

import dataclasses
import os

import tensorflow as tf

from engine.hooks.progress import StepCounter

# The first steps of a session allocate memory and select kernels.
_SKIPPED = 10


@dataclasses.dataclass(eq=False)
class ProfileHook(tf.estimator.SessionRunHook):
    """Traces some steps with tf.profiler, into `model_dir/plugins/profile`.

    One hook serves all sessions of a training. A trace covers whole session.run calls, each of
    which may be a loop of several steps.
    """

    num_steps: int  # minimum number of steps to trace
    model_dir: str
    counter: StepCounter

    def __post_init__(self):
        """Waits for the first session."""
        self._first = None  # first step of the trace
        self._state = "before"

    def after_create_session(self, session, coord):
        """Schedules the trace, in the first session."""
        if self._first is None:
            self._first = self.counter.step + _SKIPPED

    def before_run(self, run_context):
        """Starts the trace if it is due."""
        if self._state == "before" and self.counter.next > self._first:
            tf.profiler.experimental.start(self.model_dir)
            self._state = "tracing"

    def after_run(self, run_context, run_values):
        """Stops the trace if it is complete."""
        if self.counter.step >= self._first + self.num_steps:
            self._stop()

    def end(self, session):
        """Stops a trace that is still running when the session ends."""
        self._stop()

    def report(self):
        """Prints a warning if training ended before the trace started."""
        if self._state == "before":
            print(f"--profile: training ended before step {self._first}, so there is no trace")

    def _stop(self):
        if self._state == "tracing":
            tf.profiler.experimental.stop()
            folder = os.path.join(self.model_dir, "plugins", "profile")
            print(f"profiled from step {self._first}: {folder}", flush=True)
            self._state = "done"
