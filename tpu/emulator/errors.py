"""Which error TPUEstimator raises if several of its threads fail.

The main thread, infeed and outfeed each record their error. If the main thread fails, in a hook for
example, its session closes, and the other threads fail because of that before the error of the main
thread is recorded. TPUEstimator raises the first that is recorded; emulated cores raise the cause.
"""

from __future__ import annotations

import sys

import tensorflow as tf
from tensorflow_estimator.python.estimator.tpu import error_handling

_CLOSED = ("Attempted to use a closed Session", "Session has been closed")
_FEEDS = ("infeed", "outfeed")


def replacements() -> list:
    """Returns the functions to patch, as (owner, name, replacement)."""
    rendezvous = error_handling.ErrorRendezvous
    return [(rendezvous, "raise_errors", _raise_cause(rendezvous.raise_errors))]


def _raise_cause(real_raise_errors):
    def raise_errors(self, timeout_sec=0):
        if _is_ending(sys.exc_info()[1], sys._getframe(1)):
            return  # SystemExit, KeyboardInterrupt or GeneratorExit, which must not be replaced
        # Sorting keeps the order of those that are alike.
        self._errors = dict(sorted(self._errors.items(), key=_rank))
        real_raise_errors(self, timeout_sec)

    return raise_errors


def _rank(item):
    """Returns the rank of a recorded error: 0 for the most likely cause."""
    source, recorded = item
    error = recorded[1] if recorded else None
    if _is_consequence(error):
        return 2
    return int(source in _FEEDS)


def _is_consequence(error):
    """Returns True for an error of a thread whose session another thread has closed."""
    is_closed = any(text in str(error) for text in _CLOSED)
    return isinstance(error, tf.errors.CancelledError) or (
        isinstance(error, RuntimeError) and is_closed
    )


def _is_ending(error, frame):
    """Returns True if an exception leaves the function of `frame` that is not an `Exception`."""
    if error is None or isinstance(error, Exception):
        return False
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame is frame:
            return True
        traceback = traceback.tb_next
    return False
