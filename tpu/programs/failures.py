"""How commands print an error that ends a program: its own part of the stack, then one line."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
import traceback
import types
from unittest import mock

import tensorflow as tf
from tensorflow_estimator.python.estimator.tpu import tpu_estimator

from tpu.check import explanations, spec_errors
from tpu.findings import user_frames, user_line, user_line_in

_HEADER = "Traceback (most recent call last; the program's own lines, --verbose shows all):\n"
_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"
# How TensorFlow reports an exception of Python code that a graph calls, such as a generator.
_IN_PYTHON = re.compile(
    r"\A(?:Graph execution error:\s*)?(.*?)\nTraceback \(most recent call last\):\n(.*)", re.DOTALL
)
# The emulator copies the program for each core under this name.
_CORE = re.compile(r"^core_\d+/")


def explain(error: BaseException) -> str:
    """Returns one line: the error, an explanation if known, and "(at FILE:LINE)"."""
    in_python = _error_in_python(error)
    text, place = in_python or (explanations.explain_error(error), _place(error))
    return f"{text}{f' (at {place})' if place else ''}"


def format_error(error: BaseException, verbose: bool = False) -> str:
    """Returns an uncaught error of a program as text that ends with its one useful line.

    An error that the program itself raises reads as Python prints it. For that of a library the
    stack is the program's part of it, and the last line is `explain(error)`.

    Args:
      error: the error.
      verbose: True for the whole stack, frames of libraries and of the emulator included.
    """
    if verbose or not _own_frames(error):  # without a line of the program, it is a fault of ours
        whole = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        return whole if _is_own(error) else f"{whole}\n{explain(error)}\n"
    parts = []
    while error is not None:
        frames = "".join(traceback.format_list(_own_frames(error)))
        parts.insert(0, f"{_HEADER}{frames}{_last_line(error)}")
        if isinstance(error, explanations.SpecError):
            break
        link, before = _CAUSE, error.__cause__
        if before is None and not error.__suppress_context__:
            link, before = _CONTEXT, error.__context__
        error = before if before is not None and _is_own(before) else None
        if error is not None:
            parts.insert(0, link)
    return "".join(parts)


def with_callers(error: BaseException, command: types.CodeType) -> BaseException:
    """Returns an error whose stack begins at the outermost frame of a thread, as if uncaught.

    For an error that is caught below the program, whose lines its stack lacks.

    Args:
      error: the error, in the `except` clause that catches it.
      command: code of the function that runs the program: frames that call it are left out.
    """
    stack = error.__traceback__
    frame = stack.tb_frame.f_back if stack else None
    while frame is not None and frame.f_code is not command:
        stack = types.TracebackType(stack, frame, frame.f_lasti, frame.f_lineno)
        frame = frame.f_back
    return error.with_traceback(stack)


@contextlib.contextmanager
def print_in_threads(verbose: bool):
    """A context manager in which errors of threads are printed in the same way as others."""

    def hook(arguments):
        if arguments.exc_type is SystemExit or arguments.thread is None:
            return threading.__excepthook__(arguments)
        text = format_error(arguments.exc_value, verbose)
        text = f"Exception in thread {arguments.thread.name}:\n{text}"
        return print(text, end="", file=sys.stderr, flush=True)

    with mock.patch.object(threading, "excepthook", hook):
        yield


@contextlib.contextmanager
def explain_specs():
    """A context manager that raises SpecError if TPUEstimator cannot use what model_fn returned.

    Only while it builds a graph: an error after that has another reason, even if the spec is one
    that only a CPU accepts.
    """
    try:
        with spec_errors.explain():
            yield
        return
    except explanations.SpecError as error:
        cause = error.__cause__
        frames = [frame.f_code for frame, _ in traceback.walk_tb(cause.__traceback__)]
        names = [c.co_name for c in frames if c.co_filename == tpu_estimator.__file__]
        if "_call_model_fn" in names:
            raise
    raise cause  # not in the handler above, so that it does not become its context


def _last_line(error):
    if _is_own(error):
        text = "".join(traceback.format_exception_only(type(error), error)).rstrip("\n")
        return f"{text}{explanations.advice_on_environment(error)}\n"
    return f"{explain(error)}\n"


def _own_frames(error):
    if isinstance(error, explanations.SpecError):  # an explanation of its cause
        error = error.__cause__
    return user_frames(traceback.extract_tb(error.__traceback__))


def _is_own(error):
    """Returns True if the program itself raises an error, not a library that it calls."""
    frames = traceback.extract_tb(error.__traceback__)
    is_raised_here = bool(frames) and bool(user_frames(frames[-1:]))
    is_generated = str(error).startswith("in user code:")  # AutoGraph adds a stack to the message
    return isinstance(error, SyntaxError) or (is_raised_here and not is_generated)


def _place(error):
    """Returns "file:line" of the operation that fails, else of the program's innermost frame."""
    op = _not_fetchable(error) or getattr(error, "op", None)
    if isinstance(op, tf.Operation):
        with contextlib.suppress(KeyError):  # it is not a copy
            op = op.graph.get_operation_by_name(_CORE.sub("", op.name))
        if user_line(op):
            return user_line(op)
    return explanations.place_of(error)


def _error_in_python(error):
    """Returns (message, "file:line") of an exception of Python code that a graph calls, or None."""
    match = _IN_PYTHON.match(str(error)) if isinstance(error, tf.errors.OpError) else None
    if match is None:
        return None
    place = user_line_in(explanations.frames_in(match[2]))
    return " ".join(match[1].split()), place or _place(error)


def _not_fetchable(error):
    """Returns the operation whose value a session cannot fetch, or None."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    is_fetch = bool(frames) and frames[-1].f_code.co_name == "_assert_fetchable"
    return frames[-1].f_locals.get("op") if is_fetch else None
