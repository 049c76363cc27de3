"""Restarts a training after a crash, a kill or a preemption (--max_restarts).

It is not restarted after its last step, an invalid flag, or a signal that it has handled by saving.
Imports no TensorFlow.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Callable

from engine.checkpoints.checkpoint_files import newest_step

_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_FINAL_STATUSES = (0, 2, *(128 + number for number in (*_FORWARDED, signal.SIGPIPE)))
_PR_SET_PDEATHSIG = 1
# Gives up after this many runs in a row without a newer checkpoint.
_MAX_WITHOUT_PROGRESS = 3


def supervise(
    command: list[str],
    model_dir: str,
    max_restarts: int,
    sleep: Callable[[float], None] = time.sleep,
    restart_flags: Sequence[str] = (),
) -> int:
    """Runs `command`, and restarts it up to `max_restarts` times if it dies.

    Waits 2**n seconds before a restart after n runs in a row without a newer checkpoint.

    Args:
      command: command line of a training.
      model_dir: folder of its checkpoints.
      max_restarts: maximum number of restarts.
      sleep: function that waits for a number of seconds.
      restart_flags: additional arguments of restarts.

    Returns:
      The exit status of the last run; 128 + signal if a signal killed it.
    """
    without_progress = 0
    for restart in range(max_restarts + 1):
        before = newest_step(model_dir)
        status = _run([*command, *restart_flags] if restart else command)
        if status in _FINAL_STATUSES:
            return status
        reached = newest_step(model_dir)
        without_progress = 0 if reached > before else without_progress + 1
        step = f"step {reached}" if reached >= 0 else "none"
        ended = f"training ended with status {status}, newest checkpoint: {step}"
        if restart == max_restarts:
            print(f"{ended}. Not restarted: limit of --max_restarts={max_restarts}", flush=True)
        elif without_progress >= _MAX_WITHOUT_PROGRESS:
            print(f"{ended}. Not restarted: no progress in {without_progress} runs", flush=True)
            break
        else:
            print(f"{ended}. Restart {restart + 1} of {max_restarts}", flush=True)
            sleep(2.0**without_progress)
    return status


def _run(command):
    """Runs a command and forwards signals to it; returns its status.

    If this process is killed, the command gets SIGTERM: it saves and exits, so that the next
    training does not find another one in its model_dir.
    """
    process, early = None, []

    def forward(number, frame):
        if process is None:
            early.append(number)
        else:
            process.send_signal(number)

    # A signal that is ignored, such as SIGHUP under nohup, is ignored by the command too.
    numbers = [number for number in _FORWARDED if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, forward) for number in numbers}
    try:
        process = subprocess.Popen(command, preexec_fn=_request_parent_death_signal(os.getpid()))
        for number in early:
            process.send_signal(number)
        status = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return status if status >= 0 else 128 - status


def _request_parent_death_signal(parent):
    """Returns a preexec_fn that makes a child get SIGTERM when this process ends (prctl(2)).

    None on systems without prctl, such as macOS.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is None:
        return None

    def request_signal():
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # the parent ended before the request
            os.kill(os.getpid(), signal.SIGTERM)

    return request_signal


def start(argv: list[str], flag_values, restart_flags: Sequence[str] = ()) -> None:
    """Runs the program of `argv` under the supervisor and exits, if --max_restarts is above 0.

    Args:
      argv: the command line.
      flag_values: its flags.
      restart_flags: additional flags of restarts.
    """
    if flag_values.max_restarts:
        command = [sys.executable, *argv, "--max_restarts=0"]
        model_dir, max_restarts = flag_values.model_dir, flag_values.max_restarts
        sys.exit(supervise(command, model_dir, max_restarts, restart_flags=restart_flags))
