"""What `gpu_speed` asks of its peers: the time of steps, whenever it writes a line."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

_STEPS = 30


def serve(
    description: str,
    step: Callable[[], object],
    wait: Callable[[], object],
    release: Callable[[], object] = lambda: None,
) -> None:
    """Prints "ready" and, for each line of the input, the seconds of a step.

    Args:
      description: of the program that has compiled the step.
      step: starts a step.
      wait: waits for all steps.
      release: frees memory for the other programs, until this one is timed again.
    """
    print(f"ready: {description}", flush=True)
    release()
    for _ in sys.stdin:
        for count in (3, _STEPS):  # the first steps warm up
            wait()
            started = time.perf_counter()
            for _ in range(count):
                step()
            wait()
        print((time.perf_counter() - started) / _STEPS, flush=True)
        release()
