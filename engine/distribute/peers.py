"""Reports which other processes of a cluster do not answer while this one waits for them.

TensorFlow creates the session of a cluster when all processes that it needs are there, and logs
nothing that the wrappers show. `engine.hooks.preemption` handles signals meanwhile.
"""

from __future__ import annotations

import socket
import threading
import time

import tensorflow as tf

_POLL_SECONDS = 1.0


def accepts_connections(address: str) -> bool:
    """Returns True if a process listens at "host:port"."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1.0).close()
    except (OSError, ValueError):
        return False
    return True


def wait_report_hook(
    addresses: dict[str, str], first: float = 10.0, every: float = 60.0
) -> tf.estimator.SessionRunHook:
    """Returns a hook that prints which processes do not answer, until the session is created.

    Args:
      addresses: `{name: "host:port"}` of the processes that the session needs.
      first: seconds before the first line.
      every: seconds between lines.
    """
    return _WaitReportHook(addresses, first, every)


class _WaitReportHook(tf.estimator.SessionRunHook):
    def __init__(self, addresses, first, every):
        self._addresses, self._first, self._every = addresses, first, every
        self._created = threading.Event()

    def begin(self):
        threading.Thread(target=self._report, daemon=True).start()

    def after_create_session(self, session, coord):
        self._created.set()

    def end(self, session):
        self._created.set()

    def _report(self):
        started = time.monotonic()
        seconds = self._first
        while not self._created.wait(seconds):
            seconds = _POLL_SECONDS
            silent = [
                f"{name} ({address})"
                for name, address in self._addresses.items()
                if not accepts_connections(address)
            ]
            if silent and not self._created.is_set():
                waited = time.monotonic() - started
                print(f"waiting for {', '.join(silent)}: no answer for {waited:.0f} s", flush=True)
                seconds = self._every
