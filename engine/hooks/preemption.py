"""What signals do to a training: it finishes its step, saves, and ends.

A machine that is about to be taken away sends SIGTERM first; by itself tf.estimator dies of it with
all that was learnt since the last checkpoint. So it does of SIGINT (Ctrl-C), SIGHUP (a terminal
that is closed) and a pipe whose reader is gone (`run_cpu.py ... | head`).
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time

import tensorflow as tf

from engine.cli import standard_streams

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# Within it the same request comes twice: of a terminal or systemd, which signal a whole group of
# processes, and of the supervisor, which is one of them and hands on what it gets.
_SECONDS_OF_ONE_REQUEST = 1.0


class Interruption:
    """Whether someone asked this process to end.

    Attributes:
      signal: the one that came, or None.
      finishes_step: whether a step is under way, which is worth to be finished and saved.
    """

    def __init__(self):
        self.signal: signal.Signals | None = None
        self.finishes_step = False
        self._noted = 0.0
        self._noted_signals: list[signal.Signals] = []

    @contextlib.contextmanager
    def awaited(self):
        """Inside the `with` the first signal is noted; another, a second later, ends it at once."""
        if threading.current_thread() is not threading.main_thread():
            yield  # Python lets no other thread take signals
            return
        # nohup, and a shell that starts a job in the background, ignore some on purpose.
        self._noted_signals = [n for n in _SIGNALS if signal.getsignal(n) != signal.SIG_IGN]
        before = {number: signal.signal(number, self._note) for number in self._noted_signals}
        exit_at_closed_pipe, standard_streams.on_closed_pipe = (
            standard_streams.on_closed_pipe,
            self._note_closed_pipe,
        )
        try:
            yield
        finally:
            standard_streams.on_closed_pipe = exit_at_closed_pipe
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def at_once(self):
        """Inside the `with`, of an evaluation say, nothing would be lost: a signal ends it."""
        self.finishes_step, before = False, self.finishes_step
        try:
            self.exit_if_asked()
            yield
        finally:
            self.finishes_step = before

    def exit_if_asked(self) -> None:
        """Ends the process with 128 + the signal, as a shell counts, if there was one."""
        if self.signal is not None:
            sys.exit(128 + self.signal)

    def _note(self, number, frame):
        del frame
        if self.signal is not None:
            if time.monotonic() - self._noted > _SECONDS_OF_ONE_REQUEST:
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)
            return
        self.signal, self._noted = signal.Signals(number), time.monotonic()
        if not self.finishes_step:
            self.exit_if_asked()
        print(
            f"{self.signal.name}: finishing the step and saving it; once more ends at once",
            flush=True,
        )

    def _note_closed_pipe(self):
        if self.signal is None:
            self._note(signal.SIGPIPE, None)

    def let_the_next_one_kill(self) -> None:
        """Waits until an echo of the signal would have come; then another ends the process at once.

        At once, even while TensorFlow saves and Python's own handlers have to wait.
        """
        time.sleep(max(0.0, self._noted + _SECONDS_OF_ONE_REQUEST - time.monotonic()))
        for number in self._noted_signals:
            signal.signal(number, signal.SIG_DFL)

    def hook(self) -> tf.estimator.SessionRunHook:
        """Returns a hook that ends a session after the step in which a signal came."""
        return _StopHook(self)


class _StopHook(tf.estimator.SessionRunHook):
    def __init__(self, interruption):
        self._interruption = interruption

    def after_create_session(self, session, coord):
        self._interruption.finishes_step = True

    def after_run(self, run_context, run_values):
        if self._interruption.signal is not None:
            self._interruption.let_the_next_one_kill()
            run_context.request_stop()

    def end(self, session):
        self._interruption.finishes_step = False
