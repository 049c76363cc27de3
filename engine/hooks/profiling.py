"""`--profile`: where the time of some steps goes, for TensorBoard's profile tab."""

from __future__ import annotations

import os

import tensorflow as tf

# Of a session: the first steps allocate, and choose kernels.
_SKIPPED = 10


class ProfileHook(tf.estimator.SessionRunHook):
    """Traces some steps of a training, with what TensorFlow's own profiler sees.

    One hook serves a training in one session or in several. The trace lies in
    `model_dir/plugins/profile`. Of a loop the steps are those of whole session.run calls.
    """

    def __init__(self, num_steps, model_dir, counter):
        """Takes how many steps, and the StepCounter."""
        self._num_steps = num_steps
        self._model_dir = model_dir
        self._counter = counter
        self._first = None  # step of the trace, once it is known
        self._state = "before"

    def after_create_session(self, session, coord):
        """Counts from the step of the session."""
        if self._first is None:
            self._first = self._counter.step + _SKIPPED

    def before_run(self, run_context):
        """Begins the trace where it is due."""
        if self._state == "before" and self._counter.next > self._first:
            tf.profiler.experimental.start(self._model_dir)
            self._state = "tracing"

    def after_run(self, run_context, run_values):
        """Ends the trace where it is due."""
        if self._counter.step >= self._first + self._num_steps:
            self._stop()

    def end(self, session):
        """Ends a trace that the training has ended before."""
        self._stop()

    def report(self):
        """Says at the end of a training if there is no trace."""
        if self._state == "before":
            print(f"--profile: the training ended before its step {self._first}: no trace")

    def _stop(self):
        if self._state == "tracing":
            tf.profiler.experimental.stop()
            folder = os.path.join(self._model_dir, "plugins", "profile")
            print(f"profiled from step {self._first} on: {folder}", flush=True)
            self._state = "done"
