"""Saves a checkpoint when training is preempted or interrupted.

A machine that is preempted sends SIGTERM first. tf.estimator exits at once and loses the steps
since the last checkpoint, also for SIGINT (Ctrl-C), SIGHUP (a closed terminal) and a closed pipe
(`run_cpu.py ... | head`). Here training finishes its step, saves, and exits.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from typing import Any

import tensorflow as tf

from common import standard_streams

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# A request may arrive twice within this time: a terminal and systemd signal the whole process
# group, and the supervisor, which is in it, forwards the signal to its child.
_SECONDS_OF_ONE_REQUEST = 1.0
# Python calls a handler when the main thread returns from TensorFlow. It does not return while it
# waits for another process of a cluster, so after this time another thread handles the signal.
_SECONDS_TO_RETURN = 5.0
_HANDLED = 0  # not the number of a signal
_process_is_ours = True


@contextlib.contextmanager
def called():
    """Leaves the process alive inside the `with`: it is a notebook's, or another program's.

    A second signal then has the handler of the caller: Ctrl-C raises KeyboardInterrupt.
    """
    global _process_is_ours
    before, _process_is_ours = _process_is_ours, False
    try:
        yield
    finally:
        _process_is_ours = before


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
        self._defaults: dict[signal.Signals, Any] = {}  # handlers of a second signal
        self._handled_in_thread = False
        self._numbers: socket.socket | None = None

    @contextlib.contextmanager
    def installed(self):
        """Handles signals inside the `with`. A second one, after a second, kills the process."""
        if threading.current_thread() is not threading.main_thread():
            yield  # Python handles signals in the main thread only
            return
        # nohup, and a shell that starts a background job, ignore some signals on purpose.
        self._handled = [n for n in _SIGNALS if signal.getsignal(n) != signal.SIG_IGN]
        before = {number: signal.signal(number, self._handle) for number in self._handled}
        self._defaults = {n: signal.SIG_DFL if _process_is_ours else before[n] for n in before}
        on_closed_pipe = standard_streams.on_closed_pipe
        standard_streams.on_closed_pipe = self._handle_closed_pipe
        try:
            with self._handling_if_blocked() if _process_is_ours else contextlib.nullcontext():
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

    def exit_if_requested(self, purpose: str = "") -> None:
        """Exits with status 128 + signal, as a shell does, if a signal was received.

        Args:
          purpose: why to run the same command again, the end of the message.
        """
        if self.signal is not None:
            print(f"stopped by {self.signal.name}; run the same command again{purpose}", flush=True)
            sys.exit(128 + self.signal)

    @contextlib.contextmanager
    def _handling_if_blocked(self):
        """Handles signals in a thread while the main thread does not return from TensorFlow."""
        numbers, self._numbers = socket.socketpair()
        self._numbers.setblocking(False)
        # Python writes the number of each signal at once, and `_handle` then writes `_HANDLED`.
        before = signal.set_wakeup_fd(self._numbers.fileno(), warn_on_full_buffer=False)
        thread = threading.Thread(target=self._watch, args=[numbers], daemon=True)
        thread.start()
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            self._numbers.close()
            thread.join()
            numbers.close()

    def _watch(self, numbers):
        while data := numbers.recv(1):
            received = time.monotonic()
            if data[0] not in self._handled or _is_handled(numbers):
                continue
            number, is_second = signal.Signals(data[0]), self.signal is not None
            if is_second and received - self._received <= _SECONDS_OF_ONE_REQUEST:
                continue
            if is_second or not self.saves_first:
                print(f"stopped by {number.name}; run the same command again", flush=True)
                os._exit(128 + number)
            self._handled_in_thread = True
            self.signal, self._received = number, received
            self._announce()

    def _handle(self, number, frame):
        del frame
        if number in self._handled and self._numbers:  # SIGPIPE is not
            self._numbers.send(bytes([_HANDLED]))
        if self._handled_in_thread:
            self._handled_in_thread = False
            return
        if self.signal is not None:
            if time.monotonic() - self._received > _SECONDS_OF_ONE_REQUEST:
                signal.signal(number, self._defaults.get(number, signal.SIG_DFL))
                signal.raise_signal(number)
            return
        self.signal, self._received = signal.Signals(number), time.monotonic()
        if not self.saves_first:
            self.exit_if_requested()
        self._announce()

    def _announce(self):
        print(
            f"{self.signal.name}: finishing the step and saving it; a second signal "
            + ("kills the process" if _process_is_ours else "stops without saving"),
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
        for number, handler in self._defaults.items():
            signal.signal(number, handler)

    def hook(self) -> tf.estimator.SessionRunHook:
        """Returns a hook that stops a session after the step during which a signal came."""
        return _StopHook(self)


def _is_handled(numbers):
    """Returns True if the main thread handles a signal in time, or handlers are removed."""
    deadline = time.monotonic() + _SECONDS_TO_RETURN
    try:
        while (seconds := deadline - time.monotonic()) > 0:
            numbers.settimeout(seconds)
            if numbers.recv(1) in (b"", bytes([_HANDLED])):
                return True
    except socket.timeout:
        pass
    finally:
        numbers.settimeout(None)
    return False


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
