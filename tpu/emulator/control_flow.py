"""Builds the loops of TPUEstimator as nodes, and everything else as the program asks.

`replication` copies nodes, so the loop around the steps must consist of nodes (version 1). Loops
and conditionals of the program inside it keep the version that the program uses: those of version 2
accept and check other structures.
"""

from __future__ import annotations

import functools
from types import SimpleNamespace
from unittest import mock

from tensorflow.python.ops import control_flow_util
from tensorflow.python.tpu import training_loop
from tensorflow_estimator.python.estimator.tpu import tpu_estimator

_FLAG = "ENABLE_CONTROL_FLOW_V2"
_HOST_LOOPS = (
    "_wrap_computation_in_while_loop",
    "_wrap_computation_in_while_loop_with_stopping_signals",
)


def replacements() -> list:
    """Returns the functions to patch, as (owner, name, replacement)."""
    while_loop = _version_1(training_loop.while_loop_tf.while_loop)
    host_loops = [(name, _version_1(getattr(tpu_estimator, name))) for name in _HOST_LOOPS]
    return [
        (training_loop, "while_loop_tf", SimpleNamespace(while_loop=while_loop)),
        *((tpu_estimator, name, loop) for name, loop in host_loops),
    ]


def _version_1(real_loop):
    """Builds a loop with version 1, and what its functions build with that of the program."""

    def loop(*args, **kwargs):
        version = getattr(control_flow_util, _FLAG)
        args = [_with_version(arg, version) if callable(arg) else arg for arg in args]
        with mock.patch.object(control_flow_util, _FLAG, False):
            return real_loop(*args, **kwargs)

    return loop


def _with_version(function, version):
    @functools.wraps(function)
    def call(*args, **kwargs):
        with mock.patch.object(control_flow_util, _FLAG, version):
            return function(*args, **kwargs)

    return call
