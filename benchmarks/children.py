"""Runs each side of a comparison in a process of its own, and words what came out."""

from __future__ import annotations

import json
import os
import pathlib
import statistics
import subprocess
import sys

from engine.cli import cpu_kernels

ROOT = pathlib.Path(__file__).resolve().parent.parent


def last_line(code: str, *arguments, python: str = sys.executable, environment=None):
    """Runs Python `code` with `arguments`; returns the last line of its output, read as JSON.

    `environment` holds variables that are set beside those of this process. All sides of a
    comparison have the CPU kernels that the wrappers choose.
    """
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **(environment or {})}
    cpu_kernels.prefer_onednn(environment)
    command = [python, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        sys.exit(done.stderr or f"a process ended with status {done.returncode} and no result")
    return json.loads(lines[-1])


def beside_keras(ours: list[float], keras: list[float]) -> str:
    """Returns the medians of the rates of interleaved rounds, and of the ratios of each round."""
    ratios = [a / b for a, b in zip(ours, keras)]
    return (
        f"ours {statistics.median(ours):,.0f}, keras {statistics.median(keras):,.0f}, ratio "
        f"{statistics.median(ratios):.2f} ({' '.join(f'{ratio:.2f}' for ratio in ratios)})"
    )
