"""Ends a training whose tf.data service is gone: TensorFlow would wait for it without end."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Sequence

from input_fns.core import data_service

_EVERY_SECONDS = 3.0
_SECONDS = 20.0


def _exit(message):
    print(f"{os.path.basename(sys.argv[0])}: error: {message}", file=sys.stderr, flush=True)
    os._exit(1)  # the main thread does not return from session.run


@contextlib.contextmanager
def watched(addresses: Sequence[str], seconds: float = _SECONDS, end=_exit):
    """Ends the process if a worker does not answer, inside the `with`.

    Args:
      addresses: "grpc://HOST:PORT" of each worker; () for none.
      seconds: seconds without an answer after which the process ends.
      end: function of the error message that ends it.
    """
    stop = threading.Event()
    if addresses:
        arguments = addresses, seconds, end, stop
        threading.Thread(target=_watch, args=arguments, daemon=True).start()
    try:
        yield
    finally:
        stop.set()


def _watch(addresses, seconds, end, stop):
    answered = dict.fromkeys(addresses, time.monotonic())
    while not stop.wait(min(_EVERY_SECONDS, seconds)):
        for address in addresses:
            if data_service.accepts_connections(address):
                answered[address] = time.monotonic()
            elif time.monotonic() - answered[address] > seconds and not stop.is_set():
                end(
                    f"--data_service={address} has not answered for {seconds:.0f} s. Checkpoints "
                    "are kept; start the service and run the same command again to resume"
                )
                return
