"""Saves a checkpoint when training is preempted or interrupted.

A machine that is preempted sends SIGTERM first. tf.estimator exits at once and loses the steps
since the last checkpoint, also for SIGINT (Ctrl-C), SIGHUP (a closed terminal) and a closed pipe
(`run_cpu.py ... | head`). Here training finishes its step, saves, and exits.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time

import tensorflow as tf

from common import standard_streams

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# A request may arrive twice within this time: a terminal and systemd signal the whole process
# group, and the supervisor, which is in it, forwards the signal to its child.
_SECONDS_OF_ONE_REQUEST = 1.0


class SignalHandler:
    """Records a request to stop; installed by `with handler.installed()`.

    Attributes:
      signal: the first signal received, or None.
      saves_first: True during a training session: the signal is recorded, and training finishes its
        step and saves. Otherwise a signal exits at once.
    """

    def __init__(self):
        self.signal: signal.Signals | None = None
        self.saves_first = False
        self._received = 0.0
        self._handled: list[signal.Signals] = []

    @contextlib.contextmanager
    def installed(self):
        """Handles signals inside the `with`. A second one, after a second, kills the process."""
        if threading.current_thread() is not threading.main_thread():
            yield  # Python handles signals in the main thread only
            return
        # nohup, and a shell that starts a background job, ignore some signals on purpose.
        self._handled = [n for n in _SIGNALS if signal.getsignal(n) != signal.SIG_IGN]
        before = {number: signal.signal(number, self._handle) for number in self._handled}
        on_closed_pipe = standard_streams.on_closed_pipe
        standard_streams.on_closed_pipe = self._handle_closed_pipe
        try:
            yield
        finally:
            standard_streams.on_closed_pipe = on_closed_pipe
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def exiting_at_once(self):
        """Lets a signal exit at once inside the `with`, such as an evaluation: nothing is lost."""
        self.saves_first, before = False, self.saves_first
        try:
            self.exit_if_requested()
            yield
        finally:
            self.saves_first = before

    def exit_if_requested(self) -> None:
        """Exits with status 128 + signal, as a shell does, if a signal was received."""
        if self.signal is not None:
            sys.exit(128 + self.signal)

    def _handle(self, number, frame):
        del frame
        if self.signal is not None:
            if time.monotonic() - self._received > _SECONDS_OF_ONE_REQUEST:
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)
            return
        self.signal, self._received = signal.Signals(number), time.monotonic()
        if not self.saves_first:
            self.exit_if_requested()
        print(
            f"{self.signal.name}: finishing the step and saving it; a second signal kills the "
            "process",
            flush=True,
        )

    def _handle_closed_pipe(self):
        if self.signal is None:
            self._handle(signal.SIGPIPE, None)

    def restore_defaults(self) -> None:
        """Lets the next signal kill, even while TensorFlow saves and Python's handlers wait.

        First waits until a repeated signal of the same request would have arrived.
        """
        time.sleep(max(0.0, self._received + _SECONDS_OF_ONE_REQUEST - time.monotonic()))
        for number in self._handled:
            signal.signal(number, signal.SIG_DFL)

    def hook(self) -> tf.estimator.SessionRunHook:
        """Returns a hook that stops a session after the step during which a signal came."""
        return _StopHook(self)


class _StopHook(tf.estimator.SessionRunHook):
    def __init__(self, handler):
        self._handler = handler

    def after_create_session(self, session, coord):
        self._handler.saves_first = True

    def after_run(self, run_context, run_values):
        if self._handler.signal is not None:
            self._handler.restore_defaults()
            run_context.request_stop()

    def end(self, session):
        self._handler.saves_first = False
