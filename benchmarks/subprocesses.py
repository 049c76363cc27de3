"""Runs the sides of a comparison in child processes, and formats their results."""

from __future__ import annotations

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from engine.cli import cpu_kernels

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run_python(code: str, *arguments, python: str = sys.executable, environment=None):
    """Runs Python code in a child process; returns the last line of its output, parsed as JSON.

    All sides of a comparison get the CPU kernels that the wrappers choose.

    Args:
      code: the program.
      *arguments: its arguments.
      python: the interpreter.
      environment: variables to add to the environment of this process.
    """
    lines = _run([python, "-c", code, *map(str, arguments)], environment).splitlines()
    if not lines:
        sys.exit("a process ended without output")
    return json.loads(lines[-1])


# Runs a command; prints its seconds, those of its CPUs, and the peak memory in MiB of its largest
# process. A new process runs it: the peak of a child is at least that of its parent.
_MEASURE = """
import json, resource, subprocess, sys, time
start = time.time()
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
seconds = time.time() - start
print(json.dumps([seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]))
"""


def measure(*command: str) -> tuple[float, float, float]:
    """Returns the seconds of a command, those of its CPUs, and its peak memory in MiB."""
    return tuple(run_python(_MEASURE, *command))


def print_rates(runs: dict[str, list], count: int, unit: str) -> None:
    """Prints a line per side with the medians of its runs, and the rate of "ours" beside it.

    Args:
      runs: `{side: results of measure}`, with "ours".
      count: number of examples that each run prepared.
      unit: what they are, such as "rows".
    """
    for name, found in runs.items():
        seconds, cpu, peak = (statistics.median(values) for values in zip(*found))
        ratios = format_ratios([run[0] for run in found], [run[0] for run in runs["ours"]])
        print(
            f"{name}: {seconds:.1f} s, {count / seconds:,.0f} {unit}/s, "
            f"{count / cpu:,.0f} {unit}/s per core, {peak:,.0f} MiB; rate ours / this {ratios}"
        )


def run_module(module: str, *arguments, python: str = sys.executable) -> None:
    """Runs a module of the benchmarks in a child process.

    Args:
      module: its name, such as "peers.flax_resnet".
      *arguments: its arguments.
      python: the interpreter.
    """
    _run([python, "-m", f"benchmarks.{module}", *map(str, arguments)])


# Prints the newest result of a wrapper, the seconds from the start of the process to its import
# ("start") and its peak memory in MiB ("peak").
_RUN = """
import json, resource, sys, time
start = time.time() - float(sys.argv.pop(1))
from benchmarks import runs
result = runs.run(sys.argv.pop(1))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({**result, "start": start, "peak": peak}))
"""


def run_cpu(*arguments: str, before: str = "", wrapper: str = "run_cpu") -> dict:
    """Runs run_cpu.py in a child process; returns the newest result and what `_RUN` adds.

    Args:
      *arguments: its flags; default of --model_dir: a temporary folder.
      before: code that the process runs first.
      wrapper: "run_cpu" or "run_tpu".
    """
    with tempfile.TemporaryDirectory() as model_dir:
        given = f"--model_dir={model_dir}", *arguments
        return run_python(before + _RUN, time.time(), wrapper, *given)


def train_rate(*arguments: str, before: str = "", wrapper: str = "run_cpu") -> float:
    """Trains with a wrapper in a child process; returns the examples/s after the first step."""
    result = run_cpu("--mode=train", "--best_metric=", *arguments, before=before, wrapper=wrapper)
    return result["train"]["examples_per_second"]


def prepare_data(*arguments: str) -> None:
    """Runs prepare_data.py in a child process."""
    _run([sys.executable, "prepare_data.py", *arguments])


def _run(command, environment=None):
    """Returns the standard output."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **(environment or {})}
    cpu_kernels.prefer_onednn(environment)
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr or f"a process exited with status {done.returncode}")
    return done.stdout


def interleave(sides: dict, rounds: int, *arguments) -> dict[str, list[float]]:
    """Runs every side once in each round.

    Args:
      sides: `{name: function that returns a rate}`.
      rounds: number of rounds.
      *arguments: arguments of the functions.

    Returns:
      `{name: rate of each round}`.
    """
    rates = {name: [] for name in sides}
    for _ in range(rounds):
        for name, run in sides.items():
            rates[name].append(run(*arguments))
    return rates


def compare(
    title: str,
    sides: dict,
    rounds: int,
    *arguments,
    describe=lambda rate: f"{rate:.2f} examples/s",
) -> None:
    """Runs the sides interleaved; prints a line per side with its median and the ratios to ours.

    Args:
      title: beginning of each line.
      sides: `{name: function that returns a rate}`, with "ours".
      rounds: number of rounds.
      *arguments: arguments of the functions.
      describe: function from the median rate to text.
    """
    rates = interleave(sides, rounds, *arguments)
    for name, found in rates.items():
        ratios = format_ratios(rates["ours"], found)
        shown = describe(statistics.median(found))
        print(f"{title}, {name}: {shown}; ours / this {ratios}", flush=True)


def format_ratios(ours: list[float], peer: list[float]) -> str:
    """Formats ours / peer of interleaved rounds: the median, and that of each round."""
    ratios = [a / b for a, b in zip(ours, peer)]
    return f"{statistics.median(ratios):.2f} ({' '.join(f'{ratio:.2f}' for ratio in ratios)})"


def format_ratio(ours: list[float], keras: list[float]) -> str:
    """Formats rates of interleaved rounds: their medians, and the median ratio of a round."""
    return (
        f"ours {statistics.median(ours):,.0f}, keras {statistics.median(keras):,.0f}, ratio "
        f"{format_ratios(ours, keras)}"
    )
