"""Processes of a program: the one it runs in, which it or a signal may end, and forked ones.

`os._exit` and `os.exec*` would end this process before a command has printed its results. A forked
process must not print them a second time, nor go on to build graphs with TensorFlow, whose threads
it does not have.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import traceback
from unittest import mock

from tpu.interruption import StopProgram
from tpu.programs import streams

_EXEC = ("execv", "execve")  # all others call them
_real_exit = os._exit


@contextlib.contextmanager
def owned(on_end):
    """A context manager in which a program runs in this process; for `on_end` see `Program.run`."""
    owner = os.getpid()
    with contextlib.ExitStack() as stack:
        restore = stack.enter_context(streams.restored())

        def end(how, status):
            restore()
            try:
                status = on_end(f"{how}{_line()}", status)
            except BaseException:
                traceback.print_exc()
                status = status or 1
            exit_now(status)

        def exit_process(status):
            if os.getpid() != owner:
                _real_exit(status)
            end(f"os._exit({status})", status)

        def replace(name):
            original = getattr(os, name)

            def replaced(path, *arguments):
                if os.getpid() != owner:
                    return original(path, *arguments)
                return end(f"os.{name}({os.fsdecode(path)!r}, ...)", None)

            return mock.patch.object(os, name, replaced)

        stack.enter_context(mock.patch.object(os, "_exit", exit_process))
        for name in _EXEC:
            stack.enter_context(replace(name))
        stack.enter_context(_ended_in_functions())
        try:
            yield
        except SystemExit as request:
            if os.getpid() != owner:
                code = request.code
                exit_now(code if isinstance(code, int) else int(code is not None))
            raise
        except BaseException:
            if os.getpid() != owner:
                traceback.print_exc()
                exit_now(1)
            raise
        if os.getpid() != owner:
            exit_now(0)


@contextlib.contextmanager
def _ended_in_functions():
    """A context manager that ends a process forked in input_fn or model_fn when they return."""
    from tensorflow_estimator.python.estimator import estimator
    from tensorflow_estimator.python.estimator.tpu import tpu_estimator

    def checked(original):
        def call(*args, **kwargs):
            owner = os.getpid()
            try:
                return original(*args, **kwargs)
            finally:
                if os.getpid() != owner:
                    streams.write(
                        "tpu: a process that input_fn or model_fn has forked returned from it, and "
                        "was ended: end it by os._exit\n",
                        sys.stderr,
                    )
                    exit_now(1)

        return call

    functions = (
        (estimator.Estimator, "_call_model_fn"),
        (estimator.Estimator, "_call_input_fn"),
        (tpu_estimator._ModelFnWrapper, "_call_model_fn"),
        (tpu_estimator._InputPipeline, "generate_infeed_enqueue_ops_and_dequeue_fn"),
    )
    with contextlib.ExitStack() as stack:
        for owner, name in functions:
            new = checked(vars(owner)[name])
            stack.enter_context(mock.patch.object(owner, name, new))
        yield


class SignaledError(StopProgram):
    """Ends a program that gets a signal."""


class Signals:
    """A context manager in which Ctrl-C and signals that would kill this process end the program.

    A program may catch the exception; the next signal then ends the process, with the report.

    Attributes:
      received: number of the last signal; None if none came.
    """

    _KILLING = ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM")

    def __init__(self, check):
        """Takes the command: gets `interrupted`, and has `finish()`, which returns a status."""
        self._check, self._before, self._owner = check, {}, os.getpid()
        self.received = None

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():
            for number in (getattr(signal, name, None) for name in self._KILLING):
                if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_):
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, handler)

    def status(self, status):
        """Returns the exit status of the check, given that of its report."""
        return status if self.received is None else 128 + self.received

    def _handle(self, number, frame):
        if os.getpid() != self._owner:  # a forked process
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        is_second, self.received = self.received is not None, number
        self._check.interrupted = name
        if is_second:
            exit_now(self.status(self._check.finish()))
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SignaledError(name)


def _line():
    """Returns " at file:line" of the program's code that is running; "" if unknown."""
    from tpu.findings import user_line_in

    place = user_line_in(traceback.extract_stack())
    return f" at {place}" if place else ""


def keep_status(status: int) -> None:
    """Lets this process end with a status, whatever functions a program has left to run at exit.

    Ends it at once if threads of the program that are not daemons would keep it, after Ctrl-C.
    """
    others = [t for t in threading.enumerate() if t is not threading.main_thread()]
    if any(not thread.daemon for thread in others):
        exit_now(status)
    os._exit = lambda _: exit_now(status)


def exit_now(status: int) -> None:
    """Ends this process, whatever a program has made of `os._exit`."""
    for stream in (sys.stdout, sys.stderr):
        streams.write("", stream)
    _real_exit(status)
