"""Restarts a training that dies, from the last good checkpoint. Imports no TensorFlow.

What ends a training on purpose is not restarted: its end, a wrong flag, and a signal that it had
time to save after. A crash, a kill and a TPU that is taken away are.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from typing import Callable

_HANDED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_ON_PURPOSE = (0, 2, *(128 + number for number in (*_HANDED_ON, signal.SIGPIPE)))
_PR_SET_PDEATHSIG = 1
# Restarts in a row that brought no newer checkpoint, after which there is no hope.
_MAX_IN_VAIN = 3
_CHECKPOINT = re.compile(r"model\.ckpt-(\d+)\.index")


def supervise(
    command: list[str],
    model_dir: str,
    max_restarts: int,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Runs `command`, and again up to `max_restarts` times while it dies.

    Before the n-th restart in a row without a newer checkpoint it waits 2**n seconds.

    Args:
      command: of a training.
      model_dir: where its checkpoints are.
      max_restarts: how often.
      sleep: waits for some seconds.

    Returns:
      The exit status of the last run; of one that a signal killed 128 + the signal.
    """
    in_vain = 0
    for restart in range(max_restarts + 1):
        before = newest_step(model_dir)
        status = _run(command)
        if status in _ON_PURPOSE:
            return status
        reached = newest_step(model_dir)
        in_vain = 0 if reached > before else in_vain + 1
        ended = (
            f"the training ended with status {status}, its newest checkpoint is of step {reached}"
        )
        if restart == max_restarts:
            print(f"{ended}: restarted {max_restarts} times, which is --max_restarts", flush=True)
        elif in_vain >= _MAX_IN_VAIN:
            print(f"{ended}: no newer one in {in_vain} runs, so no restart", flush=True)
            break
        else:
            print(f"{ended}: restart {restart + 1} of {max_restarts}", flush=True)
            sleep(2.0**in_vain)
    return status


def newest_step(model_dir: str) -> int:
    """Returns the step of the newest checkpoint, be it good or not; -1 if there is none."""
    if "://" in model_dir:
        import tensorflow as tf  # seconds, but only it can read a bucket

        names = tf.io.gfile.listdir(model_dir) if tf.io.gfile.isdir(model_dir) else []
    else:
        names = os.listdir(model_dir) if os.path.isdir(model_dir) else []
    found = filter(None, map(_CHECKPOINT.fullmatch, names))
    return max((int(name[1]) for name in found), default=-1)


def _run(command):
    """Runs a command, which gets the signals that this process gets; returns its status.

    If this process is killed, the command gets SIGTERM: a training saves and ends, so that the
    next one does not find another in its model_dir.
    """
    process, early = None, []

    def hand_on(number, frame):
        if process is None:
            early.append(number)
        else:
            process.send_signal(number)

    # What is ignored, as SIGHUP under nohup, is ignored by the command, too.
    numbers = [number for number in _HANDED_ON if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, hand_on) for number in numbers}
    try:
        process = subprocess.Popen(command, preexec_fn=_end_with_parent(os.getpid()))
        for number in early:
            process.send_signal(number)
        status = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return status if status >= 0 else 128 - status


def _end_with_parent(parent):
    """Returns what a child of this process calls to get SIGTERM when this process ends (prctl(2)).

    None where there is no such system call, as on macOS.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is None:
        return None

    def request_signal():
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it ended before the request
            os.kill(os.getpid(), signal.SIGTERM)

    return request_signal


def start(argv: list[str], flag_values) -> None:
    """Supervises the program that `argv` starts, if --max_restarts says so, and ends with it."""
    if flag_values.max_restarts:
        command = [sys.executable, *argv, "--max_restarts=0"]
        sys.exit(supervise(command, flag_values.model_dir, flag_values.max_restarts))
