r"""Trains by acting: plays with the newest export, writes the replay buffer, trains, exports.

python -m examples.rl.train --task=cartpole --run_dir=runs/cartpole
python -m examples.rl.train --task=connect_four --run_dir=runs/connect_four
python -m examples.rl.train --task=connect_four --run_dir=runs/emulated \
  --learner="run_tpu.py --tpu=emulator --tpu_topology=v2-8" --set=num_games=64,steps=100

All state is in files of RUN_DIR. After a crash of any process the same command repeats the step
that was interrupted and continues.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import fcntl
import importlib
import json
import os
import resource
import shlex
import sys
import time

import numpy as np

from common import files
from common.errors import UsageError
from engine.cli import startup
from examples.rl import learner, policy, replay


def main():
    """Runs iterations until the task is solved, then evaluates the last export on other games."""
    args, task = parse(sys.argv[1:])
    with locked(args.run_dir):
        check_same_run(args, task)
        export = None
        for iteration in range(task.iterations):
            path = os.path.join(args.run_dir, "iterations", f"{iteration:04d}.json")
            if not os.path.exists(path):
                write_json(path, iterate(args, task, iteration, export))
            result = read_json(path)
            report(result)
            export = result["export"]
            if task.is_solved(result):
                break
        random = np.random.default_rng([args.seed, task.iterations, 2])
        report({"final": export, **task.evaluate(policy.load(export), random, is_final=True)})


def iterate(args, task, iteration, export):
    """Runs one iteration: acts, writes the replay buffer, trains and exports, evaluates.

    Args:
      args: arguments of `parse`.
      task: a `Task` of cartpole/task.py or connect_four/task.py.
      iteration: number of the iteration, from 0.
      export: path of the SavedModel to act with; None in iteration 0.

    Returns:
      `{"iteration", "export", name of a metric, ...}`.
    """
    clock = Clock()
    predict = policy.load(export) if export else None
    newest = replay.path(args.run_dir, iteration)
    if not os.path.exists(newest):
        replay.save(newest, task.act(predict, np.random.default_rng([args.seed, iteration])))
    window = range(max(0, iteration + 1 - task.window), iteration + 1)
    experience = [replay.load(replay.path(args.run_dir, i)) for i in window]
    examples = [task.examples(part, predict) for part in experience]
    replay.write(os.path.join(args.run_dir, "replay"), task.name, examples, task.labels)
    act_seconds = clock.lap()
    export = learner.train(
        args.run_dir,
        shlex.split(args.learner),
        [*task.flags, f"--save_checkpoints_steps={task.steps}", f"--seed={args.seed}"],
        steps=(iteration + 1) * task.steps,
    )
    learn_seconds = clock.lap()
    random = np.random.default_rng([args.seed, iteration, 1])
    return {
        "iteration": iteration,
        "export": export,
        **task.evaluate(policy.load(export), random),
        "act_seconds": act_seconds,
        "learn_seconds": learn_seconds,
        "eval_seconds": clock.lap(),
        "cpu_seconds": clock.cpu_seconds(),
    }


def parse(argv):
    """Returns the arguments, and the task with the hyperparameters of --set."""
    parser = argparse.ArgumentParser("examples.rl.train", description=__doc__.partition("\n")[0])
    parser.add_argument("--task", choices=("cartpole", "connect_four"), required=True)
    parser.add_argument("--run_dir", required=True, help="folder of all files of the run")
    parser.add_argument("--seed", type=int, default=1, help="seed of actor and learner")
    parser.add_argument("--learner", default="run_cpu.py", help="wrapper and its flags")
    parser.add_argument("--set", default="", help="hyperparameters of the task: name=value,...")
    args = parser.parse_args(argv)
    if not 0 <= args.seed < 2**31:
        parser.error(f"--seed={args.seed} must be from 0 to {2**31 - 1}")
    names = {word.lstrip("-").partition("=")[0] for word in shlex.split(args.learner)}
    if given := sorted(names & {"best_metric", "mode"}):
        parser.error(
            f"--learner has --{given[0]}, but each iteration exports the last checkpoint. Remove it"
        )
    make_task = importlib.import_module(f"examples.rl.{args.task}.task").Task
    types = {field.name: type(field.default) for field in dataclasses.fields(make_task)}
    values = {}
    for setting in filter(None, args.set.split(",")):
        name, _, value = setting.partition("=")
        try:
            values[name] = types[name](value)
        except (KeyError, ValueError):
            known = ", ".join(f"{name} ({kind.__name__})" for name, kind in types.items())
            parser.error(f"--set={setting} is invalid. Hyperparameters: {known}")
        # With sampled_moves=0 self-play always makes the most visited move.
        if types[name] is int and values[name] < 1 and name != "sampled_moves":
            parser.error(f"--set={setting}: {name} must be at least 1")
    return args, make_task(**values)


@contextlib.contextmanager
def locked(run_dir):
    """Holds a lock on `run_dir`. A learner inherits it, and may outlive a driver that is killed."""
    os.makedirs(run_dir, exist_ok=True)
    with open(os.path.join(run_dir, "lock"), "wb") as file:
        os.set_inheritable(file.fileno(), True)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print(f"waiting for another process that works in {run_dir}", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def check_same_run(args, task):
    """Raises `UsageError` if `run_dir` holds a run with other hyperparameters."""
    settings = {"task": args.task, "seed": args.seed, **dataclasses.asdict(task)}
    del settings["iterations"]  # may grow
    path = os.path.join(args.run_dir, "run.json")
    if not os.path.exists(path):
        write_json(path, settings)
    found = read_json(path)
    for name, value in settings.items():
        if found.get(name) != value:
            raise UsageError(
                f"--run_dir={args.run_dir} holds a run with {name}={found.get(name)}, not {value}. "
                "Use the same settings, or another folder"
            )


def write_json(path, values):
    """Writes a JSON file atomically."""
    with files.atomic_write(path) as file:
        json.dump(values, file, indent=1)


def read_json(path):
    """Returns the contents of a JSON file."""
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def report(values):
    """Prints `name value, name value, ...`."""
    print(", ".join(f"{name} {value}" for name, value in values.items()), flush=True)


class Clock:
    """Measures wall time and the CPU time of this process and of its learners."""

    def __init__(self):
        self._cpu_start, self._last = _cpu_seconds(), time.monotonic()

    def lap(self):
        """Returns the seconds since the last call."""
        last, self._last = self._last, time.monotonic()
        return round(self._last - last, 1)

    def cpu_seconds(self):
        """Returns the CPU seconds since the start."""
        return round(_cpu_seconds() - self._cpu_start, 1)


def _cpu_seconds():
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


if __name__ == "__main__":
    startup.run(main)
